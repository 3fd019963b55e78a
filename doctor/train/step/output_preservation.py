"""Output preservation keeps the model's answer to prompts without the trigger word as it was."""

from __future__ import annotations

from ...model.run import Run
from ..dataset.training_items import TrainingItem


def preserved_prompt(run: Run, item: TrainingItem, caption: str) -> str | None:
    """Returns `caption` with the class for the trigger word, or the empty prompt; None when nothing is preserved."""
    preserved = run.recipe.loss.preservation
    if preserved is None:
        return None
    if preserved.word is None:
        return ""
    return caption.replace(item.trigger, preserved.word) if item.trigger else caption


def preservation_weight(run: Run) -> float:
    """Returns what the preservation loss is multiplied by."""
    preserved = run.recipe.loss.preservation
    return 1.0 if preserved is None else preserved.weight
