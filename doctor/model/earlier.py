"""What an earlier run of the same name left in the output folder."""

from __future__ import annotations

import re

from .record import dataclass
from .weights import WeightFile

# A path that holds one of these is passed over where the name of the run does not (get_latest_save_path).
PASSED_OVER = ("_LoRA", "_refiner", "_t2i", "_cn")


@dataclass(frozen=True)
class EarlierSave:
    """The save that the trainer goes on from: the newest, by the time its entry was changed.

    `step` is where it was saved, None when neither the file nor its name tells. `hidden` is the part of the path or
    of the name for which the trainer does not find it, "" where it does.
    """

    weights: WeightFile
    step: int | None = None
    hidden: str = ""


def hides(path: str, name: str) -> str:
    """What in this path keeps the trainer from finding saves of this name there, "" where it finds them."""
    part = next((part for part in PASSED_OVER if part in path and part not in name), "")
    brackets = re.search(r"\[[^\]]+\]", path)  # glob takes them for one of several letters
    return part or (brackets.group() if brackets else "")
