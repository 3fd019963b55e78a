"""The page of a run, as a browser shows it."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, Literal

from PIL import Image

from zdoctor.doctor.train.output.html_report import ReportSample, html_report
from zdoctor.tests.browser import CONTRAST, WINDOWS, Show

HOSTILE = "<script>document.title = 'taken'</script>" + "a_name_without_any_end_" * 20
RECORD: dict[str, Any] = {
    "name": HOSTILE,
    "config": "/home/me/" + "folder/" * 30 + "config.yaml",
    "seed": 7,
    "settings": {"rank": 8, "base_model": "/models/" + "x" * 200, "use_ema": False},
    "written": {"train/gradient_checkpointing_of_everything": True, "model/name_or_path": "y" * 300},
    "packages": {"torch": "2.13.0"},
}


@WINDOWS
def test_the_page_of_a_run_is_readable_at_any_width_and_in_the_dark(
    show: Show, tmp_path: Path, width: int, scheme: Literal["light", "dark"]
) -> None:
    """Nothing is asked of a network, no word of the config becomes code, nothing is wider than the window but the
    rows that scroll by themselves, and all text has the contrast and size that people can read.
    """
    file = tmp_path / "report.html"
    losses = [1 / (1 + step / 50) for step in range(300)]
    evaluations = [(step, 1 / (1 + step / 60)) for step in range(0, 301, 50)]
    samples = [
        ReportSample(step, number, f"prompt {number} {HOSTILE}", f"samples/{step}_{number}.png", _jpeg())
        for step in (0, 100, 200)
        for number in range(2)
    ]
    file.write_text(
        html_report(RECORD, "Finished at step 300 of 300", losses, evaluations, samples), encoding="utf-8"
    )
    shown = show(file, width, scheme)
    assert shown.title == HOSTILE
    assert (shown.asked, shown.said, shown.overflow) == ((), (), 0)
    assert (shown.images, shown.broken) == (6, 0)
    assert "Finished at step 300 of 300" in [text.words for text in shown.texts]
    assert [text for text in shown.texts if text.contrast < CONTRAST or text.pixels < 9.5] == []
    paper = show(file, 700, scheme, "print")
    assert (paper.cut, paper.ground) == (0, "rgb(251, 251, 250)")
    assert {text.words for text in paper.texts} == {text.words for text in shown.texts}


def _jpeg() -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (32, 32), (200, 40, 90)).save(stream, "JPEG")
    return stream.getvalue()
