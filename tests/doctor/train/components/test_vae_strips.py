"""Large pictures go through the VAE in strips: the same numbers, less memory; and when the VAE is there at all."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from zdoctor.doctor.model.recipe import SamplePrompt
from zdoctor.doctor.train.components import text_encoder
from zdoctor.doctor.train.components import vae as vae_module
from zdoctor.doctor.train.components import vae_strips as strips
from zdoctor.doctor.train.components.pretrained import load_pretrained
from zdoctor.doctor.train.components.vae import VaeFiles
from zdoctor.doctor.train.components.vae_strips import in_strips
from zdoctor.doctor.train.dataset.images import DatasetImage
from zdoctor.doctor.train.dataset.training_items import TrainingItem
from zdoctor.doctor.train.encode.latents import encode_image
from zdoctor.doctor.train.sampling.sampler import decode_to_png

from ..patient import Recorder, go, run_with

CPU = torch.device("cpu")


def picture(folder: Path) -> Path:
    """256 x 192 pixels of colours that flow into one another."""
    y, x = torch.meshgrid(torch.linspace(0, 3, 192), torch.linspace(0, 4, 256), indexing="ij")
    waves = torch.stack([torch.sin(x * 2), torch.cos(y * 3), torch.sin(x * y)], dim=-1)
    file = folder / "picture.png"
    Image.fromarray(((waves + 1) * 127).to(torch.uint8).numpy()).save(file)
    return file


@pytest.mark.parametrize("strip", [300, 256 * 24, 1 << 17])
def test_encoder_and_decoder_give_the_same_but_for_rounding(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, strip: int
) -> None:
    monkeypatch.setattr(strips, "STRIP", strip)
    vae = VaeFiles(tiny / "vae", "AutoencoderKL").load(CPU).model
    pixels = torch.rand(1, 3, 192, 256, generator=torch.Generator().manual_seed(0)) * 2 - 1
    with torch.no_grad():
        whole = vae.encode(pixels).latent_dist.parameters
        back = vae.decode(whole[:, :16]).sample
        with in_strips(vae.encoder), in_strips(vae.decoder):
            torch.testing.assert_close(vae.encode(pixels).latent_dist.parameters, whole, rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(vae.decode(whole[:, :16]).sample, back, rtol=1e-4, atol=1e-4)
        assert torch.equal(vae.encode(pixels).latent_dist.parameters, whole)  # what was changed is put back


def test_only_large_pictures_are_cut(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vae = VaeFiles(tiny / "vae", "AutoencoderKL").load(CPU)
    item = TrainingItem(DatasetImage(picture(tmp_path), 256, 192, "0" * 64, ""), 256, 192, "", "", 0.0)
    whole = encode_image(vae, item, 0)
    decode_to_png(vae, whole[None], tmp_path / "whole.png")
    cut: list[int] = []
    real = strips._rows

    def watched(x: Tensor) -> list[tuple[int, int]]:
        cut.append(x.shape[-1])
        return real(x)

    monkeypatch.setattr(strips, "_rows", watched)
    encode_image(vae, item, 0)
    assert not cut
    monkeypatch.setattr(vae_module, "LARGE", 256 * 192 - 1)
    torch.testing.assert_close(encode_image(vae, item, 0), whole, rtol=1e-4, atol=1e-4)
    decode_to_png(vae, whole[None], tmp_path / "strips.png")
    assert len(cut) > 8
    one, two = (torch.tensor(list(Image.open(tmp_path / f"{n}.png").tobytes())).float() for n in ("whole", "strips"))
    assert (one - two).abs().max() <= 1


def test_the_peak_is_less_than_half(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes of all tensors that live at a time, of the pass alone. As large as what is cut:
    of a smaller picture a strip is so large a part that the half was missed by a thousandth."""
    monkeypatch.setattr(strips, "STRIP", 1 << 13)
    vae = VaeFiles(tiny / "vae", "AutoencoderKL").load(CPU).model
    pixels = torch.zeros(1, 3, 1024, 1024)
    with in_strips(vae.encoder):
        cut = peak(lambda: vae.encode(pixels))
    assert cut < 0.5 * peak(lambda: vae.encode(pixels))


def peak(work: Callable[[], Any]) -> int:
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as made, torch.no_grad():
        work()
    held = most = 0
    profiler: Any = made.profiler
    for event in profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            most = max(most, held)
    return most


def test_vae_and_text_encoder_are_gone_while_it_trains(
    tiny: Path, circles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: weakref.WeakSet[Any] = weakref.WeakSet()
    names: list[str] = []

    def watched(make: Any, *args: Any, **options: Any) -> Any:
        model = load_pretrained(make, *args, **options)
        loaded.add(model)
        names.append(make.__name__)
        return model

    for module in (vae_module, text_encoder):
        monkeypatch.setattr(module, "load_pretrained", watched)
    there: list[int] = []
    run = run_with(steps=2, sample_every=1, disable_sampling=False, samples=(SamplePrompt("a", 64, 64, 1, 1, 1.0),))
    recorder = Recorder(lambda _: there.append(len(loaded)))
    done = go(run, tiny, circles, tmp_path, progress=recorder, fresh=True)
    assert len(done.samples) == 3 and there == [0, 0]
    assert sorted(names) == ["AutoencoderKL"] * 4 + ["Qwen3Model"]
