"""AutoencoderKL, the VAE of Z-Image, Flux and Stable Diffusion."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from ..record import ModelClass
from ..record.shapes import (
    BadConfig,
    Module,
    Shapes,
    Tensors,
    conv,
    count,
    flag,
    linear,
    norm,
    size,
    sizes,
    split,
    tensors_of,
)

_OLD_NAMES = {"to_q": "query", "to_k": "key", "to_v": "value", "to_out.0": "proj_attn"}
_ORIGINAL = {
    "encoder.down_blocks.": "encoder.down.",
    ".mid_block.attentions.0.": ".mid.attn_1.",
    ".attn_1.group_norm.": ".attn_1.norm.",
    **{f".attn_1.to_{part}.": f".attn_1.{part}." for part in "qkv"},
    ".attn_1.to_out.0.": ".attn_1.proj_out.",
    ".downsamplers.0.": ".downsample.",
    ".upsamplers.0.": ".upsample.",
    ".conv_shortcut.": ".nin_shortcut.",
    ".conv_norm_out.": ".norm_out.",
}
VAE: Mapping[str, Any] = {
    "block_out_channels": (128, 256, 512, 512),
    "down_block_types": ("DownEncoderBlock2D",) * 4,
    "up_block_types": ("UpDecoderBlock2D",) * 4,
    "layers_per_block": 2,
    "latent_channels": 16,
    "use_quant_conv": False,
    "use_post_quant_conv": False,
}
_GROUPS = 32
_LATENTS = 16
_FEW = 4  # of Stable Diffusion's
_BLOCKS = r"^encoder\.(?:down\.(\d+)\.block|down_blocks\.(\d+)\.resnets)\."


def autoencoder_kl(config: Mapping[str, Any]) -> Shapes:
    """Name -> shape for AutoencoderKL with plain down and up blocks. Raises BadConfig for other block types."""
    widths = sizes(config, "block_out_channels", (64,))
    latents = size(config, "latent_channels", 4)
    layers = count(config, "layers_per_block", 1)
    for key, kind in (("down_block_types", "DownEncoderBlock2D"), ("up_block_types", "UpDecoderBlock2D")):
        types = config.get(key, (kind,))
        if not isinstance(types, list | tuple) or len(types) != len(widths) or any(t != kind for t in types):
            raise BadConfig(f"{key} is not one {kind} for each of block_out_channels")
    modules = {
        "encoder.conv_in": conv(size(config, "in_channels", 3), widths[0]),
        "encoder.conv_norm_out": norm(widths[-1]),
        "encoder.conv_out": conv(widths[-1], 2 * latents),
        "decoder.conv_in": conv(latents, widths[-1]),
        "decoder.conv_norm_out": norm(widths[0]),
        "decoder.conv_out": conv(widths[0], size(config, "out_channels", 3)),
        **_resnet("{encoder,decoder}.mid_block.resnets.{0,1}", widths[-1], widths[-1]),
    }
    if flag(config, "mid_block_add_attention", True):
        modules["{encoder,decoder}.mid_block.attentions.0.group_norm"] = norm(widths[-1])
        modules |= {
            f"{{encoder,decoder}}.mid_block.attentions.0.{n}": linear(widths[-1], widths[-1]) for n in _OLD_NAMES
        }
    if flag(config, "use_quant_conv", True):
        modules["quant_conv"] = conv(2 * latents, 2 * latents, 1)
    if flag(config, "use_post_quant_conv", True):
        modules["post_quant_conv"] = conv(latents, latents, 1)
    blocks = {}
    for name, sampler, sides, resnets in (
        ("encoder.down_blocks", "downsamplers", widths, layers),
        ("decoder.up_blocks", "upsamplers", widths[::-1], layers + 1),
    ):
        modules |= {f"{name}.{level}.{sampler}.0.conv": conv(side, side) for level, side in enumerate(sides[:-1])}
        for level, (before, side) in enumerate(zip((sides[0], *sides), sides, strict=False)):
            blocks[f"{name}.{level}.resnets"] = resnets
            modules |= _resnet(f"{name}.{level}.resnets.*", side, side)
            modules |= _resnet(f"{name}.{level}.resnets.0", before, side) if resnets else {}
    return tensors_of(modules, blocks)


def _resnet(name: str, inputs: int, outputs: int) -> dict[str, Module]:
    shortcut = {f"{name}.conv_shortcut": conv(inputs, outputs, 1)} if inputs != outputs else {}
    return {
        f"{name}.norm1": norm(inputs),
        f"{name}.conv1": conv(inputs, outputs),
        f"{name}.norm2": norm(outputs),
        f"{name}.conv2": conv(outputs, outputs),
        **shortcut,
    }


def _dialect(needed: Shapes, present: Collection[str]) -> Shapes:
    """diffusers still reads the attention names of its first years (query, key, value, proj_attn)."""
    return {_old(name) if name not in present and _old(name) in present else name: s for name, s in needed.items()}


def _old(name: str) -> str:
    for new, old in _OLD_NAMES.items():
        name = name.replace(f".attentions.0.{new}.", f".attentions.0.{old}.")
    return name


def original_names(shapes: Shapes) -> Shapes:
    """The same tensors as the authors' own files have them (ae.safetensors): decoder levels count the other way, and
    the attention is made of 1x1 convolutions.
    """
    levels = len({name.split(".")[2] for name in shapes if name.startswith("decoder.up_blocks.")})
    found: Shapes = {}
    for name, shape in shapes.items():
        original = _original(name, levels)
        found[original] = (*shape, 1, 1) if ".mid.attn_1." in original and len(shape) == 2 else shape
    return found


def in_original_names(needed: Shapes, present: Collection[str]) -> Shapes:
    """A VAE that is found under its authors' names alone, whatever else a file has."""
    return original_names(needed)


