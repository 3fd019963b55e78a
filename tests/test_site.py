"""The site: it builds without a warning, its links lead somewhere, and its outputs are what zdoctor prints."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from itertools import takewhile
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe

from zdoctor.doctor.cli import main
from zdoctor.doctor.languages import ENGLISH, LANGUAGES
from zdoctor.doctor.model.said import speak
from zdoctor.doctor.rules import all_rules
from zdoctor.maintenance.site import language_of
from zdoctor.tests.browser import chromium
from zdoctor.tests.loras import as_kohya, pairs_of, saved
from zdoctor.tests.machines import MACHINES, text

ROOT = Path(__file__).parent.parent
SITUATIONS = sorted((ROOT / "docs" / "situations").rglob("*.md"))
SHOWN = re.compile(r"<!-- zdoctor (?P<words>.+?) -->\n```text\n(?P<output>.*?)```", re.S)
AS_SEARCHED = re.compile(r"# .+\n\n```text\n(.+?)```", re.S)


@pytest.mark.parametrize("page", SITUATIONS, ids=lambda page: f"{page.stem}-{language_of(page)}")
def test_what_a_situation_shows_is_what_zdoctor_prints(
    page: Path, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "84")
    folder = request.getfixturevalue("tmp_path")
    written = page.read_text(encoding="utf-8")

    def printed(match: re.Match[str]) -> str:
        words = _words(match["words"], written, folder)
        monkeypatch.chdir(ROOT if "/configs/" in words or "examples/" in words else folder)
        try:
            main(shlex.split(words))
        finally:
            speak(None)  # the language of the process, which the command has set
        return f"<!-- zdoctor {match['words']} -->\n```text\n{_shown(capsys.readouterr().out)}\n```"

    made = SHOWN.sub(printed, written)
    if request.config.getoption("--golden"):
        page.write_text(made, encoding="utf-8")
    assert page.read_text(encoding="utf-8") == made, "python -m pytest tests/test_site.py --golden"
    assert page.name == "README.md" or SHOWN.search(made), "a situation shows what zdoctor says of it"


def _shown(output: str) -> str:
    """What a check found, or the cause of a failure, in any language: without what is told after it."""
    output = re.sub(r"\n\S.*zdoctor check CONFIG --select .*\n?$", "", output)
    checked = re.match(r"zdoctor check .*\n", output)
    if not checked:
        return output.strip()
    head, *blocks = output[checked.end() :].split("\n\n")
    return "\n\n".join([head, *takewhile(re.compile(r"\S.* [A-Z]{3}\d{3} \w+-\w").match, blocks)])


def _words(words: str, page: str, folder: Path) -> str:
    """A command of a page with the files that it names: recorded machines, and what the page shows or is about."""
    for name in MACHINES:
        if f"--machine {name} " in f"{words} ":
            (folder / f"{name}.json").write_text(text(name), encoding="utf-8")
            words = words.replace(f"--machine {name}", f"--machine {shlex.quote(str(folder / name))}.json")
    if "train.log" in words:
        said = AS_SEARCHED.match(page)
        assert said, "a situation begins with the words that people search"
        (folder / "train.log").write_text(f"Traceback (most recent call last):\n{said[1]}", encoding="utf-8")
    elif "config.json" in words:
        (folder / "config.json").write_text(page.partition("```json\n")[2].partition("```")[0], encoding="utf-8")
    elif "bob.safetensors" in words:
        saved(folder / "bob.safetensors", as_kohya("zimage", pairs_of("zimage"), original=False))
    return words


COMMANDS = re.compile(r"<!-- zdoctor (.+?) -->|```(?:sh|json)\n(.+?)```", re.S)


@pytest.mark.parametrize("language", [one for one in LANGUAGES if one != ENGLISH])
def test_each_situation_is_told_in_each_language(language: str) -> None:
    """The same words that are searched, the same commands, and as many sections; each page leads to the others."""
    for page in (one for one in SITUATIONS if language_of(one) == ENGLISH):
        told, there = page.read_text(encoding="utf-8"), page.parent / language / page.name
        translated = there.read_text(encoding="utf-8")
        typed = COMMANDS.findall(translated.replace(f" --lang {language} -->", " -->"))
        assert typed == COMMANDS.findall(told), there
        assert AS_SEARCHED.findall(translated) == AS_SEARCHED.findall(told), there
        assert re.findall(r"^(#+|\||- )", translated, re.M) == re.findall(r"^(#+|\||- )", told, re.M), there
        assert translated.splitlines()[-1] == _languages(page.name, language)
        assert told.splitlines()[-1] == _languages(page.name, ENGLISH)
    assert {one.name for one in SITUATIONS if language_of(one) == language} == {
        one.name for one in SITUATIONS if language_of(one) == ENGLISH
    }


def _languages(name: str, here: str) -> str:
    """The last line of a page: its languages, each by its own name."""
    up = "" if here == ENGLISH else "../"
    places = {language: f"{up}{'' if language == ENGLISH else f'{language}/'}{name}" for language in LANGUAGES}
    return " · ".join(told if of == here else f"[{told}]({places[of]})" for of, told in LANGUAGES.items())


@dataclass
class Page(HTMLParser):
    """The links of a page and the places that links can name."""

    file: Path
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attrs}
        self.anchors |= {named[name] for name in ("id", "name") if name in named}
        if tag == "a" and "href" in named:
            self.links.append(named["href"])
        elif "src" in named or tag == "link":
            self.loads.append(named.get("src") or named.get("href", ""))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Page]:
    pytest.importorskip("mkdocs", reason='python -m pip install -c constraints.txt -e ".[docs]"')
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    return {file: Page(file) for file in folder.rglob("*.html")}


def broken(site: dict[Path, Page]) -> Iterator[str]:
    """Links and what pages load, that lead to no file of the site or to no place in it."""
    root = next(file for file in site if file.name == "404.html").parent
    for page in site.values():
        if page.file.name == "404.html":  # its addresses begin at the root of a host
            continue
        for address in (*page.links, *page.loads):
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                if address in page.loads:
                    yield f"{page.file.relative_to(root)} loads {address}"
                continue
            to = (page.file.parent / unquote(parts.path)).resolve() if parts.path else page.file
            to = to / "index.html" if to.is_dir() else to
            if not to.is_file():
                yield f"{page.file.relative_to(root)} -> {address}"
            elif parts.fragment and to in site and unquote(parts.fragment) not in site[to].anchors:
                yield f"{page.file.relative_to(root)} -> {address}: no such place"


def test_every_link_leads_somewhere_and_nothing_is_loaded_from_elsewhere(site: dict[Path, Page]) -> None:
    assert not sorted(broken(site))
    assert sum(len(page.links) for page in site.values()) > 1000


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_can_be_read_by_everybody(site: dict[Path, Page], scheme: Literal["light", "dark"]) -> None:
    """axe finds nothing on one page of each kind."""
    root = next(file for file in site if file.name == "404.html").parent
    with chromium() as started:
        page = started.new_page(color_scheme=scheme)
        for name in ("start", "situations/kaggle-t4", "situations/zh_CN/slow-steps", "rules/PTH001", "families"):
            page.goto((root / name / "index.html").as_uri())
            found = Axe().run(page)
            assert found.violations_count == 0, f"{name}: {found.generate_report()}"


def test_each_rule_has_a_page(site: dict[Path, Page]) -> None:
    named = {file.parent.name for file in site if file.parent.parent.name == "rules"}
    assert named == {rule.id for rule in all_rules()}


def test_no_list_of_the_pages_became_a_paragraph(site: dict[Path, Page]) -> None:
    """Where Markdown as GitHub reads it and as the site does part: a list wants an empty line before it."""
    torn = re.compile(r"<p>[^<]*(?:<(?!/p)[^<]*)*?\n(?:- |\d+\. |\|)")
    assert not [file.parent.name for file in site if torn.search(file.read_text(encoding="utf-8"))]
