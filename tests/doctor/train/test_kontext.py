"""Kontext learns from pairs: the control image is cut as its picture, encoded once, and seen beside the noise."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers.pipelines.flux.pipeline_flux_kontext import FluxKontextPipeline
from PIL import Image
from safetensors import safe_open

from zdoctor.doctor.model.recipe import SamplePrompt
from zdoctor.doctor.progress import Progress
from zdoctor.doctor.train import TrainError, refuse
from zdoctor.doctor.train.components.vae import VaeFiles
from zdoctor.doctor.train.dataset.batch_sampler import epoch_batches
from zdoctor.doctor.train.dataset.images import DatasetImage
from zdoctor.doctor.train.dataset.pixels import load_pixels
from zdoctor.doctor.train.dataset.training_items import TrainingItem, read_training_items
from zdoctor.doctor.train.encode.encoding_cache import EncodingCache
from zdoctor.doctor.train.encode.latents import Latents
from zdoctor.doctor.train.encode.text_embeddings import TextEmbeddings
from zdoctor.doctor.train.families import flux as family
from zdoctor.doctor.train.families import packed, scheduler_of
from zdoctor.doctor.train.sampling.preview_samples import edited_samples
from zdoctor.doctor.train.sampling.sampler import denoise
from zdoctor.doctor.train.settings.explain import explain
from zdoctor.tests.changes import changed

from .patient import DATASET, Recorder, go, run_with, written

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def pairs(circles: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A control image for each of the circles, of other sizes and formats."""
    folder = tmp_path_factory.mktemp("pairs")
    for number in range(6):
        picture = Image.open(circles / f"{number}.png").convert("L").resize((100 + number, 90))
        picture.convert("RGB").save(folder / f"{number}.{'jpg' if number % 2 else 'png'}")
    return folder


def kontext(*folders: Path, **changes: Any) -> Any:
    dataset = replace(DATASET, control_folders=tuple(map(str, folders)), flip_x=True)
    return run_with(architecture="flux_kontext", datasets=(dataset,), **changes)


def test_previews_are_those_of_the_pipeline(flux: Path, pairs: Path, tmp_path: Path) -> None:
    prompt = SamplePrompt("a b ab", 48, 64, 3, 3, 3.5, control=str(pairs / "0.png"))
    run = run_with(architecture="flux_kontext", disable_sampling=False, samples=(prompt,))
    (sample,) = edited_samples(run.recipe, 16)
    assert sample is not None
    (edited,) = sample.controls
    latents = Latents(EncodingCache(tmp_path), VaeFiles(flux / "vae", "AutoencoderKL"))
    latents.prepare([edited], CPU, Progress())
    texts = TextEmbeddings(
        EncodingCache(tmp_path), family, {name: flux / name for name in family.TEXT_PARTS}, torch.float32
    )
    texts.prepare([prompt.prompt], CPU, Progress())
    text = texts.get(prompt.prompt)
    pipe: Any = FluxKontextPipeline.from_pretrained(str(flux))
    pipe.set_progress_bar_config(disable=True)
    ours = denoise(
        pipe.transformer,
        scheduler_of(family.RECORD, flux, pipe.transformer),
        prompt,
        text,
        text,
        shrink=8,
        dtype=torch.float32,
        device=CPU,
        controls=[latents.get(edited).unsqueeze(0)],
    )
    assert ours is not None
    noise = torch.randn((1, 4, 8, 6), generator=torch.Generator().manual_seed(3))
    theirs = pipe(
        image=load_pixels(edited),
        prompt=prompt.prompt,
        height=64,
        width=48,
        max_area=64 * 48,
        _auto_resize=False,
        num_inference_steps=3,
        guidance_scale=3.5,
        latents=packed(noise),
        output_type="latent",
    ).images
    torch.testing.assert_close(packed(ours), theirs, rtol=1e-4, atol=1e-4)
    plain = changed(run, validation={"prompts": (replace(prompt, control=None),)})
    assert edited_samples(plain.recipe, 16) == edited_samples(changed(run, architecture="flux").recipe, 16) == [None]


