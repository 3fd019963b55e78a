"""Z-Image's transformer: its tensors in diffusers' names, in those of single files, and its config out of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ..record import ModelClass
from ..record.reading import Tensors, check_axes, split
from ..record.shapes import BadConfig, Shapes, bounded, count, flag, linear, size, sizes
from ..record.single_file import in_diffusers_names, original_layout, with_prefix

_MODULATION_WIDTH = 256
_TIME_WIDTH = 1024
_TIME_FREQUENCIES = 256
_AXES = (32, 48, 48)
_ORIGINAL = {
    ".attention.to_q.": ".attention.qkv.",
    ".attention.to_k.": ".attention.qkv.",
    ".attention.to_v.": ".attention.qkv.",
    ".attention.to_out.0.": ".attention.out.",
    ".attention.norm_q.": ".attention.q_norm.",
    ".attention.norm_k.": ".attention.k_norm.",
    "all_x_embedder.2-1.": "x_embedder.",
    "all_final_layer.2-1.": "final_layer.",
}


def zimage_transformer(config: Mapping[str, Any]) -> Shapes:
    """Name -> shape for ZImageTransformer2DModel. Raises BadConfig."""
    width = size(config, "dim", 3840)
    heads = size(config, "n_heads", 30)
    layers = count(config, "n_layers", 30)
    refiners = count(config, "n_refiner_layers", 2)
    channels = size(config, "in_channels", 16)
    caption = size(config, "cap_feat_dim", 2560)
    normed = flag(config, "qk_norm", True)
    patches = sizes(config, "all_patch_size", (2,))
    frames = sizes(config, "all_f_patch_size", (1,))
    siglip = None if config.get("siglip_feat_dim") is None else size(config, "siglip_feat_dim", 0)
    head = width // heads
    if len(patches) != len(frames):
        raise BadConfig("all_patch_size and all_f_patch_size differ in length")
    if head != sum(sizes(config, "axes_dims", _AXES)):
        raise BadConfig("dim / n_heads differs from the sum of axes_dims")
    bounded(15 * (layers + 3 * refiners) + 6 * len(patches) + 16)

    modulation = min(width, _MODULATION_WIDTH)
    shapes: Shapes = {"x_pad_token": (1, width), "cap_pad_token": (1, width)}
    for patch, frame in zip(patches, frames, strict=True):
        pixels = patch * patch * frame * channels
        linear(shapes, f"all_x_embedder.{patch}-{frame}", pixels, width)
        linear(shapes, f"all_final_layer.{patch}-{frame}.linear", width, pixels)
        linear(shapes, f"all_final_layer.{patch}-{frame}.adaLN_modulation.1", modulation, width)
    linear(shapes, "t_embedder.mlp.0", _TIME_FREQUENCIES, _TIME_WIDTH)
    linear(shapes, "t_embedder.mlp.2", _TIME_WIDTH, modulation)
    shapes["cap_embedder.0.weight"] = (caption,)
    linear(shapes, "cap_embedder.1", caption, width)
    groups = [("noise_refiner", refiners, True), ("context_refiner", refiners, False), ("layers", layers, True)]
    if siglip is not None:
        shapes["siglip_pad_token"] = (1, width)
        shapes["siglip_embedder.0.weight"] = (siglip,)
        linear(shapes, "siglip_embedder.1", siglip, width)
        groups.append(("siglip_refiner", refiners, False))
    for group, blocks, modulated in groups:
        for index in range(blocks):
            shapes |= _block(f"{group}.{index}", width, heads * head, head, normed, modulated)
    return shapes


def _block(name: str, width: int, inner: int, head: int, normed: bool, modulated: bool) -> Shapes:
    hidden = int(width / 3 * 8)
    shapes: Shapes = {f"{name}.attention.{part}.weight": (inner, width) for part in ("to_q", "to_k", "to_v")}
    shapes[f"{name}.attention.to_out.0.weight"] = (width, inner)
    if normed:
        shapes[f"{name}.attention.norm_q.weight"] = shapes[f"{name}.attention.norm_k.weight"] = (head,)
    shapes[f"{name}.feed_forward.w1.weight"] = shapes[f"{name}.feed_forward.w3.weight"] = (hidden, width)
    shapes[f"{name}.feed_forward.w2.weight"] = (width, hidden)
    for norm in ("attention_norm1", "attention_norm2", "ffn_norm1", "ffn_norm2"):
        shapes[f"{name}.{norm}.weight"] = (width,)
    if modulated:
        linear(shapes, f"{name}.adaLN_modulation.0", min(width, _MODULATION_WIDTH), 4 * width)
    return shapes


def zimage_original_name(name: str) -> str:
    """The name in ComfyUI's single files of a tensor that diffusers calls `name`; q, k and v share one."""
    for ours, theirs in _ORIGINAL.items():
        name = name.replace(ours, theirs)
    return name


def _inferred(tensors: Tensors) -> dict[str, Any]:
    width, pixels = tensors.shape(2, "all_x_embedder.2-1.weight", "x_embedder.weight")
    norm = ("layers.0.attention.norm_q.weight", "layers.0.attention.q_norm.weight")
    head = tensors.shape(1, *norm)[0]
    heads = split(width, head, "heads")
    check_axes(head, _AXES)
    return {
        "_class_name": "ZImageTransformer2DModel",
        "all_patch_size": [2],
        "all_f_patch_size": [1],
        "in_channels": split(pixels, 4, "pixels of a patch"),
        "dim": width,
        "n_layers": tensors.count(r"^layers\.(\d+)\."),
        "n_refiner_layers": tensors.count(r"^noise_refiner\.(\d+)\."),
        "n_heads": heads,
        "n_kv_heads": heads,
        "norm_eps": 1e-5,
        "qk_norm": True,
        "cap_feat_dim": tensors.shape(2, "cap_embedder.1.weight")[1],
        "rope_theta": 256.0,
        "t_scale": 1000.0,
        "axes_dims": list(_AXES),
        "axes_lens": [1536, 512, 512],
    }


def _in_file(needed: Shapes, present: Collection[str]) -> Shapes:
    return with_prefix(zimage_original_name, needed, present)


def _by_kohya(config: Mapping[str, Any], present: Collection[str], either: bool) -> Shapes:
    return original_layout(zimage_original_name, zimage_transformer({}), present)


TRANSFORMER = ModelClass(
    name="ZImageTransformer2DModel",
    title="a Z-Image transformer",
    tensors=zimage_transformer,
    dialect=in_diffusers_names,
    in_file=_in_file,
    by_kohya=_by_kohya,
    marks=("cap_pad_token",),
    told_as="ZImageTransformer2DModel",
    infer=_inferred,
    depth=("dim", 3840, {"n_layers": 30, "n_refiner_layers": 2}),
    original=zimage_original_name,
)
