"""How many blocks the models of kohya's trainers let be swapped: what each enable_block_swap asserts."""

from __future__ import annotations

import re

from ...doctor.families.record.block_swap import by_ratio, halves, halves_and_one
from ...doctor.model import Component, Run

# the names of numbered blocks: Flux' double and single ones, those of Z-Image
_STACKS = (
    r"(?:.*\.)?(?:double_blocks|transformer_blocks)\.(\d+)\.",
    r"(?:.*\.)?(?:single_blocks|single_transformer_blocks)\.(\d+)\.",
    r"layers\.(\d+)\.",
)
# double and single blocks of what is published in one size
_SIZES = {
    "fpack": (20, 40),
    "hunyuan_image": (20, 40),
    "hv": (20, 40),
    "hv_1_5": (54, 0),
    "ideogram4": (34, 0),
    "krea2": (28, 0),
    "lumina": (26, 0),
    "qwen_image": (60, 0),
}
# of one stack as many stay on the card, and of each of two
_STAY = {"fpack": 1, "hv": 1, "hv_1_5": 3, "ideogram4": 1, "qwen_image": 1, "wan": 1}
# one single block more goes with an odd number
_ONE_MORE = ("flux_kontext", "fpack", "hv")


def most_swapped(run: Run, transformer: Component | None) -> tuple[int, str] | None:
    """How many blocks may be swapped, and how that is known; None where it is not."""
    family = re.sub(r"_train(_.*)?$", "", run.process_type)
    for counts, how in (
        (_held(transformer), "counted in the header of its file"),
        (_published(run, family), "as published"),
    ):
        if any(counts):
            return most(family, *counts), how
    return None


def most(family: str, doubles: int, singles: int) -> int:
    """The largest blocks_to_swap that a model of so many blocks takes."""
    stay = _STAY.get(family, 2)
    if not doubles or not singles:
        return doubles + singles - stay
    takes = (
        n
        for n in range(doubles + singles)
        for double, single in [_shares(family, n, doubles, singles)]
        if double <= doubles - stay and single <= singles - stay
    )
    return max(takes)


def _shares(family: str, n: int, doubles: int, singles: int) -> tuple[int, ...]:
    """How many of each stack go when `n` are asked for."""
    how = by_ratio if family == "flux_2" else halves_and_one if family in _ONE_MORE else halves
    return how(n, (doubles, singles))


def _held(transformer: Component | None) -> tuple[int, int]:
    """The blocks that the file holds."""
    names = () if transformer is None else transformer.tensors
    numbers = ({found[1] for name in names if (found := re.match(stack, name))} for stack in _STACKS)
    doubles, singles, layers = map(len, numbers)
    return (doubles, singles) if doubles and singles else (layers, 0)


def _published(run: Run, family: str) -> tuple[int, int]:
    if family == "wan":
        return (30 if "1.3B" in str(run.setting("task")) else 40), 0
    if family == "flux_2":
        version = str(run.setting("model_version") or "dev")
        return (5, 20) if "4b" in version else (8, 24) if "9b" in version else (8, 48)
    return _SIZES.get(family, (0, 0))