def test_a_run_on_pairs(flux: Path, circles: Path, pairs: Path, tmp_path: Path) -> None:
    prompt = SamplePrompt("a b", 64, 64, 3, 2, 3.0, control=str(pairs / "1.jpg"))
    run = kontext(pairs, steps=3, disable_sampling=False, samples=(prompt,), skip_first_sample=True, batch_size=2)
    result = go(run, flux, circles, tmp_path / "a", fresh=True)
    assert len(result.samples) == 1
    with safe_open(result.lora, framework="pt") as file:
        assert file.metadata()["ss_base_model_version"] == "flux.1_kontext"
    assert len(list((tmp_path / "a" / ".cache").glob("latent-*"))) == 2 * 12 + 1
    alone = go(kontext(steps=3, batch_size=2), flux, circles, tmp_path / "b")
    assert result.losses != alone.losses  # the same noise and captions: the model saw the control images


def test_a_picture_without_its_control_image_is_named_before_anything_is_loaded(
    flux: Path, circles: Path, pairs: Path, tmp_path: Path
) -> None:
    some = Path(shutil.copytree(pairs, tmp_path / "some"))
    (some / "3.jpg").unlink()
    recorder = Recorder()
    with pytest.raises(TrainError, match=r"1 of 6 pictures have no control image .*3\.png"):
        go(kontext(some), flux, circles, tmp_path / "out", progress=recorder)
    assert not any("Loading" in phase for phase in recorder.phases)
    (some / "3.jpg").write_bytes(b"half")
    with pytest.raises(TrainError, match=r"1 of 6 control images .*3\.jpg"):
        read_training_items(kontext(some).recipe, {"datasets/0": str(circles)}, 16)
    told: list[str] = []
    items = read_training_items(kontext(some).recipe, {"datasets/0": str(circles)}, 16, skip=told.append)
    assert len(items) == 2 * 5 and "3.jpg" in told[0]
    with pytest.raises(TrainError, match=r"control image .*gone\.png of the sample 'x'"):
        sample = SamplePrompt("x", 64, 64, 0, 1, 1.0, control=str(tmp_path / "gone.png"))
        edited_samples(kontext(disable_sampling=False, samples=(sample,)).recipe, 16)


def test_a_control_image_is_cut_as_its_picture_and_transparency_is_black(tmp_path: Path) -> None:
    file = tmp_path / "a.png"
    image = Image.new("RGBA", (40, 40), (255, 255, 255, 0))
    image.paste((255, 0, 0, 255), (0, 0, 20, 40))
    image.save(file)
    control = DatasetImage(file, 160, 80, "digest", "", is_control=True)
    item = TrainingItem(
        DatasetImage(tmp_path / "b.png", 160, 80, "d", "", controls=(control,)), 80, 64, "", "", 0.0, flip_x=True
    )
    (edited,) = item.controls
    pixels = load_pixels(edited)
    assert pixels.size == (80, 64)
    assert [pixels.getpixel((x, 32)) for x in (5, 75)] == [(0, 0, 0), (255, 0, 0)]  # mirrored


def test_batches_hold_pairs_or_pictures(tmp_path: Path) -> None:
    control = DatasetImage(tmp_path / "a.png", 64, 64, "c", "", is_control=True)
    items = [
        TrainingItem(
            DatasetImage(tmp_path / f"{n}.png", 64, 64, str(n), "", (control,) if n < 3 else ()), 64, 64, "", "", 0.0
        )
        for n in range(8)
    ]
    for batch in epoch_batches(items, 2, 0, 0):
        assert len({len(items[place].controls) for place in batch}) == 1


@pytest.mark.parametrize(
    ("words", "changes"),
    [
        ("Several control images", {"folders": ("/a", "/b")}),
        ("full_size_control_images false", {"settings": written(datasets__0__full_size_control_images=False)}),
        ("control_transparent_color", {"settings": written(datasets__0__control_transparent_color=[255, 0, 0])}),
    ],
)
def test_refused_by_name(words: str, changes: dict[str, Any]) -> None:
    assert any(words in reason for reason in refuse(kontext(*changes.pop("folders", ()), **changes)))


def test_what_it_can_do_is_not_refused() -> None:
    settings = written(datasets__0__control_path="/a", datasets__0__control_transparent_color=[0, 0, 0])
    assert refuse(kontext(Path("/a"), settings=settings)) == []
    assert refuse(run_with(architecture="flux", settings=settings))


def test_where_its_noise_levels_differ_from_ai_toolkits_is_said() -> None:
    assert any("four times as many" in note for note in explain(kontext(timestep_type="shift")))
    for run in (kontext(timestep_type="weighted"), run_with(architecture="flux", timestep_type="shift")):
        assert not any("four times as many" in note for note in explain(run))
