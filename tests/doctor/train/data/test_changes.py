"""A run that goes on with other pictures or captions says so."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from ..patient import Recorder, go, run_with


@pytest.fixture
def images(circles: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(circles, tmp_path / "images"))


def told(tiny: Path, images: Path, output: Path, steps: int) -> list[str]:
    """What a start says of changes."""
    recorder = Recorder()
    go(run_with(steps=steps), tiny, images, output, progress=recorder, held_out=1 if steps == 1 else None)
    return [note for note in recorder.notes if "have changed" in note]


def test_new_and_gone_pictures_and_changed_captions_are_counted(tiny: Path, images: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    assert told(tiny, images, output, 1) == []
    assert told(tiny, images, output, 2) == []
    (images / "0.txt").write_text("another caption", encoding="utf-8")
    assert told(tiny, images, output, 3) == [
        "The datasets have changed since the run was saved at step 2 (pictures with another caption: 1)."
    ]
    (images / "1.png").rename(images / "7.png")
    (images / "1.txt").rename(images / "7.txt")
    assert told(tiny, images, output, 4) == [
        "The datasets have changed since the run was saved at step 3 (the same pictures under other names). From "
        "here on the pictures come in another order."
    ]
    shutil.copy(images / "7.png", images / "8.png")
    with (images / "8.png").open("ab") as file:
        file.write(b"more")
    for name in ("2", "3"):
        (images / f"{name}.png").unlink()
    assert told(tiny, images, output, 5) == [
        "The datasets have changed since the run was saved at step 4 (pictures new: 1, gone: 2). From here on the "
        "pictures come in another order."
    ]
    assert told(tiny, images, output, 6) == []


def test_a_state_that_knows_no_pictures_says_nothing(tiny: Path, images: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    told(tiny, images, output, 1)
    state = output / ".circles.state.pt"
    content = torch.load(state, weights_only=True)
    del content["captions"]
    torch.save(content, state)
    (images / "0.txt").write_text("another caption", encoding="utf-8")
    assert told(tiny, images, output, 2) == []
