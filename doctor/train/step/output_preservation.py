"""Output preservation: which prompt the model must go on answering as it did without the network, and how much so."""

from __future__ import annotations

from ...model.run import Run
from ..dataset.training_items import Item


def preserved_prompt(run: Run, item: Item, caption: str) -> str | None:
    """`caption` with the class in place of the trigger word, or the empty prompt; None when nothing is preserved."""
    preserved = run.recipe.loss.preservation
    if preserved is None:
        return None
    if preserved.word is None:
        return ""
    return caption.replace(item.trigger, preserved.word) if item.trigger else caption


def preservation_weight(run: Run) -> float:
    """What the preservation loss is multiplied by."""
    preserved = run.recipe.loss.preservation
    return 1.0 if preserved is None else preserved.weight