def _original(name: str, levels: int) -> str:
    name = re.sub(r"decoder\.up_blocks\.(\d+)", lambda m: f"decoder.up.{levels - 1 - int(m.group(1))}", name)
    for ours, theirs in _ORIGINAL.items():
        name = name.replace(ours, theirs)
    name = re.sub(r"\.mid_block\.resnets\.(\d)", lambda m: f".mid.block_{int(m.group(1)) + 1}", name)
    return name.replace(".resnets.", ".block.")


def original_name(name: str) -> str:
    """Of a tensor outside the decoder's levels."""
    return _original(name, 0)


def _inferred(tensors: Tensors) -> dict[str, Any]:
    latents = tensors.shape(4, "encoder.conv_out.weight")[0]
    if latents not in (2 * _LATENTS, 2 * _FEW):  # the factors are not known for others
        raise BadConfig(f"its latents have {latents // 2} channels, those of Z-Image and Flux {_LATENTS}")
    # of Stable Diffusion's the tensors do not tell them: the family's record has them
    factors = {"scaling_factor": 0.3611, "shift_factor": 0.1159} if latents == 2 * _LATENTS else {}
    return {"_class_name": "AutoencoderKL", **inferred_levels(tensors), **factors}


def inferred_levels(tensors: Tensors) -> dict[str, Any]:
    """What of the config.json the shapes of the tensors tell. Raises BadConfig."""
    latents, channels = tensors.shape(4, "encoder.conv_out.weight")[0], tensors.shape(4, "encoder.conv_in.weight")[1]
    levels = tensors.count(_BLOCKS)
    widths = [tensors.shape(4, f"encoder.down_blocks.{level}.resnets.0.conv1.weight")[0] for level in range(levels)]
    for width in widths:
        split(width, _GROUPS, "groups of channels")
    return {
        "in_channels": channels,
        "out_channels": tensors.shape(4, "decoder.conv_out.weight")[0],
        "down_block_types": ["DownEncoderBlock2D"] * levels,
        "up_block_types": ["UpDecoderBlock2D"] * levels,
        "block_out_channels": widths,
        "layers_per_block": tensors.count(r"^encoder\.(?:down\.\d+\.block|down_blocks\.\d+\.resnets)\.(\d+)\."),
        "latent_channels": latents // 2,
        "norm_num_groups": _GROUPS,
        "use_quant_conv": tensors.has("quant_conv.weight"),
        "use_post_quant_conv": tensors.has("post_quant_conv.weight"),
        "mid_block_add_attention": True,
    }


def has_original_names(present: Collection[str]) -> bool:
    """Whether these tensors of a VAE have the names of its authors' own files."""
    return any(name.startswith(("encoder.down.", "decoder.up.")) for name in present)


def _in_file(needed: Shapes, present: Collection[str]) -> Shapes:
    return original_names(needed) if has_original_names(present) else _dialect(needed, frozenset(present))


def _by_kohya(config: Mapping[str, Any], present: Collection[str], either: bool) -> Shapes:
    """Where either layout is taken, one name tells which it is."""
    needed = autoencoder_kl(config)
    if either and "encoder.down.0.block.0.conv1.weight" not in present:
        return needed
    return original_names(needed)


AUTOENCODER_KL = ModelClass(
    name="AutoencoderKL",
    title="a VAE",
    tensors=autoencoder_kl,
    dialect=_dialect,
    in_file=_in_file,
    by_kohya=_by_kohya,
    marks=("decoder.conv_in.weight", "encoder.conv_in.weight"),
    infer=_inferred,
    other=original_name,
)
CLASSES = (AUTOENCODER_KL,)
