"""The report as one page, as a browser shows it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from zdoctor.doctor.model import Finding, Fix, Outcome, Report
from zdoctor.reports import Checked
from zdoctor.reports.shown import shown
from zdoctor.tests.browser import CONTRAST, WINDOWS, Show
from zdoctor.tests.often import often
from zdoctor.tests.reports.read_back import in_full

from .test_formats import rendered, seen

SCRIPT = "<script>document.title = 'taken'</script><img src=http://127.0.0.1/x onerror=alert(1)>"
ENDLESS = "/a_folder_without_an_end" * 30


def hostile() -> str:
    fix = Fix(title=SCRIPT, steps=(), command=f"type {ENDLESS}")
    finding = Finding(
        f"{SCRIPT} {ENDLESS}",
        otherwise=ENDLESS,
        rule="PTH001",
        name="read-only-path",
        severity="error",
        fixes=(fix,),
    )
    unknown = (Outcome("MEM001", SCRIPT),)
    return in_full("html", Report(SCRIPT, None, (finding,), unknown=unknown), version="0.1.0")


@WINDOWS
@pytest.mark.parametrize("case", ["kaggle", "healthy", "hostile"])
def test_the_page_is_readable_at_any_width_and_in_the_dark(
    show: Show, tmp_path: Path, case: str, width: int, scheme: Literal["light", "dark"]
) -> None:
    file = tmp_path / "report.html"
    file.write_text(hostile() if case == "hostile" else rendered("html", seen(case)), encoding="utf-8")
    page = show(file, width, scheme)
    assert page.title.startswith("zdoctor check ")
    assert (page.asked, page.said, page.overflow, page.images) == ((), (), 0, 0)
    assert len(page.texts) > 10
    assert [text for text in page.texts if text.contrast < CONTRAST or text.pixels < 9.5] == []


def test_on_paper_nothing_is_hidden_or_dark(show: Show, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(rendered("html", seen("kaggle")), encoding="utf-8")
    screen, paper = show(file, 700, "light"), show(file, 700, "dark", "print")
    assert (paper.cut, paper.ground) == (0, screen.ground)
    assert [text.words for text in paper.texts] == [text.words for text in screen.texts]
    assert [text for text in paper.texts if text.contrast < CONTRAST] == []


# What notebooks say of their cells' output, more and less strictly.
CELL = """<!DOCTYPE html><html><head><style>
html {{ font-size: 10px; }} body {{ background: {ground}; color: {text}; margin: 0; font: 13px Georgia; }}
.out {{ padding: 8px; color: {text}; }} .out pre, .out code {{ background: transparent; color: {text}; }}
.out :not(pre) > code {{ background-color: {code}; color: {text}; }} .out h1 {{ color: {text}; font-size: 40px; }}
.out h1:not(:first-child) {{ margin-top: 50px; }} .out p {{ color: {text}; }}
</style></head><body data-jp-theme-light="{light}"><h1 class="own">own</h1>
<article class="own note"><p class="own soft">own</p><code class="own">own</code></article>
<div class="out">{cell}</div></body></html>"""
DAY = {"ground": "#fff", "text": "#111", "code": "#eee", "light": "true"}
NIGHT = {"ground": "#111", "text": "#eee", "code": "#333", "light": "false"}


@pytest.mark.parametrize(
    ("width", "theme", "scheme"),
    often([(360, DAY, "dark"), (900, DAY, "light"), (900, NIGHT, "light"), (360, NIGHT, "dark")], 2),
    ids=["day in the dark", "day", "night in the light", "night"],
)
def test_a_notebook_shows_the_page_and_keeps_its_own_style(
    show: Show, tmp_path: Path, width: int, theme: dict[str, str], scheme: Literal["light", "dark"]
) -> None:
    made = seen("kaggle")
    cell = shown(Checked(made.report, made.rules, made.written))._repr_html_()
    plain, with_report, alone = (tmp_path / f"{name}.html" for name in ("plain", "with", "alone"))
    plain.write_text(CELL.format(cell="", **theme), encoding="utf-8")
    with_report.write_text(CELL.format(cell=cell, **theme), encoding="utf-8")
    alone.write_text(rendered("html", made).replace("0.1.0 ", ""), encoding="utf-8")
    before, cells, page = (show(file, width, scheme) for file in (plain, with_report, alone))
    own = len(before.texts)
    assert cells.texts[:own] == before.texts and cells.ground == before.ground
    assert [text.words for text in cells.texts[own:]] == [text.words for text in page.texts]
    assert [text.pixels for text in cells.texts[own:]] == [text.pixels for text in page.texts]
    assert (cells.overflow, cells.asked, cells.said) == (0, (), ())
    assert [text for text in cells.texts if text.contrast < CONTRAST] == []
