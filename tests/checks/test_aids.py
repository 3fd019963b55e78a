"""DAT008: masks and control images that are not there, and what the runner says of them.

ai-toolkit's own code (toolkit/dataloader_mixins.py) looks for each and goes on without it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from zdoctor.checks.pictures import control_images_missing
from zdoctor.doctor.model import Files, Finding, Run
from zdoctor.doctor.model.datasets import Dataset
from zdoctor.doctor.model.recipe import SamplePrompt
from zdoctor.doctor.model.trainer import RUNNER
from zdoctor.doctor.probe.dataset import probe_datasets
from zdoctor.doctor.probe.files import probe_files
from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.doctor.train.dataset.training_items import read_training_items
from zdoctor.doctor.train.encode.encoding_cache import EncodingCache
from zdoctor.doctor.train.encode.loss_masks import LossMasks
from zdoctor.doctor.train.runtime.train_error import TrainError
from zdoctor.doctor.train.sampling.preview_samples import edited_samples
from zdoctor.tests.changes import changed
from zdoctor.tests.doctor.train.patient import written
from zdoctor.tests.models import healthy, run_of

Made = Callable[[Path], dict[str, Any]]


def pictures(folder: Path, *names: str) -> str:
    folder.mkdir()
    for name in names:
        Image.new("RGB", (32, 32)).save(folder / name)
    return str(folder)


def run_with(place: Path, architecture: str = "flux_kontext", **changes: Any) -> Run:
    data = pictures(place / "data", "a.png", "b.png")
    dataset = Dataset("datasets/0", data, ".txt", (32,), control_folders=changes.pop("controls", ()))
    run = changed(
        run_of(healthy()),
        architecture=architecture,
        datasets=(dataset,),
        validation={"disabled": True},
        trainer=RUNNER,
    )
    return changed(run, **changes)


def findings(run: Run) -> list[Finding]:
    world = LiveWorld()
    folders = probe_datasets(world, run)
    assert isinstance(folders, tuple)
    files: Files = probe_files(world, run)
    return list(control_images_missing(run, folders, files))


def said(run: Run) -> str:
    """What the runner says of its pictures."""
    try:
        read_training_items(run.recipe, {d.key: str(d.folder) for d in run.recipe.datasets}, 16)
        edited_samples(run.recipe, 16)
    except TrainError as error:
        return str(error)
    return ""


def sample(control: str) -> tuple[SamplePrompt, ...]:
    return (SamplePrompt("a", 32, 32, 1, 1, 1.0, control=control),)


def masks(path: str, **more: Any) -> dict[str, Any]:
    return {"settings": written(datasets__0__mask_path=path, **more)}


SICK: list[tuple[str, Made]] = [
    ("gone, the folder of control_path, does not exist", lambda place: {"controls": (f"{place}/gone",)}),
    ("is no folder", lambda place: {"controls": (pictures(place / "c", "a.png") + "/a.png",)}),
    ("b.png has no control image in", lambda place: {"controls": (pictures(place / "c", "a.png", "c.png"),)}),
    ("2 of 2 pictures in", lambda place: {"controls": (pictures(place / "c", "a.PNG", "x.png"),)}),
    ("gone, the folder of mask_path, does not exist", lambda place: masks(f"{place}/gone")),
    (
        "gone.png, the control image of a sample, does not exist",
        lambda place: {"disable_sampling": False, "samples": sample(f"{place}/gone.png")},
    ),
    (
        "The control images of 2 samples do not exist; the first is",
        lambda place: {"disable_sampling": False, "samples": 2 * sample(f"{place}/gone.png")},
    ),
]


@pytest.mark.parametrize(("words", "made"), SICK, ids=[words for words, _ in SICK])
def test_what_is_not_there(tmp_path: Path, words: str, made: Made) -> None:
    run = run_with(tmp_path, **made(tmp_path))
    (finding,) = findings(run)
    assert words in finding.text() and said(run)
    (theirs,) = findings(replace(run, trainer="ai-toolkit"))
    assert theirs.text() == finding.text() and theirs.severity == (None if "sample" in words else "warning")
    assert not findings(replace(run, kind="finetune"))


HEALTHY: list[tuple[str, Made]] = [
    (
        "each has its own, some of another kind",
        lambda place: {"controls": (pictures(place / "c", "a.webp", "b.png"),)},
    ),
    ("one mask for two pictures", lambda place: masks(pictures(place / "m", "a.png"))),
    ("a model that takes none", lambda place: {"architecture": "flux", "controls": ("gone",)}),
    ("a control image where nothing is painted", lambda place: {"samples": sample("gone.png")}),
    (
        "a sample that edits a picture",
        lambda place: {"disable_sampling": False, "samples": sample(pictures(place / "s", "a.png") + "/a.png")},
    ),
]


@pytest.mark.parametrize(("names", "words"), [(("c.jpg",), "c.jpg is a JPEG"), (("c.jpg", "d.JPEG"), "2 pictures")])
def test_a_jpeg_has_no_alpha_channel_for_a_mask(tmp_path: Path, names: tuple[str, ...], words: str) -> None:
    run = run_with(tmp_path, "zimage", settings=written(datasets__0__alpha_mask=True))
    data = tmp_path / "data"
    for file in data.iterdir():
        Image.open(file).convert("RGBA").save(file)
    masks = LossMasks(EncodingCache(tmp_path / "cache"), 8)
    items = read_training_items(run.recipe, {"datasets/0": str(data)}, 16)
    masks.prepare(items, print)
    assert not findings(run)
    for name in names:
        Image.new("RGB", (32, 32)).save(data / name)
    (finding,) = findings(run)
    assert words in finding.text() and finding.severity is None
    with pytest.raises(TrainError, match=r"c\.jpg has no alpha channel"):
        masks.prepare(read_training_items(run.recipe, {"datasets/0": str(data)}, 16), print)
    assert not findings(changed(run, loss={"balanced_masks": False}))
    assert not findings(changed(run, settings=written(datasets__0__alpha_mask=False)))


def test_how_ai_toolkit_takes_a_mask_from_a_jpeg() -> None:
    """As load_mask_image does it."""
    pixels = np.array(Image.new("RGB", (4, 4)))
    with pytest.raises(ValueError, match="could not broadcast input array from shape"):
        pixels[:, :, :3] = pixels[:, :, 3:]


@pytest.mark.parametrize(("title", "made"), HEALTHY, ids=[title for title, _ in HEALTHY])
def test_what_is_fine(tmp_path: Path, title: str, made: Made) -> None:
    run = run_with(tmp_path, **made(tmp_path))
    assert not findings(run), title
    assert run.recipe.architecture == "flux" or not said(run)
