"""Z-Image's transformer: its tensors in diffusers' names, in those of single files, and its config out of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

from ..record import ModelClass
from ..record.shapes import (
    BadConfig,
    Module,
    Shapes,
    Tensors,
    check_axes,
    count,
    flag,
    linear,
    matrix,
    rms_norm,
    size,
    sizes,
    split,
    tensors_of,
)
from ..record.single_file import original_layout, with_prefix

_MODULATION_WIDTH = 256
_TIME_WIDTH = 1024
_TIME_FREQUENCIES = 256
_AXES = (32, 48, 48)
_ORIGINAL = {
    **{f".attention.to_{part}.": ".attention.qkv." for part in "qkv"},
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
    patches = sizes(config, "all_patch_size", (2,))
    frames = sizes(config, "all_f_patch_size", (1,))
    head = width // heads
    if len(patches) != len(frames):
        raise BadConfig("all_patch_size and all_f_patch_size differ in length")
    if head != sum(sizes(config, "axes_dims", _AXES)):
        raise BadConfig("dim / n_heads differs from the sum of axes_dims")
    hidden, modulation = int(width / 3 * 8), min(width, _MODULATION_WIDTH)
    every = "{noise_refiner,context_refiner,layers,siglip_refiner}.*"
    modules: dict[str, Module] = {"{x_pad_token,cap_pad_token}": {"": (1, width)}}
    for patch, frame in zip(patches, frames, strict=True):
        pixels = patch * patch * frame * channels
        modules |= {
            f"all_x_embedder.{patch}-{frame}": linear(pixels, width),
            f"all_final_layer.{patch}-{frame}.linear": linear(width, pixels),
            f"all_final_layer.{patch}-{frame}.adaLN_modulation.1": linear(modulation, width),
        }
    modules |= {
        "t_embedder.mlp.0": linear(_TIME_FREQUENCIES, _TIME_WIDTH),
        "t_embedder.mlp.2": linear(_TIME_WIDTH, modulation),
        "cap_embedder.0": rms_norm(caption),
        "cap_embedder.1": linear(caption, width),
        f"{every}.attention.{{to_q,to_k,to_v}}": matrix(width, heads * head),
        f"{every}.attention.to_out.0": matrix(heads * head, width),
        f"{every}.feed_forward.{{w1,w3}}": matrix(width, hidden),
        f"{every}.feed_forward.w2": matrix(hidden, width),
        f"{every}.{{attention_norm1,attention_norm2,ffn_norm1,ffn_norm2}}": rms_norm(width),
        "{noise_refiner,layers}.*.adaLN_modulation.0": linear(modulation, 4 * width),
    }
    if flag(config, "qk_norm", True):
        modules[f"{every}.attention.{{norm_q,norm_k}}"] = rms_norm(head)
    blocks = {"noise_refiner": refiners, "context_refiner": refiners, "layers": layers, "siglip_refiner": 0}
    if config.get("siglip_feat_dim") is not None:
        siglip = size(config, "siglip_feat_dim", 0)
        modules |= {
            "siglip_pad_token": {"": (1, width)},
            "siglip_embedder.0": rms_norm(siglip),
            "siglip_embedder.1": linear(siglip, width),
        }
        blocks["siglip_refiner"] = refiners
    return tensors_of(modules, blocks)


def zimage_original_name(name: str) -> str:
    """The name in ComfyUI's single files of a tensor that diffusers calls `name`; q, k and v share one."""
    for ours, theirs in _ORIGINAL.items():
        name = name.replace(ours, theirs)
    return name


def _inferred(tensors: Tensors) -> dict[str, Any]:
    width, pixels = tensors.shape(2, "all_x_embedder.2-1.weight")
    head = tensors.shape(1, "layers.0.attention.norm_q.weight")[0]
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


def _by_kohya(config: Mapping[str, Any], present: Collection[str], either: bool) -> Shapes:
    return original_layout(zimage_original_name, zimage_transformer({}), present)


TRANSFORMER = ModelClass(
    name="ZImageTransformer2DModel",
    title="a Z-Image transformer",
    tensors=zimage_transformer,
    in_file=partial(with_prefix, zimage_original_name),
    by_kohya=_by_kohya,
    marks=("cap_pad_token",),
    infer=_inferred,
    depth=("dim", 3840, {"n_layers": 30, "n_refiner_layers": 2}),
    other=zimage_original_name,
    original=zimage_original_name,
)
