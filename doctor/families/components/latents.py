"""Autoencoders of later families, whose latents are of pictures and films alike."""

from __future__ import annotations

from ..record import ModelClass
from ..record.mined import mined_class, mined_tensors
from ..record.single_file import original_layout

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


_CLASS = "AutoencoderKLQwenImage"
QWEN_IMAGE_VAE: ModelClass = mined_class(
    _CLASS,
    "a VAE of Qwen-Image",
    ("encoder.down_blocks.0.norm1.gamma", "encoder.downsamples.0.residual.0.gamma"),
    by_kohya=lambda config, present, either: original_layout(wan_vae_name, mined_tensors(_CLASS, config), present),
)
FLUX2_VAE: ModelClass = mined_class("Flux2AutoEncoder", "a VAE of FLUX.2", ("encoder.quant_conv.weight",))
CLASSES = (QWEN_IMAGE_VAE, FLUX2_VAE)
