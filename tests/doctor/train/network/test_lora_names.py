"""The names in a LoRA's file are those that other programs look for, and nothing in it asks for another scale.

The tables were read off ComfyUI (comfy/lora.py, comfy/utils.py and comfy/weight_adapter at 6f98b15, of FLUX.2 with
pull request 11981; its Chroma is a Flux, its Qwen-Image has diffusers' names: a tensor is taken whose name is a key
of its map followed by one of the endings; without an alpha the product counts once) and off ai-toolkit
(toolkit/network_mixins.py, lora_special.py and the models of Z-Image and Qwen-Image at 27a03a9).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from zdoctor.doctor.families.models.stable_diffusion import SDXL
from zdoctor.doctor.model.run import Run
from zdoctor.doctor.train.families import family_of
from zdoctor.doctor.train.network.lora import add_network, as_saved, lora_targets, trainable_parameters
from zdoctor.doctor.train.transformer.load_transformer import build_empty_transformer
from zdoctor.tests.sdxl import trainable_sdxl

from ..patient import run_with, written

STREAM = ("attn.to_q", "attn.to_k", "attn.to_v")
_DOUBLE = (*STREAM, "attn.to_out.0", "attn.add_q_proj", "attn.add_k_proj", "attn.add_v_proj", "attn.to_add_out")
_MLP = ("ff.net.0.proj", "ff.net.2", "ff_context.net.0.proj", "ff_context.net.2")
COMFYUI: dict[str, dict[str, tuple[str, ...]]] = {
    "Z-Image": {
        "diffusion_model.layers": (
            *("attention.to_q", "attention.to_k", "attention.to_v", "attention.to_out.0"),
            *("feed_forward.w1", "feed_forward.w2", "feed_forward.w3", "adaLN_modulation.0"),
        ),
    },
    "Flux": {
        "transformer.transformer_blocks": (
            *_DOUBLE,
            *_MLP,
            *("norm1.linear", "norm1_context.linear"),
        ),
        "transformer.single_transformer_blocks": (*STREAM, "proj_mlp", "proj_out", "norm.linear"),
    },
    "Chroma": {
        "transformer.transformer_blocks": (*_DOUBLE, *_MLP),
        "transformer.single_transformer_blocks": (*STREAM, "proj_mlp", "proj_out"),
    },
    "Qwen-Image": {
        "diffusion_model.transformer_blocks": (
            *_DOUBLE,
            *("img_mlp.net.0.proj", "img_mlp.net.2", "txt_mlp.net.0.proj", "txt_mlp.net.2"),
            *("img_mod.1", "txt_mod.1"),
        ),
    },
    "FLUX.2": {
        "transformer.transformer_blocks": (
            *_DOUBLE,
            *("ff.linear_in", "ff.linear_out", "ff_context.linear_in", "ff_context.linear_out"),
        ),
        "transformer.single_transformer_blocks": ("attn.to_qkv_mlp_proj", "attn.to_out"),
    },
}
ENDINGS = {"lora": {"lora_A.weight", "lora_B.weight"}, "lokr": {"lokr_w1", "lokr_w2", "lokr_w2_a", "lokr_w2_b"}}
RUNS = {
    "lora": run_with(),
    "lokr": run_with(network_type="lokr"),
    "lokr split": run_with(network_type="lokr", rank=2, settings=written(network__lokr_full_rank=False)),
}
# Qwen-Image's edit models have its transformer.
MODELS = {
    "Z-Image": "tiny",
    "Flux": "flux",
    "Chroma": "chroma",
    "Qwen-Image": "qwen_image_edit",
    "FLUX.2": "flux2",
}


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
@pytest.mark.parametrize("title", COMFYUI)
def test_every_name_is_known_to_comfyui_and_to_ai_toolkit(
    title: str, run: Run, request: pytest.FixtureRequest
) -> None:
    """But for FLUX.2 and Chroma, of which ai-toolkit's classes have other names."""
    model = build_empty_transformer(request.getfixturevalue(MODELS[title]) / "transformer")
    family = family_of(model)
    assert title == family.RECORD.title
    shapes = lora_targets(model)
    keys = list(trainable_parameters(add_network(model, shapes, run.recipe.network, 0), family.RECORD.lora_prefix))
    seen = set()
    for key in keys:
        ending = key.rsplit(".", 2 if key.endswith(".weight") else 1)
        name, last = ending[0], ".".join(ending[1:])
        blocks, number, inner = next(
            (start, *name.removeprefix(f"{start}.").split(".", 1))
            for start in COMFYUI[title]
            if name.startswith(f"{start}.")
        )
        assert number.isdecimal() and inner in COMFYUI[title][blocks]
        assert last in ENDINGS[run.recipe.network.type]
        assert loaded_by_ai_toolkit(key, title) in expected_by_ai_toolkit(
            name.removeprefix(family.RECORD.lora_prefix), run
        )
        seen.add((blocks, inner))
    assert seen == {(blocks, inner) for blocks, names in COMFYUI[title].items() for inner in names}
    assert len(keys) >= 2 * len(shapes)


