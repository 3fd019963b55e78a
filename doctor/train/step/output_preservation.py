"""Output preservation: which prompt the model must go on answering as it did without the network, and how much so."""

from __future__ import annotations

from ...model.run import Run
from ..dataset.training_items import Item
from ..settings.names import BLANK, CLASS


def preserved_prompt(run: Run, item: Item, caption: str) -> str | None:
    """`caption` with the class in place of the trigger word, or the empty prompt; None when nothing is preserved."""
    if run.setting(f"train/{CLASS}"):
        word = str(run.setting(f"train/{CLASS}_class") or "")
        return caption.replace(item.trigger, word) if item.trigger else caption
    return "" if run.setting(f"train/{BLANK}") else None


def preservation_weight(run: Run) -> float:
    """What the preservation loss is multiplied by."""
    kind = CLASS if run.setting(f"train/{CLASS}") else BLANK
    return float(run.setting(f"train/{kind}_multiplier", 1.0))
