"""Output preservation keeps the model's answer to prompts without the trigger word as it was."""

from __future__ import annotations

from ...model.run import Run
from ..dataset.training_items import TrainingItem
from ..settings.names import BLANK, CLASS


def preserved_prompt(run: Run, item: TrainingItem, caption: str) -> str | None:
    """Returns `caption` with the class for the trigger word, or the empty prompt; None when nothing is preserved."""
    if run.setting(f"train/{CLASS}"):
        word = str(run.setting(f"train/{CLASS}_class") or "")
        return caption.replace(item.trigger, word) if item.trigger else caption
    return "" if run.setting(f"train/{BLANK}") else None


def preservation_weight(run: Run) -> float:
    """Returns what the preservation loss is multiplied by."""
    kind = CLASS if run.setting(f"train/{CLASS}") else BLANK
    return float(run.setting(f"train/{kind}_multiplier", 1.0))
