"""A run that goes on with other pictures, captions, control images, masks or repeats says so."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image

from zdoctor.doctor.train.dataset.dataset_changes import dataset_changes, dataset_fingerprint
from zdoctor.doctor.train.dataset.training_items import read_training_items
from zdoctor.tests.changes import changed

from ..patient import DATASET, Recorder, go, run_with, written


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


def test_control_images_masks_and_repeats_are_compared(images: Path, tmp_path: Path) -> None:
    """Each alone; the pictures and their captions stay."""
    for name in ("controls", "masks"):
        (tmp_path / name).mkdir()
        for number in range(6):
            Image.new("RGB", (160, 128), "white").save(tmp_path / name / f"{number}.png")

    def seen(repeats: int = 1, sizes: tuple[int, ...] = (64,)) -> dict[str, str]:
        dataset = replace(DATASET, control_folders=(str(tmp_path / "controls"),), repeats=repeats, resolutions=sizes)
        settings = written(datasets__0__mask_path=str(tmp_path / "masks"))
        run = run_with(architecture="flux_kontext", datasets=(dataset,), settings=settings)
        return dataset_fingerprint(read_training_items(run.recipe, {"datasets/0": str(images)}, 16))

    first = seen()
    assert dataset_changes(first, seen(), 3) == ""
    Image.new("RGB", (160, 128), "red").save(tmp_path / "controls" / "0.png")
    second = seen()
    assert "(pictures with another control image: 1)." in dataset_changes(first, second, 3)
    for number in (1, 2):
        Image.new("L", (160, 128), 100).save(tmp_path / "masks" / f"{number}.png")
    (tmp_path / "masks" / "3.png").unlink()
    third = seen()
    assert "(pictures with another mask: 3)." in dataset_changes(second, third, 3)
    said = dataset_changes(first, third, 3)
    assert said.endswith("(pictures with another control image: 1, with another mask: 3).")
    for often in (seen(repeats=2), seen(sizes=(48, 64))):
        assert dataset_changes(third, often, 3).endswith(
            "(pictures shown more or less often: 6). From here on the pictures come in another order."
        )


def test_a_state_that_knows_captions_only_is_compared_by_these(tiny: Path, images: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    told(tiny, images, output, 1)
    state = output / ".circles.state.pt"
    content = torch.load(state, weights_only=True)
    content["captions"] = {digest: parts.split()[0] for digest, parts in content["captions"].items()}
    torch.save(content, state)
    run = run_with(steps=2, datasets=(replace(DATASET, repeats=2),))
    recorder = Recorder()
    go(run, tiny, images, output, progress=recorder)
    assert not [note for note in recorder.notes if "have changed" in note]
    (images / "0.txt").write_text("another caption", encoding="utf-8")
    go(changed(run, steps=3, datasets=(DATASET,)), tiny, images, output, progress=recorder)
    (note,) = (note for note in recorder.notes if "have changed" in note)
    assert "(pictures with another caption: 1, shown more or less often: " in note
