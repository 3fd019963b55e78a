"""Autoencoders of later families: of Qwen-Image, whose latents are of pictures and films alike, and of FLUX.2."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ...model.record import replace
from ..record import ModelClass
from ..record.mined import mined_class
from ..record.shapes import Shapes, Tensors
from .autoencoder_kl import has_original_names, inferred_levels, original_name, original_names

_PARTS = {
    "norm1": "residual.0",
    "conv1": "residual.2",
    "norm2": "residual.3",
    "conv2": "residual.6",
    "conv_shortcut": "shortcut",
}
_OUTER = {
    "quant_conv": "conv1",
    "post_quant_conv": "conv2",
    "conv_in": "conv1",
    "norm_out": "head.0",
    "conv_out": "head.2",
}
_MIDDLE = {"attentions.0": "1", "resnets.0": "0", "resnets.1": "2"}
_IN_A_BLOCK = 4  # three residual blocks of the decoder, and what enlarges


def wan_vae_name(name: str) -> str:
    """The name in Wan's own files, and ComfyUI's of Qwen-Image, of a tensor that diffusers calls `name`."""
    words = name.split(".")
    if words[0] in _OUTER:
        return ".".join((_OUTER[words[0]], *words[1:]))
    coder, part, *rest = words
    if part in _OUTER:
        return ".".join((coder, _OUTER[part], *rest))
    if part == "mid_block":
        middle, last = _MIDDLE[".".join(rest[:2])], rest[2:]
        return ".".join((coder, "middle", middle, _PARTS.get(last[0], last[0]), *last[1:]))
    if part == "down_blocks":
        return ".".join((coder, "downsamples", rest[0], _PARTS.get(rest[1], rest[1]), *rest[2:]))
    block, kind, number, inner = rest[:4]
    place = str(_IN_A_BLOCK * int(block) + (int(number) if kind == "resnets" else _IN_A_BLOCK - 1))
    return ".".join((coder, "upsamples", place, _PARTS.get(inner, inner), *rest[4:]))


QWEN_IMAGE_VAE: ModelClass = mined_class(
    "AutoencoderKLQwenImage",
    "a VAE of Qwen-Image",
    ("encoder.down_blocks.0.norm1.gamma", "encoder.downsamples.0.residual.0.gamma"),
    original=wan_vae_name,
)
_TITLE, _MARKS = "a VAE of FLUX.2", ("encoder.quant_conv.weight", "bn.running_mean")
_OF_FLUX2 = {"quant_conv.": "encoder.quant_conv.", "post_quant_conv.": "decoder.post_quant_conv."}


def _flux2_name(name: str) -> str:
    return next(
        (theirs + name.removeprefix(ours) for ours, theirs in _OF_FLUX2.items() if name.startswith(ours)), name
    )


def _flux2_in_file(needed: Shapes, present: Collection[str]) -> Shapes:
    if not has_original_names(present):
        return needed
    return {_flux2_name(name): shape for name, shape in original_names(needed).items()}


def _flux2_inferred(tensors: Tensors) -> dict[str, Any]:
    return {"_class_name": "AutoencoderKLFlux2", **inferred_levels(tensors)}


# In diffusers' class, and as its authors' own files have it.
FLUX2_VAE: ModelClass = replace(
    mined_class("AutoencoderKLFlux2", _TITLE, _MARKS),
    in_file=_flux2_in_file,
    infer=_flux2_inferred,
    other=lambda name: _flux2_name(original_name(name)),
)
FLUX2_AUTHORS_VAE: ModelClass = replace(mined_class("Flux2AutoEncoder", _TITLE, _MARKS), infer=_flux2_inferred)
WAN_VAE: ModelClass = mined_class("WanVAE_", "a VAE of Wan", ())  # told by no name: Qwen-Image's has the same
CLASSES = (QWEN_IMAGE_VAE, WAN_VAE, FLUX2_AUTHORS_VAE, FLUX2_VAE)
