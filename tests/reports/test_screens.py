"""What is on the screen: golden at 40, 80 and 120 columns, and the last of it says every error and what to type."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path

import pytest

from zdoctor.doctor import languages
from zdoctor.doctor.examine.examination import Examination, examine_config
from zdoctor.doctor.model import Config, Finding, Fix, Plan, Report, Where, found
from zdoctor.doctor.model.columns import cells
from zdoctor.doctor.model.record import replace
from zdoctor.doctor.model.said import said, speak
from zdoctor.doctor.probe.recorded import RecordedWorld
from zdoctor.reports import plan, terminal
from zdoctor.reports.painting import Screen, Typed, Wrapped, broken, paint, shortened
from zdoctor.tests.machines import load
from zdoctor.tests.reports.test_reports import CASES, ROOT, compare

WIDTHS = (40, 80, 120)


@cache
def seen(case: str) -> Examination:
    machine, config = CASES[case]
    text = (ROOT / config).read_bytes()
    made = examine_config(Path(config).name, RecordedWorld(load(machine)), text=text)
    return replace(made, report=Report(**{**vars(made.report), "elapsed_ms": 42.0}))


def shown(report: Report, screen: Screen, config: Config | None = None, verbose: bool = False) -> str:
    return paint(terminal.lines(report, screen, config=config, verbose=verbose), screen)


@cache
def many(count: int, rules: int = 2) -> Report:
    """Errors of some rules, a warning and a note for each of them."""
    findings = [
        Finding(
            "{path} does not exist.",
            Where("c.yaml", line, 3, f"/datasets/{line}/folder_path"),
            "The run ends.",
            {"path": f"/data/{line}"},
            severity="error" if line % 3 else "warning" if line % 2 else "note",
            rule=f"PTH{line % rules:03}",
            name="missing-path",
        )
        for line in range(1, count + 1)
    ]
    return Report("c.yaml", "ai-toolkit", tuple(sorted(findings, key=lambda finding: finding.severity or "")))


@pytest.mark.parametrize(("case", "width"), list(product(CASES, WIDTHS)))
def test_the_screen(case: str, width: int, request: pytest.FixtureRequest) -> None:
    made = seen(case)
    screen = Screen(width, 24, goes_on="" if case == "windows" else "\\")
    compare(f"{case}.{width}.txt", shown(made.report, screen, made.written), request)


@pytest.fixture
def spoken(request: pytest.FixtureRequest) -> Iterator[str]:
    languages.speak(request.param)
    yield request.param
    languages.speak(languages.ENGLISH)


@pytest.mark.parametrize("width", [40, 80])
@pytest.mark.parametrize("spoken", [one for one in languages.LANGUAGES if one != languages.ENGLISH], indirect=True)
def test_the_screen_in_other_languages(spoken: str, width: int, request: pytest.FixtureRequest) -> None:
    """The columns of characters of East Asia counted: marks stand below what they mean, no line is too wide."""
    made = seen("kaggle")
    text = shown(made.report, Screen(width, 24, goes_on="\\"), made.written)
    compare(f"kaggle.{spoken}.{width}.txt", text, request)
    for line in text.splitlines():
        assert cells(line) <= width or max(map(cells, line.strip().split(" "))) > width - 20, line


@pytest.mark.parametrize("spoken", ["zh_CN"], indirect=True)
def test_lines_of_the_users_own_files_stay_as_they_are(spoken: str) -> None:
    """A value that is a word of ours, too ("error"), is not translated."""
    machine, config = CASES["kaggle"]
    text = (ROOT / config).read_bytes().replace(b"dtype: bf16", b"dtype: error")
    made = examine_config("c.yaml", RecordedWorld(load(machine)), text=text)
    assert said("error") == "错误"
    assert " dtype: error\n" in shown(made.report, Screen(80, 24), made.written)
    assert "-dtype: bf16\n+dtype: error\n" in paint(plan.lines(Plan("c.yaml"), "-dtype: bf16\n+dtype: error"))


def test_everything_is_told_when_it_is_asked_for(request: pytest.FixtureRequest) -> None:
    made = seen("kaggle")
    compare("kaggle.verbose.txt", shown(made.report, Screen(80, 24), made.written, verbose=True), request)


@pytest.mark.parametrize("width", WIDTHS)
def test_two_hundred_findings(width: int, request: pytest.FixtureRequest) -> None:
    compare(f"many.{width}.txt", shown(many(200), Screen(width, 24)), request)


@pytest.mark.parametrize(
    ("of", "width", "height"),
    [
        *((case, width, 24) for case, width in product(CASES, WIDTHS)),
        *((of, width, 24) for *of, width in product((5, 40, 10_000), (1, 4, 60), WIDTHS)),
        ([30, 2], 20, 24),
        ([30, 9], 80, 10),
    ],
)
def test_every_error_is_in_the_last_lines_of_the_screen(of: str | list[int], width: int, height: int) -> None:
    """In a line of its own, or counted by its rule; and what to type next is there, too. Numbers are of `many`."""
    report = seen(of).report if isinstance(of, str) else many(*of)
    rows = [
        line
        for line in shown(report, Screen(width, height)).splitlines()
        for _ in range(max(1, -(-cells(line) // width)))
    ]
    last = rows[-height + 1 :]
    if len(rows) < height:
        return
    said = [found for line in last if (found := re.match(r"error (?:and (\d+) more|\S+ (?:×(\d+))?)", line))]
    assert sum(int(found[1] or found[2] or 1) for found in said) == len(report.errors)
    rules = {finding.rule for finding in report.errors}
    assert rules <= set(" ".join(last).split()) or any("more, of" in line for line in last)
    assert not report.errors or any(line.startswith("next: ") for line in last)


def test_no_line_is_wider_than_the_screen_where_its_words_are_not() -> None:
    for case, width in product(CASES, WIDTHS):
        made = seen(case)
        for line in shown(made.report, Screen(width, 24, goes_on="\\"), made.written).splitlines():
            assert cells(line) <= width or max(map(cells, re.split(r"[ ]", line.strip()))) > width - 20, line


def test_what_is_alike_is_told_together() -> None:
    """Four paths of one kind are one cause; two findings of one place with one command are one cure."""
    fix = Fix("download it", (), "show", command="hf download a/b")
    place = Where("c.yaml", 3, 1, "/model")
    findings = (
        *(
            found(Where("c.yaml", line), "{path} is a word.", otherwise="It fails.", path=line)
            for line in range(1, 5)
        ),
        replace(found(place, "The folder has no vae/."), fixes=(fix,)),
        replace(found(place, "text_encoder lacks a file."), fixes=(fix,)),
    )
    rules = ["PTH002"] * 4 + ["MDL003"] * 2
    report = Report(
        "c", None, tuple(replace(f, rule=r, name="n", severity="error") for f, r in zip(findings, rules, strict=True))
    )
    text = shown(report, Screen(height=1 << 30))
    assert text.count("error   PTH002") == 1 and text.count("otherwise: It fails.") == 1
    assert all(f"{path} is a word." in text for path in range(1, 5))
    assert text.count("error   MDL003") == 1 and text.count("$ hf download a/b") == 1
    assert "no vae/" in text and "lacks a file" in text
    assert shown(report, Screen(height=1 << 30), verbose=True).count("$ hf download a/b") == 2


@pytest.mark.parametrize(
    ("text", "where", "line", "mark"),
    [
        ("a: 1\nkey: [x, y]  # why\n", Where("c.yaml", 2, 6), "key: [x, y]  # why", "     ^"),
        ('key: "a b" # why', Where("c.yaml", 1, 6), 'key: "a b" # why', "     ^^^^^"),
        ("key: 'a\tb'", Where("c.yaml", 1, 1), "key: 'a b'", "^^^"),
        ("\ufeff键: 猫", Where("c.yaml", 1, 4), "键: 猫", "    ^^"),
        ("token: hf_abcdefghijklmnop", Where("c.yaml", 1, 8), "token: hf_***", "       ^^^^^^"),
    ],
)
def test_the_line_of_the_file_is_shown_with_a_mark(text: str, where: Where, line: str, mark: str) -> None:
    finding = replace(found(where, "It is wrong."), rule="CFG004", name="n", severity="error")
    told = shown(Report("c.yaml", None, (finding,)), Screen(), Config("c.yaml", text, None)).splitlines()
    at = next(number for number, one in enumerate(told) if " | " in one)
    assert told[at].partition("| ")[2] == line and told[at + 1].partition("| ")[2] == mark


@pytest.mark.parametrize(
    "where", [Where("c.yaml"), Where("c.yaml", 9, 1), Where("c.yaml", 1, 99), Where("other", 1, 1)]
)
def test_a_place_that_is_not_known_to_a_character_shows_no_line(where: Where) -> None:
    finding = replace(found(where, "It is wrong."), rule="CFG004", name="n", severity="error")
    assert " | " not in shown(Report("c.yaml", None, (finding,)), Screen(), Config("c.yaml", "a: 1", None))


def test_a_long_line_is_cut_around_the_place() -> None:
    text = "x" * 200 + ": here " + "y" * 200
    finding = replace(found(Where("c.yaml", 1, 203), "It is wrong."), rule="CFG004", name="n", severity="error")
    told = shown(Report("c.yaml", None, (finding,)), Screen(40), Config("c.yaml", text, None)).splitlines()
    at = next(number for number, one in enumerate(told) if " | " in one)
    assert cells(told[at]) <= 40 and "here" in told[at] and told[at].count("…") == 2
    assert told[at].index("here") == told[at + 1].index("^")


def test_a_command_is_broken_between_its_words() -> None:
    command = 'zdoctor fix "a folder/c.yaml" --machine "my machine.json" --allow result'
    told = paint([Typed(command, "next: ", "shows the plan")], Screen(40, goes_on="\\"))
    assert told.replace(" \\\n", " ").split() == f"next: {command} shows the plan".split()
    assert all(line.endswith(" \\") for line in told.splitlines()[:-2])
    assert command in paint([Typed(command, "next: ")], Screen(40))


def test_a_wide_lead_keeps_its_blank_and_no_line_ends_with_an_open_bracket() -> None:
    told = {"do:": "cách làm:", "Write it.": "写一份副本 [安全]"}
    speak(lambda text: text.replace(text.strip(), told.get(text.strip(), text.strip())), "vi")
    try:
        assert paint([Wrapped("Write it.", "do:    ")], Screen(80)) == "cách làm: 写一份副本 [安全]\n"
    finally:
        speak(None)
    assert broken("写一份副本 [安全]", 13) == ["写一份副本", "[安全]"]
    assert broken("写一份副本 (安全)", 13) == ["写一份副本", "(安全)"]


@pytest.mark.parametrize(
    ("text", "room", "expected"), [("a  b\nc", 9, "a b c"), ("abcdef", 4, "abc…"), ("猫猫猫", 4, "猫…")]
)
def test_a_text_is_shortened_to_its_room(text: str, room: int, expected: str) -> None:
    assert shortened(text, room) == expected
