"""The fields of a recipe by name: how `Run.keys`, records of runs and trackers call them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .recipe import Recipe
from .record import replace

# Those of groups that have a short name; all others are "group.field".
SHORT_NAMES: Mapping[str, str] = {
    "network_type": "network.type",
    "rank": "network.rank",
    "alpha": "network.alpha",
    "optimizer": "optimizer.name",
    "optimizer_settings": "optimizer.settings",
    "scheduler": "lr_scheduler.name",
    "scheduler_settings": "lr_scheduler.settings",
    "noise_scheduler": "timestep_sampling.noise_scheduler",
    "timestep_type": "timestep_sampling.type",
    "content_or_style": "timestep_sampling.content_or_style",
    "loss_type": "loss.type",
    "use_ema": "ema.use",
    "ema_decay": "ema.decay",
    "dtype": "precision.dtype",
    "quantization": "precision.quantization",
    "text_encoder_quantization": "precision.text_encoder_quantization",
    "gradient_checkpointing": "offload.gradient_checkpointing",
    "save_every": "checkpoints.every",
    "save_dtype": "checkpoints.dtype",
    "keep_saves": "checkpoints.keep",
    "disable_sampling": "validation.disabled",
    "skip_first_sample": "validation.skip_first",
    "sample_every": "validation.every",
    "samples": "validation.prompts",
}
_NAMES = {path: name for name, path in SHORT_NAMES.items()}


def by_name(recipe: Recipe) -> dict[str, Any]:
    """Every field of a recipe and of its groups, by its short name where it has one."""
    made: dict[str, Any] = {}
    for name, value in vars(recipe).items():
        if hasattr(value, "__match_args__"):  # a group
            paths = {f"{name}.{inner}": one for inner, one in vars(value).items()}
            made |= {_NAMES.get(path, path): one for path, one in paths.items()}
        else:
            made[name] = value
    return made


def with_fields(recipe: Recipe, fields: Mapping[str, Any]) -> Recipe:
    """The recipe with other values of fields, by their short names or as "group.field", or of whole groups."""
    groups: dict[str, dict[str, Any]] = {}
    for name, value in fields.items():
        group, _, inner = SHORT_NAMES.get(name, name).rpartition(".")
        groups.setdefault(group, {})[inner] = value
    own = groups.pop("", {})
    return replace(recipe, **own, **{name: replace(getattr(recipe, name), **to) for name, to in groups.items()})
