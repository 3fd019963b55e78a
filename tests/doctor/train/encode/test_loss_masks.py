"""What a mask leaves out does not move the network, and masks follow their pictures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from zdoctor.doctor.train import TrainError
from zdoctor.doctor.train.dataset.training_items import TrainingItem, read_training_items
from zdoctor.doctor.train.encode.encoding_cache import EncodingCache
from zdoctor.doctor.train.encode.loss_masks import LossMasks, with_mean_one
from zdoctor.tests.changes import changed

from ..patient import Recorder, go, run_with, written
from ..step.test_output_preservation import parts, trainer


def picture(file: Path, left: Any, right: Any, size: tuple[int, int] = (64, 64), mode: str = "RGB") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    image = Image.new(mode, size, left)
    image.paste(right, (size[0] // 2, 0, *size))
    image.save(file)
    return file


def items(folder: Path, loss: Any = None, **settings: Any) -> list[TrainingItem]:
    return read_training_items(
        run_with(loss=loss or {}, settings=written(**settings)).recipe, {"datasets/0": str(folder)}, 16
    )


def made(found: list[TrainingItem], cache: Path, notes: Recorder | None = None) -> torch.Tensor:
    masks = LossMasks(EncodingCache(cache), 8)
    masks.prepare(found, (notes or Recorder()).note)
    return masks.get(found[0])


@pytest.mark.parametrize(
    ("settings", "left", "right"),
    [
        ({}, 0.0, 1.0),
        ({"datasets__0__invert_mask": True}, 1.0, 0.0),
        ({"datasets__0__mask_min_value": 0.25}, 0.25, 1.0),
    ],
)
def test_the_half_of_a_picture(tmp_path: Path, settings: Any, left: float, right: float) -> None:
    picture(tmp_path / "pictures/one.jpg", "red", "blue")
    picture(tmp_path / "masks/one.png", "black", "white")
    found = items(tmp_path / "pictures", datasets__0__mask_path=str(tmp_path / "masks"), **settings)
    mask = made(found, tmp_path / "cache")
    assert mask.shape == (1, 8, 8)
    assert torch.allclose(mask[:, :, :4], torch.tensor(left)) and torch.allclose(mask[:, :, 4:], torch.tensor(right))
    assert with_mean_one([mask, torch.ones(1, 8, 8)]).mean().item() == pytest.approx(1.0)


def test_without_alpha_all_of_a_picture_of_sd_scripts_counts(tmp_path: Path) -> None:
    picture(tmp_path / "pictures/one.png", "red", "blue")
    picture(tmp_path / "pictures/two.png", (255, 0, 0, 0), (0, 0, 255, 255), mode="RGBA")
    notes = Recorder()
    found = items(tmp_path / "pictures", loss={"balanced_masks": False}, datasets__0__alpha_mask=True)
    assert made(found, tmp_path / "cache", notes).min() == 1 and found[1].mask is not None
    assert "1 of 2 pictures have no mask" in " ".join(notes.notes)


def test_alpha_is_a_mask(tmp_path: Path) -> None:
    picture(tmp_path / "pictures/one.png", (255, 0, 0, 0), (0, 0, 255, 255), mode="RGBA")
    mask = made(items(tmp_path / "pictures", datasets__0__alpha_mask=True), tmp_path / "cache")
    assert mask[0, 0].tolist() == [0.0] * 4 + [1.0] * 4


def test_a_mask_is_mirrored_and_cropped_with_its_picture(tmp_path: Path) -> None:
    """A picture of 128 x 64 in a square crop: of the mask too only the middle is left, mirrored."""
    picture(tmp_path / "pictures/one.png", "red", "blue", (128, 64))
    picture(tmp_path / "masks/one.png", "black", "white", (256, 128))
    run = run_with(settings=written(datasets__0__mask_path=str(tmp_path / "masks"), datasets__0__square_crop=True))
    dataset = run.recipe.datasets[0]
    run = changed(run, datasets=(replace(dataset, flip_x=True),))
    plain, mirrored = read_training_items(run.recipe, {"datasets/0": str(tmp_path / "pictures")}, 16)
    masks = LossMasks(EncodingCache(tmp_path / "cache"), 8)
    masks.prepare([plain, mirrored], lambda _: None)
    half = torch.tensor([0.0] * 4 + [1.0] * 4)
    torch.testing.assert_close(masks.get(plain)[0, 0], half, rtol=0, atol=0.05)
    torch.testing.assert_close(masks.get(mirrored)[0, 0], half.flip(0), rtol=0, atol=0.05)


def test_a_picture_without_a_mask_counts_whole_and_is_named(tmp_path: Path) -> None:
    picture(tmp_path / "pictures/one.jpg", "red", "blue")
    (tmp_path / "masks").mkdir()
    notes = Recorder()
    found = items(tmp_path / "pictures", datasets__0__mask_path=str(tmp_path / "masks"))
    assert made(found, tmp_path / "cache", notes).mean() == 1.0
    assert "1 of 1 pictures have no mask" in notes.notes[0] and "one.jpg" in notes.notes[0]


@pytest.mark.parametrize(
    ("words", "mask", "settings"),
    [
        ("black all over", ("black", "black", (64, 64)), {}),
        ("black all over when inverted", ("white", "white", (64, 64)), {"datasets__0__invert_mask": True}),
        ("Give the mask the shape", ("black", "white", (96, 64)), {}),
        ("no alpha channel", ("black", "white", (64, 64)), {"datasets__0__alpha_mask": True}),
        ("cannot be read", None, {}),
    ],
)
def test_masks_that_cannot_be_used(tmp_path: Path, words: str, mask: Any, settings: Any) -> None:
    picture(tmp_path / "pictures/one.jpg", "red", "blue")
    if mask is None:
        (tmp_path / "masks").mkdir()
        (tmp_path / "masks/one.png").write_bytes(b"half a picture")
    else:
        picture(tmp_path / "masks/one.png", *mask)
    found = items(tmp_path / "pictures", datasets__0__mask_path=str(tmp_path / "masks"), **settings)
    with pytest.raises(TrainError, match=words):
        made(found, tmp_path / "cache")


def test_a_folder_of_masks_that_is_not_there(tmp_path: Path) -> None:
    picture(tmp_path / "pictures/one.jpg", "red", "blue")
    with pytest.raises(TrainError, match="folder of masks"):
        items(tmp_path / "pictures", datasets__0__mask_path=str(tmp_path / "masks"))


def test_what_is_masked_does_not_move_the_network(
    tiny: Path, circles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another target under the black half gives the same gradients; under the white half it does not."""
    for file in circles.glob("*.png"):
        picture(tmp_path / "masks" / file.name, "black", "white", Image.open(file).size)
    trained = trainer(tiny, circles, tmp_path, settings=written(datasets__0__mask_path=str(tmp_path / "masks")))
    latents: Any = trained.objective.latents
    real, predict = latents.get, trained.objective.predict
    originals = torch.stack([real(item) for item in trained.batches.batch(0)])
    monkeypatch.setattr(trained.objective, "predict", lambda clean, *rest: predict(originals, *rest))
    gradients = []
    for columns in (slice(0, 0), slice(0, 2), slice(6, 8)):  # of 8; the middle ones may be partly masked

        def changed(item: TrainingItem, columns: slice = columns) -> torch.Tensor:
            latent: torch.Tensor = real(item).clone()
            latent[:, :, columns] += 1.0
            return latent

        monkeypatch.setattr(latents, "get", changed)
        (loss,) = parts(trained, 0)
        gradients.append(torch.autograd.grad(loss, list(trained.parameters.values())))
    for plain, left in zip(gradients[0], gradients[1], strict=True):
        assert torch.equal(plain, left)
    assert any(not torch.equal(plain, right) for plain, right in zip(gradients[0], gradients[2], strict=True))