def loaded_by_ai_toolkit(key: str, title: str) -> str:
    """What its loader makes of a name."""
    if title in ("Z-Image", "Qwen-Image"):
        key = key.replace("diffusion_model.", "transformer.")
    key = key.replace("lora_A", "lora_down").replace("lora_B", "lora_up").replace(".", "$$")
    for part in ("lora_down", "lora_up"):
        key = key.replace(f"$${part}$$", f".{part}.")
    return key.replace("$$lokr_w1", ".lokr_w1").replace("$$lokr_w2", ".lokr_w2")


def expected_by_ai_toolkit(module: str, run: Run) -> set[str]:
    """The names that its network has for a Linear."""
    name = f"transformer.{module}".replace(".", "$$")
    endings = {"lora_down.weight", "lora_up.weight"} if run.recipe.network.type == "lora" else ENDINGS["lokr"]
    return {f"{name}.{ending}" for ending in endings}


def comfyui_of_sdxl() -> set[str]:
    """The modules of ComfyUI's UNet of SDXL that a LoRA may change: by comfy/utils.py's unet_to_diffusers."""
    blocks = ("attn1.to_q", "attn1.to_k", "attn1.to_v", "attn1.to_out.0", "attn2.to_q", "attn2.to_k", "attn2.to_v")
    inside = ("proj_in", "proj_out"), (*blocks, "attn2.to_out.0", "ff.net.0.proj", "ff.net.2")
    resnet = ("in_layers.2", "emb_layers.1", "out_layers.3")
    found = {"input_blocks.0.0", "out.2", "time_embed.0", "time_embed.2", "label_emb.0.0", "label_emb.0.2"}
    found |= {f"{place}.skip_connection" for place in ("input_blocks.4.0", "input_blocks.7.0")}
    found |= {f"output_blocks.{n}.0.skip_connection" for n in range(9)}
    found |= {"input_blocks.3.0.op", "input_blocks.6.0.op", "output_blocks.2.2.conv", "output_blocks.5.2.conv"}
    resnets = (*(f"input_blocks.{n}.0" for n in (1, 2, 4, 5, 7, 8)), "middle_block.0", "middle_block.2")
    found |= {f"{place}.{one}" for place in (*resnets, *(f"output_blocks.{n}.0" for n in range(9))) for one in resnet}
    for depth, places in ((2, (4, 5)), (10, (7, 8))):
        found |= {f"input_blocks.{n}.1.{one}" for n in places for one in inside[0]}
        of_blocks = [f"transformer_blocks.{k}.{one}" for k in range(depth) for one in inside[1]]
        found |= {f"input_blocks.{n}.1.{one}" for n in places for one in of_blocks}
        back = (3, 4, 5) if depth == 2 else (0, 1, 2)
        found |= {f"output_blocks.{n}.1.{one}" for n in back for one in (*inside[0], *of_blocks)}
    return found | {f"middle_block.1.{one}" for one in (*inside[0], *of_blocks)}


def test_every_name_of_sdxl_is_known_to_comfyui_and_to_sd_scripts(tmp_path: Path) -> None:
    """Of Linears and of all convolutions; lora_unet_ and the name with _ is what both look for, with an alpha."""
    model = build_empty_transformer(trainable_sdxl(tmp_path, (1, 2, 10)) / "unet")
    how = replace(run_with().recipe.network, conv_rank=2)
    network = add_network(model, lora_targets(model, windows=True), how, 0)
    keys = as_saved(trainable_parameters(network, "lora_unet_"), how, SDXL)
    endings = ("lora_down.weight", "lora_up.weight", "alpha")
    names = {f"lora_unet_{name.replace('.', '_')}" for name in comfyui_of_sdxl()}
    assert set(keys) == {f"{name}.{ending}" for name in names for ending in endings}
