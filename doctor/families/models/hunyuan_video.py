"""HunyuanVideo, as its authors' own files have it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# What musubi-tuner (30c658c4) writes into its source, hunyuan_model/models.py.
HUNYUAN_VIDEO: Mapping[str, Any] = {
    "text_states_dim": 4096,
    "text_states_dim_2": 768,
    "in_channels": 16,
    "out_channels": 16,
    "mm_double_blocks_depth": 20,
    "mm_single_blocks_depth": 40,
    "guidance_embed": True,
}
