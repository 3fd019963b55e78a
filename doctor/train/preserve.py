"""Output preservation: which prompt the model must go on answering as it did without the network, and how much so."""

from __future__ import annotations

from typing import Any

from ..model.run import Run
from .data import Item
from .names import BLANK, CLASS


def preserved_prompt(run: Run, item: Item, caption: str) -> str | None:
    """`caption` with the class in place of the trigger word, or the empty prompt; None when nothing is preserved."""
    if _value(run, CLASS):
        word = str(_value(run, f"{CLASS}_class") or "")
        return caption.replace(item.trigger, word) if item.trigger else caption
    return "" if _value(run, BLANK) else None


def preservation_weight(run: Run) -> float:
    """What the preservation loss is multiplied by."""
    written = _value(run, f"{CLASS if _value(run, CLASS) else BLANK}_multiplier")
    return 1.0 if written is None else float(written)


def _value(run: Run, name: str) -> Any:
    written = run.settings.get(f"train/{name}")
    return None if written is None else written.value
