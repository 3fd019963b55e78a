"""Architectures without a table of ours: the installed libraries say what they take, without data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from operator import methodcaller
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from zdoctor.checks.model.tensors import missing_checkpoint_tensors
from zdoctor.doctor.model import Component, ModelFolder, Unknown
from zdoctor.doctor.probe.components import read_component
from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.doctor.probe.skeletons import with_skeletons
from zdoctor.doctor.rules import Unestablished
from zdoctor.tests.changes import changed
from zdoctor.tests.hub_cases import run_with

diffusers: Any = import_module("diffusers")
transformers: Any = import_module("transformers")


def pixart() -> Any:
    return diffusers.PixArtTransformer2DModel(
        sample_size=4,
        num_layers=2,
        attention_head_dim=4,
        num_attention_heads=2,
        cross_attention_dim=8,
        caption_channels=8,
        norm_num_groups=2,
    )


def gemma() -> Any:
    sizes = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 2, "vocab_size": 32, "head_dim": 4}
    return transformers.Gemma2ForCausalLM(
        transformers.Gemma2Config(num_attention_heads=2, num_key_value_heads=1, **sizes)
    )


def tiny_vae() -> Any:
    channels = {"encoder_block_out_channels": (4, 4), "decoder_block_out_channels": (4, 4)}
    return diffusers.AutoencoderTiny(**channels, num_encoder_blocks=(1, 1), num_decoder_blocks=(1, 1))


def old_unet() -> Any:
    return diffusers.VQModel(block_out_channels=(32,), sample_size=8, norm_num_groups=32)


PARTS: dict[str, tuple[str, Callable[[], Any]]] = {
    "PixArt": ("transformer", pixart),
    "Gemma 2": ("text_encoder", gemma),
    "tiny VAE": ("vae", tiny_vae),
    "VQ model": ("vae", old_unet),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("parts")
    for name, (part, make) in PARTS.items():
        torch.manual_seed(0)
        make().save_pretrained(root / name / part)
    return {name: root / name for name in PARTS}


LOST = {
    "PixArt": "transformer_blocks.1.ff.net.0.proj.weight",
    "Gemma 2": "model.layers.1.mlp.gate_proj.weight",
    "VQ model": "decoder.mid_block.attentions.0.to_q.weight",
}
STRANGE: dict[str, tuple[dict[str, Any], str]] = {
    "invented": ({"_class_name": "NoSuchModel"}, "has no model NoSuchModel"),
    "no model": ({"_class_name": "DDIMScheduler"}, "has no model DDIMScheduler"),
    "quantized": (
        {"_class_name": "PixArtTransformer2DModel", "quantization_config": {"quant_method": "x"}},
        "stored quantized",
    ),
    "broken": ({"_class_name": "PixArtTransformer2DModel", "num_layers": "many"}, "Error"),
    "a module": ({"architectures": ["os"], "model_type": "x"}, "has no model os"),
}


def world() -> LiveWorld:
    return LiveWorld({}, cwd="/", home="/")


def read(name: str, part: Path) -> Component:
    return read_component(world(), name, str(part))


def older(tensors: dict[str, Any]) -> None:
    """The names that attention had in older files."""
    old = {"to_q": "query", "to_k": "key", "to_v": "value", "to_out.0": "proj_attn"}
    for name in list(tensors):
        new = name
        for now, then in old.items():
            new = new.replace(f"attentions.0.{now}.", f"attentions.0.{then}.")
        tensors[new] = tensors.pop(name)


@pytest.fixture(scope="module")
def asked(saved: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Component]:
    """Whole, sick, older and strange parts, after one process was asked about all of them."""
    folder = tmp_path_factory.mktemp("asked")
    parts = {f"whole {name}": read(f"{PARTS[name][0]}-{name}", root / PARTS[name][0]) for name, root in saved.items()}
    for name, lost in LOST.items():
        sick = copied(saved[name], folder / name, methodcaller("pop", lost))
        parts[f"sick {name}"] = read(PARTS[name][0], sick / PARTS[name][0])
    parts["older VQ model"] = read("vae", copied(saved["VQ model"], folder / "older", older) / "vae")
    for name, (config, _) in STRANGE.items():
        parts[name] = replace(parts["whole PixArt"], config=config, class_name=config.get("_class_name", "os"))
    return with_skeletons(world(), of(parts)).components


def of(parts: Mapping[str, Component]) -> ModelFolder:
    return ModelFolder("x", "diffusers", "x", parts)


def missing(model: ModelFolder) -> list[str]:
    findings = list(missing_checkpoint_tensors(changed(run_with(str(model.folder)), architecture="sd3"), model))
    return [name for finding in findings for name in finding.evidence["names"]]


def copied(folder: Path, target: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """The folder with other tensors in its weight file."""
    for file in folder.rglob("*.json"):
        place = target / file.relative_to(folder)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(file.read_bytes())
    (weights,) = folder.rglob("*.safetensors")
    tensors = load_file(weights)
    change(tensors)
    save_file(tensors, target / weights.relative_to(folder), {"format": "pt"})
    return target


def test_no_table_no_verdict(saved: dict[str, Path]) -> None:
    """Without asking, the rule is unknown: never passed."""
    with pytest.raises(Unestablished, match=r"zdoctor check --deep"):
        missing(of({"transformer": read("transformer", saved["PixArt"] / "transformer")}))


@pytest.mark.parametrize("name", PARTS)
def test_whole_parts_are_passed(asked: Mapping[str, Component], name: str) -> None:
    """A tied output head is not in the file and is not missed."""
    part = asked[f"whole {name}"]
    assert part.needed and missing(of({"part": part})) == []


@pytest.mark.parametrize(("name", "lost"), LOST.items())
def test_missing_tensors_are_named(
    saved: dict[str, Path], asked: Mapping[str, Component], name: str, lost: str
) -> None:
    sick = asked[f"sick {name}"]
    assert missing(of({"part": sick})) == [lost]
    # the loader itself says nothing that stops a run
    loaded = type(PARTS[name][1]()).from_pretrained(sick.folder)
    left = [key for key, value in loaded.named_parameters() if value.is_meta]
    assert left == ([] if name == "Gemma 2" else [lost])  # transformers fills it with random numbers


def test_names_of_older_files_are_understood(asked: Mapping[str, Component]) -> None:
    part = asked["older VQ model"]
    assert any("proj_attn" in name for name in part.tensors)
    assert part.needed and missing(of({"part": part})) == []


@pytest.mark.parametrize("name", STRANGE)
def test_what_cannot_be_built_stays_unknown(asked: Mapping[str, Component], name: str) -> None:
    """And does not spoil the answers for the parts beside it."""
    assert asked[name].needed is None and STRANGE[name][1] in asked[name].needed_reason
    assert asked["whole PixArt"].needed == {n: tensor.shape for n, tensor in asked["whole PixArt"].tensors.items()}


def test_libraries_that_do_not_answer(saved: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment whose torch is broken makes the part unknown, with the last line of the error."""
    part = read("transformer", saved["PixArt"] / "transformer")
    monkeypatch.setenv("PYTHONPATH", str(saved["PixArt"]))
    (saved["PixArt"] / "diffusers.py").write_text("raise ImportError('libcudart.so.12: cannot open')")
    (answer,) = world().skeletons({"transformer": part}).values()
    (saved["PixArt"] / "diffusers.py").unlink()
    assert isinstance(answer, Unknown) and "libcudart" in answer.reason


def test_child_that_is_killed(saved: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    part = read("transformer", saved["PixArt"] / "transformer")
    monkeypatch.setattr("zdoctor.doctor.probe.skeletons.sys.executable", "/bin/false")
    (answer,) = world().skeletons({"transformer": part}).values()
    assert isinstance(answer, Unknown) and "exit code 1" in answer.reason