def test_outside_the_mask_the_model_is_held(tiny: Path, circles: Path, tmp_path: Path) -> None:
    """With inverted_mask_prior the loss grows with what the network changes outside the mask."""
    for file in circles.glob("*.png"):
        picture(tmp_path / "masks" / file.name, "black", "white", Image.open(file).size)
    settings = {"datasets__0__mask_path": str(tmp_path / "masks")}
    plain = trainer(tiny, circles, tmp_path, settings=written(**settings))
    held = trainer(tiny, circles, tmp_path, settings=written(**settings, train__inverted_mask_prior=True))
    assert next(parts(held, 0)).item() > next(parts(plain, 0)).item() + 1e-4
    for made_ in (plain, held):
        for parameter in made_.parameters.values():
            parameter.data.zero_()
    assert next(parts(held, 0)).item() == pytest.approx(next(parts(plain, 0)).item(), rel=1e-6)


def test_what_holds_the_model_weighs_as_much_for_every_picture(tiny: Path, circles: Path, tmp_path: Path) -> None:
    """ai-toolkit adds it after the weights of the noise and of the dataset."""
    for file in circles.glob("*.png"):
        picture(tmp_path / "masks" / file.name, "black", "white", Image.open(file).size)
    settings = {"datasets__0__mask_path": str(tmp_path / "masks"), "train__linear_timesteps": True}
    added = []
    for weight in (1.0, 0.125):
        losses = []
        for prior in (False, True):
            of_all = {**settings, "datasets__0__loss_multiplier": weight, "train__inverted_mask_prior": prior}
            losses.append(next(parts(trainer(tiny, circles, tmp_path, settings=written(**of_all)), 0)).item())
        added.append(losses[1] - losses[0])
    assert added[0] > 1e-4 and added[1] == pytest.approx(added[0], rel=1e-3)


def test_a_masked_run_from_end_to_end(tiny: Path, circles: Path, tmp_path: Path) -> None:
    for file in circles.glob("*.png"):
        picture(tmp_path / "masks" / file.name, "gray", "white", Image.open(file).size)
    settings = written(datasets__0__mask_path=str(tmp_path / "masks"), train__inverted_mask_prior=True)
    assert Path(go(run_with(settings=settings), tiny, circles, tmp_path / "out").lora).is_file()
