"""Single files as ai-toolkit's Z-Image loader takes them: strictly, by name, without stripping a prefix."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers.models.transformers import transformer_z_image
from safetensors.torch import load_file, save_file

from zdoctor.checks.model.contents import contents
from zdoctor.checks.model.tensors import missing_checkpoint_tensors
from zdoctor.doctor.demo.tiny import build_tiny_adapter
from zdoctor.doctor.families.flux.tensors import flux_original_name
from zdoctor.doctor.families.record.single_file import original_layout
from zdoctor.doctor.families.tensors import needed_tensors
from zdoctor.doctor.families.zimage.tensors import zimage_original_name
from zdoctor.doctor.memory.sizes import Sizes, sizes_of
from zdoctor.doctor.rules import Unestablished
from zdoctor.tests.flux import DEV, healthy_flux
from zdoctor.tests.models import healthy, probed, rewrite, run_of

from .folders import findings

ZImageTransformer2DModel: Any = transformer_z_image.ZImageTransformer2DModel
FUSED = "layers.1.attention.qkv.weight"
PREFIX = "model.diffusion_model."
Tensors = dict[str, Any]


def diffusers_tensors() -> Tensors:
    return {n: v for f in (healthy() / "transformer").glob("*.safetensors") for n, v in load_file(f).items()}


def comfy_tensors() -> Tensors:
    """The healthy transformer under ComfyUI's names."""
    made: Tensors = {}
    for name, value in diffusers_tensors().items():
        if ".to_q." in name:
            parts = [diffusers_tensors()[name.replace(".to_q.", f".to_{part}.")] for part in "qkv"]
            made[name.replace(".to_q.", ".qkv.")] = torch.cat(parts)
        elif ".to_k." not in name and ".to_v." not in name:
            for ours, theirs in (("to_out.0", "out"), ("norm_q", "q_norm"), ("norm_k", "k_norm")):
                name = name.replace(f"attention.{ours}.", f"attention.{theirs}.")
            made[name.replace("all_x_embedder.2-1", "x_embedder").replace("all_final_layer.2-1", "final_layer")] = (
                value
            )
    return made


def load(file: Path) -> Any:
    """An empty module from the config, names converted one by one, a strict load, a move."""
    held: Tensors = {}
    for name, value in load_file(file).items():
        if name.endswith(".attention.qkv.weight"):
            held |= {name.replace(".qkv.", f".to_{p}."): part for p, part in zip("qkv", value.chunk(3), strict=True)}
            continue
        for theirs, ours in (("out", "to_out.0"), ("q_norm", "norm_q"), ("k_norm", "norm_k")):
            name = name.replace(f".attention.{theirs}.", f".attention.{ours}.")
        for short in ("x_embedder.", "final_layer."):
            name = f"all_{short}2-1.{name[len(short) :]}" if name.startswith(short) else name
        held[name] = value.to(torch.bfloat16)
    with torch.device("meta"):
        model = ZImageTransformer2DModel.from_config(ZImageTransformer2DModel.load_config(healthy() / "transformer"))
    model.load_state_dict(held, assign=True)
    return model.to("cpu")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "z_image.safetensors"
    save_file(comfy_tensors(), path, metadata={"format": "pt"})
    return path


def said(file: Path | str) -> dict[str, list[Any]]:
    return findings(file, extras_name_or_path=str(healthy()))


