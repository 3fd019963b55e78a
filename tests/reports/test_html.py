"""The report as one page, as a browser shows it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from zdoctor.doctor.model import Finding, Fix, Outcome, Report
from zdoctor.tests.browser import CONTRAST, Show
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


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1000])
@pytest.mark.parametrize("case", ["kaggle", "healthy", "hostile"])
def test_the_page_is_readable_at_any_width_and_in_the_dark(
    show: Show, tmp_path: Path, case: str, width: int, scheme: Literal["light", "dark"]
) -> None:
    file = tmp_path / "report.html"
    file.write_text(hostile() if case == "hostile" else rendered("html", seen(case)), encoding="utf-8")
    shown = show(file, width, scheme)
    assert shown.title.startswith("zdoctor check ")
    assert (shown.asked, shown.said, shown.overflow, shown.images) == ((), (), 0, 0)
    assert len(shown.texts) > 10
    assert [text for text in shown.texts if text.contrast < CONTRAST or text.pixels < 9.5] == []
