"""Embeddings and latents are those of the real pipeline, are made once, and never come from random weights."""

from __future__ import annotations

import shutil
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers.pipelines.z_image.pipeline_z_image import ZImagePipeline
from safetensors.torch import load_file, save_file
from transformers.models.qwen3.modeling_qwen3 import Qwen3Model

from zdoctor.doctor.progress import Progress
from zdoctor.doctor.train import TrainError
from zdoctor.doctor.train.components import text_encoder
from zdoctor.doctor.train.components import vae as vae_module
from zdoctor.doctor.train.components.component_files import component_folder
from zdoctor.doctor.train.components.vae import VaeFiles
from zdoctor.doctor.train.dataset.images import DatasetImage
from zdoctor.doctor.train.dataset.training_items import TrainingItem, read_training_items
from zdoctor.doctor.train.encode.encoding_cache import EncodingCache
from zdoctor.doctor.train.encode.latents import Latents
from zdoctor.doctor.train.encode.text_embeddings import TextEmbeddings
from zdoctor.doctor.train.families import zimage
from zdoctor.doctor.train.runtime.atomic_files import write_atomic

from ..patient import Recorder, go, run_with

CPU = torch.device("cpu")
PROMPTS = ("a red circle", "", "a painting of a blue square beside the green sea, no text")


def texts(model: Path, cache: Path) -> TextEmbeddings:
    folders = {name: model / name for name in zimage.TEXT_PARTS}
    return TextEmbeddings(EncodingCache(cache), zimage, folders, torch.float32)


silence = Progress()


def test_embeddings_are_those_of_the_pipeline(tiny: Path, tmp_path: Path) -> None:
    ours = texts(tiny, tmp_path)
    assert ours.prepare(PROMPTS, CPU, silence) == 3
    pipe = ZImagePipeline.from_pretrained(str(tiny))
    for prompt in PROMPTS:
        theirs, _ = pipe.encode_prompt(prompt, do_classifier_free_guidance=False)
        states = ours.get(prompt)["states"]
        assert states.shape == theirs[0].shape
        torch.testing.assert_close(states, theirs[0], rtol=1e-4, atol=1e-4)


def test_what_is_cached_needs_no_text_encoder(tiny: Path, tmp_path: Path) -> None:
    told = Recorder()
    texts(tiny, tmp_path).prepare(PROMPTS, CPU, silence)
    assert texts(tiny, tmp_path).prepare(PROMPTS, CPU, told) == 0
    assert told.phases == []
    damaged = next(tmp_path.glob("text-*"))
    damaged.write_bytes(b"half")
    assert texts(tiny, tmp_path).prepare(PROMPTS, CPU, told) == 1


def test_another_text_encoder_is_not_answered_from_the_cache(tiny: Path, tmp_path: Path) -> None:
    model = Path(shutil.copytree(tiny, tmp_path / "model"))
    texts(model, tmp_path / "cache").prepare(PROMPTS, CPU, silence)
    weights = model / "text_encoder" / "model.safetensors"
    tensors = load_file(str(weights))
    save_file({key: value * 2 for key, value in tensors.items()}, str(weights), metadata={"format": "pt"})
    assert texts(model, tmp_path / "cache").prepare(PROMPTS, CPU, silence) == 3


def test_a_text_encoder_without_all_its_tensors_is_refused_although_transformers_loads_it(
    tiny: Path, tmp_path: Path
) -> None:
    model = Path(shutil.copytree(tiny, tmp_path / "model"))
    weights = model / "text_encoder" / "model.safetensors"
    tensors = load_file(str(weights))
    gone = "model.layers.1.mlp.down_proj.weight"
    save_file({k: v for k, v in tensors.items() if k != gone}, str(weights), metadata={"format": "pt"})
    Qwen3Model.from_pretrained(str(weights.parent))  # random numbers in its place, no error
    with pytest.raises(TrainError, match=r"text encoder .* layers\.1\.mlp\.down_proj\.weight"):
        texts(model, tmp_path / "cache").prepare(PROMPTS, CPU, silence)


