"""What a terminal shows of a run."""

from __future__ import annotations

import io

import pytest

from zdoctor.doctor.train.runtime.progress import Bar


@pytest.mark.parametrize("columns", [40, 60, 100])
def test_the_bar_cuts_off_no_number(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    stream = io.StringIO()
    bar = Bar(stream)
    bar.step(1234, 3000, 0.4321, 0.42)
    bar.console.print(bar.bar.get_renderable())
    bar.close()
    assert all(shown in stream.getvalue() for shown in ("1234/3000", "loss 0.4321", "2.4 s/it"))
