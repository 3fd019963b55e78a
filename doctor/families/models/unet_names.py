"""The names of the UNets' tensors in single files, by which kohya's trainers name a LoRA's layers of SDXL, too."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

_LAYERS = 2  # resnets of a level that goes down; one that goes up has one more
_RESNET: Mapping[str, str] = {
    "norm1": "in_layers.0",
    "conv1": "in_layers.2",
    "time_emb_proj": "emb_layers.1",
    "norm2": "out_layers.0",
    "conv2": "out_layers.3",
    "conv_shortcut": "skip_connection",
}
_OUTER: Mapping[str, str] = {
    "conv_in": "input_blocks.0.0",
    "time_embedding.linear_1": "time_embed.0",
    "time_embedding.linear_2": "time_embed.2",
    "add_embedding.linear_1": "label_emb.0.0",
    "add_embedding.linear_2": "label_emb.0.2",
    "conv_norm_out": "out.0",
    "conv_out": "out.2",
}


def _down(level: int, kind: str, number: int) -> str:
    if kind == "downsamplers":
        return f"input_blocks.{(_LAYERS + 1) * (level + 1)}.0"
    return f"input_blocks.{1 + (_LAYERS + 1) * level + number}.{int(kind == 'attentions')}"


def _up(level: int, kind: str, number: int) -> str:
    if kind == "upsamplers":  # behind the attention, which all that have one have
        return f"output_blocks.{(_LAYERS + 1) * level + _LAYERS}.2"
    return f"output_blocks.{(_LAYERS + 1) * level + number}.{int(kind == 'attentions')}"


def _middle(level: int, kind: str, number: int) -> str:
    return f"middle_block.{1 if kind == 'attentions' else 2 * number}"


_PLACES: Mapping[str, Callable[[int, str, int], str]] = {"down": _down, "up": _up, "mid": _middle}


def sd15_original_name(name: str) -> str:
    """The same of Stable Diffusion 1.5, whose last level has no attention before its upsampler."""
    return sdxl_original_name(name).replace("output_blocks.2.2.conv.", "output_blocks.2.1.conv.")


def processor_name(name: str) -> str:
    """The name of a Linear of the attention in LoRAs that diffusers wrote until 2023."""
    return name.replace(".to_", ".processor.to_").removesuffix(".0") if ".to_" in name else name


def sdxl_original_name(name: str) -> str:
    """The name in single files of a tensor that diffusers calls `name`."""
    found = re.match(r"(down|up|mid)_block(?:s\.(\d+))?\.(\w+)\.(\d+)\.(.+)", name)
    if found is None:
        module, _, end = name.rpartition(".")
        return f"{_OUTER.get(module, module)}.{end}"
    way, level, kind, number, rest = found.groups()
    if kind == "resnets":
        part, _, end = rest.rpartition(".")
        rest = f"{_RESNET.get(part, part)}.{end}"
    elif kind == "downsamplers":
        rest = rest.replace("conv.", "op.", 1)
    return f"{_PLACES[way](int(level or 0), kind, int(number))}.{rest}"
