"""Which settings of sd-scripts and musubi-tuner the runner need not obey; names.json holds the lists.

A setting of neither kind is refused where it is not at its default. The names stand once, whether they are options or
belong to datasets.
"""

from __future__ import annotations

from ...configs.words import names_beside

# Names that musubi-tuner's dataset file still takes (dataset/config_utils.py deprecated_key_map).
RENAMED = {
    "flux_kontext_no_resize_control": "no_resize_control",
    "qwen_image_edit_no_resize_control": "no_resize_control",
    "qwen_image_edit_control_resolution": "control_resolution",
}

NAMES = names_beside(__file__)
APART = frozenset(NAMES["apart"])
UNREAD = frozenset(NAMES["unread"])
WITHOUT_EFFECT = APART | UNREAD | frozenset(NAMES["beside"])
# What is written into the LoRA's file.
METADATA = {
    "training_comment": "ss_training_comment",
    **{f"metadata_{name}": f"modelspec.{name}" for name in ("author", "description", "license", "tags", "title")},
}
