"""What must be so of every family alike: its LoRA in diffusers, its quantized and checkpointed steps, its way on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import diffusers
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn

from zdoctor.doctor.families import families, family_of, in_diffusers
from zdoctor.doctor.families.record import Family
from zdoctor.doctor.train.families import module_of
from zdoctor.doctor.train.network.lora import add_network, lora_targets, trainable_parameters
from zdoctor.doctor.train.transformer.load_transformer import build_empty_transformer, fill_transformer

from . import parts
from .patient import DATASET, go, run_with


class Tiny(NamedTuple):
    """A tiny model: its fixture, its record, diffusers' pipeline, and how many control images a picture has."""

    fixture: str
    architecture: str
    pipeline: str
    controls: int = 0


FAMILIES = {
    "Chroma": Tiny("chroma", "chroma in diffusers", "ChromaPipeline"),
    "FLUX.2 dev": Tiny("flux2_dev", "flux2 in diffusers", "Flux2Pipeline"),
    "FLUX.2 Klein": Tiny("flux2", "flux2_klein_4b in diffusers", "Flux2KleinPipeline"),
    "Qwen-Image": Tiny("qwen_image", "qwen_image", "QwenImagePipeline"),
    "Qwen-Image-Edit": Tiny("qwen_image_edit", "qwen_image_edit", "QwenImageEditPipeline", 1),
    "Qwen-Image-Edit-Plus": Tiny("qwen_image_edit", "qwen_image_edit_plus", "QwenImageEditPlusPipeline", 2),
}
Trained = Callable[..., Any]


# Whose steps take the longest, and are those of others.
THOROUGH = ("FLUX.2 dev", "Qwen-Image", "Qwen-Image-Edit", "Qwen-Image-Edit-Plus")


def each_family(*seldom: str) -> list[Any]:
    marks = {name: [pytest.mark.thorough] if name in (*THOROUGH, *seldom) else [] for name in FAMILIES}
    return [pytest.param(tiny, id=name, marks=marks[name]) for name, tiny in FAMILIES.items()]


# What each does by the same code.
OF_ONE = pytest.mark.parametrize("tiny_one", each_family("Chroma"), indirect=True)


@pytest.fixture(params=each_family())
def tiny_one(request: pytest.FixtureRequest) -> Tiny:
    found: Tiny = request.param
    return found


@pytest.fixture
def model(tiny_one: Tiny, request: pytest.FixtureRequest) -> Path:
    folder: Path = request.getfixturevalue(tiny_one.fixture)
    return folder


@pytest.fixture
def trained(tiny_one: Tiny, model: Path, circles: Path, tmp_path: Path) -> Trained:
    """Trains into a folder of this name."""
    dataset = replace(DATASET, control_folders=(str(circles),) * tiny_one.controls)
    own = {"architecture": tiny_one.architecture, "datasets": (dataset,), "controls_match": True}

    def train(name: str, **changes: Any) -> Any:
        return go(run_with(**own, **changes), model, circles, tmp_path / name)

    return train


@OF_ONE
def test_checkpointed_and_quantized_it_learns_alike(trained: Trained) -> None:
    plain = trained("plain", steps=3, quantization=None, gradient_checkpointing=False).losses
    again = trained("again", steps=3, quantization=None, gradient_checkpointing=True).losses
    assert again == pytest.approx(plain, rel=1e-5)
    for kind in ("int8", "float8", "uint4"):
        assert trained(kind, steps=3, quantization=kind).losses == pytest.approx(plain, rel=0.05)


@OF_ONE
def test_it_goes_on_bit_for_bit(trained: Trained) -> None:
    straight = trained("straight", steps=4)
    trained("halted", steps=2)
    one, other = load_file(straight.lora), load_file(trained("halted", steps=4).lora)
    assert all(torch.equal(one[name], other[name]) for name in one)


def loaded(folder: Path, place: Path) -> Any:
    """The transformer of a folder, with what lies in it or elsewhere."""
    made = build_empty_transformer(folder)
    cpu = torch.device("cpu")
    fill_transformer(made, place, quantization="none", adapter={}, dtype=torch.float32, device=cpu)
    return made


def test_diffusers_applies_the_lora_with_the_scale_it_was_trained_with(
    tiny_one: Tiny, trained: Trained, model: Path
) -> None:
    record = family_of(tiny_one.architecture)
    lora = trained("out", steps=2, quantization=None, learning_rate=0.1).lora
    with safe_open(lora, framework="pt") as file:
        assert file.metadata()["ss_base_model_version"] == record.base_version
    tensors, ours = load_file(lora), loaded(*[model / "transformer"] * 2)
    network = add_network(ours, lora_targets(ours), run_with().recipe.network, 0)
    for key, parameter in trainable_parameters(network, record.lora_prefix).items():
        parameter.data.copy_(tensors.pop(key))
    assert not tensors

    def answer(model: nn.Module) -> torch.Tensor:
        torch.manual_seed(0)
        width: Any = model.config
        texts = [{"states": torch.randn(5, width.joint_attention_dim)}]
        with torch.no_grad():
            return module_of(record).predict(model, torch.randn(1, 4, 8, 6), torch.tensor([0.4]), texts, 3.0)

    theirs = loaded(*[model / "transformer"] * 2)
    before = answer(theirs)
    make: Any = getattr(diffusers, tiny_one.pipeline)
    pipe = make(**{**dict.fromkeys(make._get_signature_types()), "transformer": theirs})
    pipe.load_lora_weights(str(lora))
    assert (answer(theirs) - before).abs().max() > 1e-3
    torch.testing.assert_close(answer(theirs), answer(ours), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["Chroma", "FLUX.2 Klein"])
def test_its_authors_own_file_is_the_same_model(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """What is fused there are rows one after the other, and halves of the last modulation may change places."""
    folder = request.getfixturevalue(FAMILIES[name].fixture) / "transformer"
    held = parts.transformer_tensors(folder, family_of(FAMILIES[name].architecture).class_name)
    single = parts.write(tmp_path / "single.safetensors", held)
    assert parts.same(loaded(folder, single), loaded(folder, folder))


@pytest.mark.parametrize("record", [one for one in families() if one.own is not None], ids=lambda one: one.name)
def test_the_record_says_whether_the_text_encoder_is_opened_without_its_head(record: Family) -> None:
    of_family = module_of(in_diffusers(record))
    opened, (published, _) = of_family.TEXT_PARTS["text_encoder"], of_family.RECORD.published["text_encoder"]
    is_headless = "For" in published and "For" not in opened
    assert record.memory is not None and record.memory.headless == is_headless
