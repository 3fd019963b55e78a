"""Z-Image's transformer: its tensors in diffusers' names and in those of single files."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ...model.record import replace
from ..record.mined import mined_class, mined_tensors
from ..record.shapes import BadConfig, Shapes, size, sizes
from ..record.single_file import original_layout

_CLASS = "ZImageTransformer2DModel"
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
    """Name -> shape for ZImageTransformer2DModel, which refuses heads of another width than its axes have together.

    Raises BadConfig.
    """
    shapes = mined_tensors(_CLASS, config)
    if size(config, "dim", 3840) // size(config, "n_heads", 30) != sum(sizes(config, "axes_dims", _AXES)):
        raise BadConfig("dim / n_heads differs from the sum of axes_dims")
    return shapes


def zimage_original_name(name: str) -> str:
    """The name in ComfyUI's single files of a tensor that diffusers calls `name`; q, k and v share one."""
    for ours, theirs in _ORIGINAL.items():
        name = name.replace(ours, theirs)
    return name


def _by_kohya(config: Mapping[str, Any], present: Collection[str], either: bool) -> Shapes:
    return original_layout(zimage_original_name, mined_tensors(_CLASS, {}), present)


TRANSFORMER = replace(
    mined_class(
        _CLASS,
        "a Z-Image transformer",
        ("cap_pad_token",),
        head="dim // n_heads",
        axes=_AXES,
        original=zimage_original_name,
        by_kohya=_by_kohya,
    ),
    tensors=zimage_transformer,
)
