"""A report at a prompt and in a notebook."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

import zdoctor
from zdoctor.reports import Checked
from zdoctor.reports.shown import shown
from zdoctor.tests.reports.read_back import READERS, of

from .test_formats import seen
from .test_reports import compare, report_of

ROOT = Path(__file__).parents[2]


def test_it_prints_as_the_terminal_shows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("kaggle_zimage.yaml").write_bytes((ROOT / "examples" / "kaggle_zimage.yaml").read_bytes())
    Path("kaggle.json").write_bytes((ROOT / "examples" / "kaggle_t4x2.json").read_bytes())
    report = zdoctor.check("kaggle_zimage.yaml", machine="kaggle.json")
    compare("kaggle.shown.txt", re.sub(r"\d+ ms", "42 ms", f"{report}\n"), request)
    assert repr(report).startswith("<Report of kaggle_zimage.yaml: 3 errors, ") and "\n" not in repr(report)


def test_it_is_a_report_like_any_other() -> None:
    made, report = seen("kaggle"), report_of("kaggle")
    again = shown(Checked(report, made.rules, made.written))
    assert again.findings == report.findings and replace(again, strict=True).exit_code == 1
    page = READERS["html"](f"<main>{again._repr_html_()}</main>")
    assert page == of(report)
