"""Whatever is done to the files, a finding is there exactly when the real loader does not get the whole model."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some
from safetensors.torch import load_file, save_file
from transformers import CLIPTextModel, T5EncoderModel

from zdoctor.tests.flux import FluxTransformer2DModel, healthy_flux
from zdoctor.tests.models import healthy

from .folders import findings
from .test_single_file import comfy_tensors, diffusers_tensors, load

Tensors = dict[str, Any]
Change = Callable[[Tensors, str], Tensors]


def drop(tensors: Tensors, name: str) -> Tensors:
    return {n: v for n, v in tensors.items() if n != name}


def rename(tensors: Tensors, name: str) -> Tensors:
    return {f"x.{n}" if n == name else n: v for n, v in tensors.items()}


def prefix(tensors: Tensors, name: str) -> Tensors:
    return {f"model.diffusion_model.{n}" if n == name else n: v for n, v in tensors.items()}


def cut(tensors: Tensors, name: str) -> Tensors:
    return {n: v[:1].clone() if n == name else v for n, v in tensors.items()}


def narrow(tensors: Tensors, name: str) -> Tensors:
    return {n: v.to(torch.bfloat16) if n == name else v for n, v in tensors.items()}


def leave(tensors: Tensors, name: str) -> Tensors:
    return tensors


CHANGES: list[Change] = [drop, rename, prefix, cut, narrow, leave]


def changed(tensors: Tensors, changes: list[tuple[Change, int]]) -> Tensors:
    for change, at in changes:
        tensors = change(tensors, sorted(tensors)[at % len(tensors)])
    return tensors


def split(tensors: Tensors, block: int) -> Tensors:
    """One block's q, k and v under diffusers' names."""
    name = f"layers.{block}.attention"
    return drop(tensors, f"{name}.qkv.weight") | {
        f"{name}.to_{part}.weight": diffusers_tensors()[f"{name}.to_{part}.weight"] for part in "qkv"
    }


plans = some.lists(some.tuples(some.sampled_from(CHANGES), some.integers(0, 10**6)), max_size=3)


@settings(max_examples=25, deadline=None)
@given(plans, some.sets(some.integers(0, 1), max_size=2))
def test_single_files(plan: list[tuple[Change, int]], blocks: set[int]) -> None:
    tensors = comfy_tensors()
    for block in blocks:
        tensors = split(tensors, block)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.safetensors"
        save_file(changed(tensors, plan), file)
        seen = findings(file, extras_name_or_path=str(healthy()))
        try:
            load(file)
        except (RuntimeError, ValueError):  # the other is of a fused tensor that does not come apart in three
            assert seen
        else:
            assert seen == {}


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=25, deadline=None)
@given(plans)
def test_flux_folders(plan: list[tuple[Change, int]]) -> None:
    with tempfile.TemporaryDirectory() as place, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folder = Path(place)
        for part in healthy_flux().iterdir():
            if part.name != "transformer":
                (folder / part.name).symlink_to(part)
        (folder / "transformer").mkdir()
        (folder / "transformer" / "config.json").symlink_to(healthy_flux() / "transformer" / "config.json")
        tensors: Tensors = {}
        for shard in (healthy_flux() / "transformer").glob("*.safetensors"):
            tensors |= load_file(shard)
        save_file(changed(tensors, plan), folder / "transformer" / "diffusion_pytorch_model.safetensors")
        seen = findings(folder, "flux")
        try:
            model = FluxTransformer2DModel.from_pretrained(folder / "transformer", torch_dtype=torch.bfloat16)
            whole = not any(parameter.is_meta for parameter in model.parameters())
        except (ValueError, RuntimeError):
            whole = False
        assert bool(seen) != whole, seen


@pytest.mark.parametrize(("part", "loader"), [("text_encoder", CLIPTextModel), ("text_encoder_2", T5EncoderModel)])
def test_text_encoders(part: str, loader: Any) -> None:
    """These fill what is missing with random numbers: whole are those that hold the numbers of the file."""
    numbers = {n: torch.randn(v.shape) for n, v in load_file(healthy_flux() / part / "model.safetensors").items()}
    right = {name.replace("shared.", "encoder.embed_tokens."): value for name, value in numbers.items()} | numbers

    @settings(max_examples=25, deadline=None)
    @given(plans, some.sampled_from(["", "text_model." if part == "text_encoder" else "transformer."]))
    def holds(plan: list[tuple[Change, int]], prefix: str) -> None:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            for other in healthy_flux().iterdir():
                if other.name != part:
                    (folder / other.name).symlink_to(other)
            (folder / part).mkdir()
            (folder / part / "config.json").symlink_to(healthy_flux() / part / "config.json")
            tensors = changed({prefix + name: value for name, value in numbers.items()}, plan)
            save_file(tensors, folder / part / "model.safetensors", metadata={"format": "pt"})
            seen = findings(folder, "flux")
            try:
                made = loader.from_pretrained(folder / part, dtype=torch.bfloat16).state_dict()
                whole = all(torch.equal(value, right[name].bfloat16()) for name, value in made.items())
            except (ValueError, RuntimeError):
                whole = False
            assert bool(seen) != whole, seen

    holds()
