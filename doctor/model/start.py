"""The LoRA or LoKr file that a run of zdoctor's own runner begins with, held against the network that it trains."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from .record import dataclass
from .weights import WeightFile

Shape = tuple[int, ...]

FOREIGN = (
    "{path}, the LoRA to start from, is of another architecture or has the names of another program: it holds "
    "{held}, and this run trains {trained}."
)
UNFIT = (
    "{path}, the LoRA to start from, does not fit: {key} is {there} there and {here} in this run. Give the run the "
    "rank and network type of the file."
)


@dataclass(frozen=True)
class Start:
    """The file by its header: `held` are the shapes of what the run would take from it, `trained` those of the
    network, both by the names that a saved LoRA has after its prefix.
    """

    file: WeightFile
    held: Mapping[str, Shape]
    trained: Mapping[str, Shape]


def misfit(
    held: Mapping[str, Shape], trained: Mapping[str, Shape], keys: Iterable[str]
) -> tuple[str, dict[str, Any]] | None:
    """Why a run does not begin with a file of these `keys`: a template and all that it needs but the path."""
    if not _modules(held) & _modules(trained):
        return FOREIGN, {"held": min(keys, default="nothing"), "trained": min(trained, default="nothing")}
    for key in sorted(held.keys() | trained.keys()):
        if held.get(key) != trained.get(key):
            return UNFIT, {"key": key, "there": _words(held.get(key)), "here": _words(trained.get(key))}
    return None


def _modules(keys: Iterable[str]) -> set[str]:
    return {re.split(r"\.lo(?:ra|kr)_", key)[0] for key in keys}


def _words(shape: Shape | None) -> str:
    return "absent" if shape is None else " x ".join(map(str, shape))
