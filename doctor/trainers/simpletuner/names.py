"""Names that SimpleTuner takes for its options beside the present ones (bc8e6ab7)."""

from __future__ import annotations

from collections.abc import Mapping

from ...configs.words import names_beside

# cli_utils: legacy handlers
RENAMED: Mapping[str, str] = {
    "save_total_limit": "checkpoints_total_limit",
    "validation_steps": "validation_step_interval",
    "checkpointing_steps": "checkpoint_step_interval",
}
NAMES = names_beside(__file__)
JSON_OPTIONS = frozenset(NAMES["json_options"])
OPTIMIZERS = frozenset(NAMES["optimizers"])
REMOVED_OPTIMIZERS = frozenset(("adafactor", "adamw8bit", "dadaptation"))
VARIABLES: Mapping[str, str] = {**{name.upper(): name for name in NAMES["variables"]}, **NAMES["other_variables"]}