def test_latents_are_the_vae_of_the_pipeline(tiny: Path, circles: Path, tmp_path: Path) -> None:
    items = read_training_items(
        run_with().recipe, {"datasets/0": str(circles)}, 2 * VaeFiles(tiny / "vae", "AutoencoderKL").shrink
    )
    ours = Latents(EncodingCache(tmp_path), VaeFiles(tiny / "vae", "AutoencoderKL"))
    middles = Latents(EncodingCache(tmp_path), VaeFiles(tiny / "vae", "AutoencoderKL"), middle=True)
    assert (ours.prepare(items, CPU, silence), middles.prepare(items, CPU, silence)) == (6, 6)
    pipe = ZImagePipeline.from_pretrained(str(tiny))
    from zdoctor.doctor.train.dataset.pixels import load_pixels

    for item in items:
        pixels = pipe.image_processor.preprocess(load_pixels(item))
        with torch.no_grad():
            mean = pipe.vae.encode(pixels).latent_dist.mean[0]
        theirs = (mean - pipe.vae.config.shift_factor) * pipe.vae.config.scaling_factor
        assert ours.get(item).shape == (16, item.height // 8, item.width // 8)
        # The posterior of the tiny VAE is as narrow as a trained one's: one sample lies close to the mean.
        assert (ours.get(item) - theirs).abs().max() < 0.05
        torch.testing.assert_close(middles.get(item), theirs)


def test_a_picture_changed_in_place_gets_a_new_latent(tiny: Path, circles: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(circles, tmp_path / "images"))
    latents = Latents(EncodingCache(tmp_path / "cache"), VaeFiles(tiny / "vae", "AutoencoderKL"))

    def items() -> list[TrainingItem]:
        return read_training_items(run_with().recipe, {"datasets/0": str(folder)}, 16)

    latents.prepare(items(), CPU, silence)
    shutil.copy(folder / "0.png", folder / "1.png")
    assert latents.prepare(items(), CPU, silence) == 0  # the same content is known already
    (folder / "1.png").write_bytes((folder / "0.png").read_bytes() + b"trailing")
    assert latents.prepare(items(), CPU, silence) == 1


@pytest.mark.parametrize("gone", [False, True])
def test_a_picture_that_changes_while_others_are_encoded_is_not_cached_as_what_it_was(
    tiny: Path, circles: Path, tmp_path: Path, gone: bool
) -> None:
    folder = Path(shutil.copytree(circles, tmp_path / "images"))
    latents = Latents(EncodingCache(tmp_path / "cache"), VaeFiles(tiny / "vae", "AutoencoderKL"))
    items = read_training_items(run_with().recipe, {"datasets/0": str(folder)}, 16)
    shutil.copy(folder / "0.png", folder / "3.png")
    if gone:
        (folder / "3.png").unlink()
    with pytest.raises(TrainError, match=r"3\.png"):
        latents.prepare(items, CPU, silence)
    assert [latents.cache.has(latents.key(item)) for item in items[:4]] == [True, True, True, False]


def test_keys_differ_by_crop_and_flip(tiny: Path, tmp_path: Path) -> None:
    latents = Latents(EncodingCache(tmp_path), VaeFiles(tiny / "vae", "AutoencoderKL"))
    picture = DatasetImage(tmp_path / "x.png", 64, 64, "digest", "")
    items = [
        TrainingItem(picture, 64, 64, "", "", 0.0),
        TrainingItem(picture, 48, 64, "", "", 0.0),
        TrainingItem(picture, 64, 64, "", "", 0.0, flip_x=True),
        TrainingItem(picture, 64, 64, "", "", 0.0, flip_y=True),
        TrainingItem(picture, 64, 64, "", "", 0.0, place=(0.5, 0.5)),
        TrainingItem(picture, 64, 64, "", "", 0.0, place=(0.5, 0.25)),
        TrainingItem(picture, 64, 64, "", "", 0.0, scaled=(70, 64)),
        TrainingItem(picture, 64, 64, "", "", 0.0, resampling="area"),
        TrainingItem(picture, 64, 64, "", "", 0.0, resampling="linear"),
        TrainingItem(picture, 64, 64, "", "", 0.0, cut_first=True, flip_x=True),
    ]
    assert len({latents.key(item) for item in items}) == len(items)


def test_components_come_from_the_extras_folder_first(tiny: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    shutil.copytree(tiny / "transformer", bare / "transformer")
    assert component_folder("vae", bare, tiny) == tiny / "vae"
    other = shutil.copytree(tiny / "vae", tmp_path / "other" / "vae")
    assert component_folder("vae", tiny, tmp_path / "other") == other  # what was checked is what is trained on
    assert component_folder("tokenizer", tiny, tmp_path / "other") == tiny / "tokenizer"
    with pytest.raises(TrainError, match="no vae folder"):
        component_folder("vae", bare, None)


def test_a_write_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(TrainError, match="cannot be written"):
        write_atomic(tmp_path / "taken", b"content")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_text_encoder_and_vae_are_gone_before_the_transformer_comes(
    tiny: Path, circles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[weakref.ref[Any]] = []
    for module in (vae_module, text_encoder):
        real = module.load_pretrained

        def load(*words: Any, real: Any = real, **options: Any) -> Any:
            model = real(*words, **options)
            seen.append(weakref.ref(model))
            return model

        monkeypatch.setattr(module, "load_pretrained", load)

    class Watch(Recorder):
        alive: int | None = None

        def phase(self, text: str) -> None:
            if "transformer" in text:
                self.alive = sum(model() is not None for model in seen)

    watch = Watch()
    go(run_with(steps=1), tiny, circles, tmp_path, progress=watch, fresh=True)
    assert (len(seen), watch.alive) == (2, 0)