def test_the_file_is_what_diffusers_takes_for_a_single_file(file: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = ZImageTransformer2DModel.from_single_file(str(file), config=str(healthy() / "transformer"))
    right = diffusers_tensors()
    assert all(torch.equal(value, right[name]) for name, value in made.state_dict().items())
    needed = needed_tensors("ZImageTransformer2DModel", made.config) or {}
    assert original_layout(zimage_original_name, needed) == {n: tuple(v.shape) for n, v in load_file(file).items()}


def untouched(tensors: Tensors) -> Tensors:
    return tensors


def diffusers_names(tensors: Tensors) -> Tensors:
    return diffusers_tensors()


def names_mixed(tensors: Tensors) -> Tensors:
    right = diffusers_tensors()
    split = {n: v for n, v in right.items() if n.startswith("layers.1.attention.to_") and ".to_out" not in n}
    return {n: v for n, v in tensors.items() if n != FUSED} | split


def eight_bit_without_scales(tensors: Tensors) -> Tensors:
    return {n: v.to(torch.float8_e4m3fn) if v.ndim == 2 else v for n, v in tensors.items()}


def fp32(tensors: Tensors) -> Tensors:
    return {n: v.float() for n, v in tensors.items()}


@pytest.mark.parametrize("change", [untouched, diffusers_names, names_mixed, eight_bit_without_scales, fp32])
def test_what_loads_is_silent(change: Callable[[Tensors], Tensors], file: Path) -> None:
    rewrite(file, change)
    assert not any(parameter.is_meta for parameter in load(file).parameters())
    assert said(file) == {}


def one_gone(tensors: Tensors) -> Tensors:
    return {n: v for n, v in tensors.items() if n != FUSED}


def one_gone_of_diffusers(tensors: Tensors) -> Tensors:
    return {n: v for n, v in diffusers_tensors().items() if n != "layers.1.attention.to_q.weight"}


def a_layer_gone(tensors: Tensors) -> Tensors:
    return {n: v for n, v in tensors.items() if not n.startswith("layers.1.")}


def one_more(tensors: Tensors) -> Tensors:
    return {**tensors, "norm_final.weight": torch.zeros(96)}


def prefixed(tensors: Tensors) -> Tensors:
    return {PREFIX + n: v for n, v in tensors.items()}


def whole_model(tensors: Tensors) -> Tensors:
    vae = load_file(healthy() / "vae" / "diffusion_pytorch_model.safetensors")
    text = load_file(healthy() / "text_encoder" / "model.safetensors")
    return {
        **prefixed(tensors),
        **{f"vae.{n}": v for n, v in vae.items()},
        **{f"text_encoders.qwen3_4b.transformer.{n}": v for n, v in text.items()},
    }


def scaled(tensors: Tensors) -> Tensors:
    scales = {n.replace("weight", "scale_weight"): torch.tensor(1.0) for n in tensors if "feed_forward" in n}
    return {**eight_bit_without_scales(tensors), **scales, "scaled_fp8": torch.zeros(2).to(torch.float8_e4m3fn)}


def another_width(tensors: Tensors) -> Tensors:
    return {n: v[:48].clone() if n == FUSED else v for n, v in tensors.items()}


def vae(tensors: Tensors) -> Tensors:
    return load_file(healthy() / "vae" / "diffusion_pytorch_model.safetensors")


def text_encoder(tensors: Tensors) -> Tensors:
    return load_file(healthy() / "text_encoder" / "model.safetensors")


def flux(tensors: Tensors) -> Tensors:
    needed = needed_tensors("FluxTransformer2DModel", DEV) or {}
    return {n: torch.zeros(s) for n, s in original_layout(flux_original_name, needed).items()}


def flux_of_comfy(tensors: Tensors) -> Tensors:
    return prefixed(flux(tensors))


SICK: dict[Callable[[Tensors], Tensors], tuple[str, str]] = {
    one_gone: ("MDL001", FUSED),
    one_gone_of_diffusers: ("MDL001", "layers.1.attention.to_q.weight"),
    a_layer_gone: ("MDL001", "all of layers.1"),
    one_more: ("MDL002", "norm_final.weight"),
    prefixed: ("MDL002", PREFIX),
    whole_model: ("MDL002", "a whole model in one file"),
    scaled: ("MDL002", "scaled 8-bit weights"),
    another_width: ("MDL002", FUSED),
    vae: ("MDL002", "a VAE in diffusers' names"),
    text_encoder: ("MDL002", "a Qwen text encoder"),
    flux: ("MDL002", "a Flux transformer in the names of Black Forest Labs"),
    flux_of_comfy: ("MDL002", "a Flux transformer in ComfyUI's names"),
}


@pytest.mark.parametrize("damage", SICK, ids=lambda damage: damage.__name__)
def test_the_strict_load_fails_and_exactly_one_rule_says_why(
    damage: Callable[[Tensors], Tensors], file: Path
) -> None:
    rule, words = SICK[damage]
    rewrite(file, damage)
    with pytest.raises(RuntimeError, match=r"Error\(s\) in loading state_dict"):
        load(file)
    seen = said(file)
    assert list(seen) == [rule]
    (finding,) = seen[rule]
    assert words in finding.text()
    assert "RuntimeError" in finding.consequence() or "shape" in finding.consequence()


def test_a_lora_is_no_model(tmp_path: Path) -> None:
    file = tmp_path / "lora.safetensors"
    build_tiny_adapter(file)
    with pytest.raises(RuntimeError):
        load(file)
    (finding,) = said(file)["MDL002"]
    assert "a LoRA for Z-Image" in finding.text()


def test_a_file_of_another_ending_is_taken_for_a_folder(file: Path) -> None:
    other = file.rename(file.with_suffix(".sft"))
    with pytest.raises(OSError):
        ZImageTransformer2DModel.from_pretrained(str(other), subfolder="transformer", local_files_only=True)
    (finding,) = said(other)["MDL002"]
    assert ".safetensors" in finding.text()


def test_without_its_config_a_file_is_not_judged(file: Path) -> None:
    run = run_of(file, extras_name_or_path="acme/not-cached")
    with pytest.raises(Unestablished, match=r"config\.json"):
        list(missing_checkpoint_tensors(run, probed(run)))


def test_the_published_config_is_that_of_the_class(tmp_path: Path) -> None:
    """The trainer takes it from the hub; the tiny file is then another model."""
    file = tmp_path / "z_image.safetensors"
    save_file(comfy_tensors(), file)
    seen = findings(file)
    needed = probed(run_of(file)).components["transformer"].needed
    assert needed is not None and "layers.29.attention.qkv.weight" in needed
    assert seen["MDL001"][0].evidence["missing"] == 453 - len(comfy_tensors())
    assert "3840" in seen["MDL002"][0].text()


def test_memory_is_that_of_the_same_model_in_a_folder(file: Path) -> None:
    whole = run_of(healthy())
    single = run_of(file, extras_name_or_path=str(healthy()))
    assert sizes_of(single, probed(single)) == sizes_of(whole, probed(whole))


def test_the_dtype_on_disk_says_whether_the_weights_are_converted_in_memory(file: Path) -> None:
    run = run_of(file, extras_name_or_path=str(healthy()))
    wide = sizes_of(run, probed(run))
    rewrite(file, lambda tensors: {n: v.to(torch.bfloat16) for n, v in tensors.items()})
    narrow = sizes_of(run, probed(run))
    assert isinstance(wide, Sizes) and isinstance(narrow, Sizes)
    assert (wide.stored, narrow.stored) == (4, 2)


@pytest.mark.parametrize(
    ("names", "what"),
    [
        (["lora_unet_double_blocks_0_img_attn_qkv.lora_down.weight", "lora_unet_single_blocks_3_linear1.alpha"], ""),
        (["transformer.single_transformer_blocks.0.attn.to_k.lora_A.weight"], "a LoRA for Flux"),
        (["lora_unet_single_blocks_0_linear1.lora_down.weight"], "a LoRA"),
        (["lora_te_text_model_encoder_layers_0_mlp_fc1.lora_up.weight"], "a LoRA"),
        (["model.diffusion_model.input_blocks.0.0.weight"], "a Stable Diffusion model"),
        (["model.diffusion_model.input_blocks.0.0.weight", "first_stage_model.x"], "a whole model in one file"),
        (["encoder.down.0.block.0.conv1.weight"], "a VAE in the names of its authors"),
        (["double_stream_modulation_img.lin.weight", "double_blocks.0.img_attn.qkv.weight"], "a Flux.2 transformer"),
        (["something.else"], ""),
        ([], ""),
    ],
)
def test_contents_by_name(names: list[str], what: str) -> None:
    assert contents(names).startswith(what) and bool(contents(names)) >= bool(what)


def test_contents_of_the_real_parts() -> None:
    held = {
        part.name: contents(load_file(next(part.glob("*.safetensors"))))
        for part in healthy_flux().iterdir()
        if any(part.glob("*.safetensors"))
    }
    assert held["text_encoder"] == "a CLIP text encoder"
    assert held["text_encoder_2"] == "a T5 text encoder"
    assert held["vae"] == "a VAE in diffusers' names"
