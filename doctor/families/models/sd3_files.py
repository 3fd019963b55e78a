"""Stable Diffusion 3 and 3.5 as their authors' files have them, and how sd-scripts opens these (MMDiT)."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from math import isqrt
from typing import Any

from ..components.autoencoder_kl import in_original_names
from ..record.block_swap import of_the_last
from ..record.of_trainers import Kohya, KohyaMemory
from ..record.shapes import Shapes
from ..record.single_file import in_original_layout

_HEAD, _LARGE = 64, 2432
_OUTER = {
    "pos_embed.proj": "x_embedder.proj",
    "time_text_embed.timestep_embedder.linear_1": "t_embedder.mlp.0",
    "time_text_embed.timestep_embedder.linear_2": "t_embedder.mlp.2",
    "time_text_embed.text_embedder.linear_1": "y_embedder.mlp.0",
    "time_text_embed.text_embedder.linear_2": "y_embedder.mlp.2",
    "norm_out.linear": "final_layer.adaLN_modulation.1",
    "proj_out": "final_layer.linear",
}
_IN_A_BLOCK = {
    **{f"attn.to_{one}": "x_block.attn.qkv" for one in "qkv"},
    **{f"attn2.to_{one}": "x_block.attn2.qkv" for one in "qkv"},
    **{f"attn.add_{one}_proj": "context_block.attn.qkv" for one in "qkv"},
    "attn.to_out.0": "x_block.attn.proj",
    "attn2.to_out.0": "x_block.attn2.proj",
    "attn.to_add_out": "context_block.attn.proj",
    **{f"attn.norm_{one}": f"x_block.attn.ln_{one}" for one in "qk"},
    **{f"attn2.norm_{one}": f"x_block.attn2.ln_{one}" for one in "qk"},
    **{f"attn.norm_added_{one}": f"context_block.attn.ln_{one}" for one in "qk"},
    "ff.net.0.proj": "x_block.mlp.fc1",
    "ff.net.2": "x_block.mlp.fc2",
    "ff_context.net.0.proj": "context_block.mlp.fc1",
    "ff_context.net.2": "context_block.mlp.fc2",
    "norm1.linear": "x_block.adaLN_modulation.1",
    "norm1_context.linear": "context_block.adaLN_modulation.1",
}


def sd3_original_name(name: str) -> str:
    """The name in its authors' files of a tensor that diffusers calls `name`; several may share one."""
    if name == "pos_embed.pos_embed":
        return "pos_embed"
    found = re.fullmatch(r"transformer_blocks\.(\d+)\.(.+)\.(weight|bias)", name)
    if found is not None:
        return f"joint_blocks.{found[1]}.{_IN_A_BLOCK.get(found[2], found[2])}.{found[3]}"
    module, _, end = name.rpartition(".")
    return f"{_OUTER.get(module, module)}.{end}"


def _built(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """As sd-scripts tells it from the tensors (analyze_state_dict_state); of none of it, large."""
    widths = ("x_embedder.proj.weight", "context_embedder.weight", "t_embedder.mlp.0.weight")
    width = next((shapes[name][0] for name in widths if len(shapes.get(name, ())) > 1), _LARGE)
    found = (re.search(r"\.(\d+)\.x_block\.attn2\.ln_k\.weight", name) for name in shapes)
    dual = {int(one[1]) for one in found if one}
    places = shapes.get("pos_embed", (1, 384**2 if dual else 192**2))[1]
    depth = width // _HEAD
    normed = "joint_blocks.0.context_block.attn.ln_k.weight" in shapes
    return {
        "num_layers": depth,
        "num_attention_heads": depth,
        "caption_projection_dim": _HEAD * depth,
        "pos_embed_max_size": isqrt(places),
        "qk_norm": "rms_norm" if normed else None,
        "dual_attention_layers": sorted(dual),
    }


def _clip_l(needed: Shapes, present: Collection[str]) -> Shapes:
    """Where the projection lacks, one that changes nothing takes its place."""
    every = _clip_g(needed, present)
    return {name: shape for name, shape in every.items() if name in present or name != "text_projection.weight"}


def _clip_g(needed: Shapes, present: Collection[str]) -> Shapes:
    return {name if name.startswith("text_proj") else f"text_model.{name}": shape for name, shape in needed.items()}


_CHECKPOINT = "pretrained_model_name_or_path"
# sd-scripts: library/sd3_utils.py, networks/lora_sd3.py (48d368fa). Text encoders that the first file holds are
# found under names with "transformer." before them, which the classes do not have.
SD_SCRIPTS = Kohya(
    script="sd3_train_network",
    network_module="networks.lora_sd3",
    files={
        "transformer": _CHECKPOINT,
        "text_encoder": "clip_l",
        "text_encoder_2": "clip_g",
        "text_encoder_3": "t5xxl",
        "vae": "vae",
    },
    blocks=38,
    guidance=4.5,
    memory=KohyaMemory("sd-scripts/MMDiT", ("joint_blocks",), of_the_last, drawn=2, text=77 + 256),
    inside={
        "transformer": "model.diffusion_model.",
        "text_encoder": "text_encoders.clip_l.",
        "text_encoder_2": "text_encoders.clip_g.",
        "text_encoder_3": "text_encoders.t5xxl.",
        "vae": "first_stage_model.",
    },
    inside_first=("text_encoder_2", "text_encoder_3"),
    names={
        "transformer": in_original_layout(sd3_original_name),
        "text_encoder": _clip_l,
        "text_encoder_2": _clip_g,
        "vae": in_original_names,
    },
    strict=True,
    spare=("transformer", "text_encoder", "text_encoder_2", "text_encoder_3"),
    complete=("vae",),
    built=_built,
    text=("text_encoder", "text_encoder_2"),
)
