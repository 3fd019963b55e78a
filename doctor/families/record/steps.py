"""What a training step of a transformer holds, as mined from the class itself: `held/`, and how it is read.

maintenance/mine_steps.py writes a file for each class there. A row is an amount of bytes for each of what
`terms` counts.
For each way of computing (doctor/train/rehearsal/step.py), for `one` picture at a time and for `several`, the file
has the rows of each list of blocks, in the order they run: what each block leaves behind (`carry` where it is
computed again in backward, `keep` where it is not), and the highest beside that while backward goes through one
(`again` and `moment`), before the first of them (`before`) and while a picture is drawn (`drawing`), of which the
largest row counts. A model without lists of blocks is one block of a list without a name. Where the blocks of a list
differ, `parts` has how many there are of each kind, in their order, with its rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from math import sqrt
from pathlib import Path
from typing import Any

from ...model.record import dataclass

HELD = Path(__file__).with_name("held")
WHOLE = ""  # the list of a model that has no lists of blocks
# Words after a way: a LoRA that does not learn was quantized, too; prompts have fewer tokens than are multiplied in
# 8 bits; what attention keeps waits in host memory; the network is a LoKr.
SCALED = "scaled-kept"  # a Linear keeps what it was given, scaled for 8 bits
ADAPTED, FEW, OFFLOADED, LOKR = " adapted", " few", " offloaded", " LoKr"
EIGHT_BITS = "eight bits"  # our own runner's Linears, which make a matrix for each product
HALF_NORMS = " before torch 2.12"  # since which autocast makes what rms_norm is given 32 bits
Row = Sequence[float]
# places of what `terms` counts: pairs of tokens, and one
PAIRS, NOTHING = (6, 8, 9), 7


@dataclass(frozen=True)
class Tokens:
    """What a step is made with: `batch` pictures of `image` and `text` tokens each, and the rank of the LoRA.

    Of what there is for its weights alone, copies and gradients, there is the share `weights`.
    """

    batch: int
    image: int
    text: int
    rank: int
    weights: float = 1.0


@dataclass(frozen=True)
class BlockList:
    """A list of blocks: how many there are, and their share of what is trained."""

    name: str
    count: int
    share: float


def terms(tokens: Tokens) -> tuple[float, ...]:
    """What bytes are counted for.

    Tokens of pictures, tokens of prompts, pictures; both tokens and none for each rank of the LoRA; pairs of all
    tokens, for which a mask may be held; one; and pairs of a picture's tokens, and of a prompt's, which a row may
    leave out.
    """
    size, rank = tokens.batch, tokens.rank
    image, text = size * tokens.image, size * tokens.text
    pairs = (size * (tokens.image + tokens.text) ** 2, size * tokens.image**2, size * tokens.text**2)
    return image, text, size, image * rank, text * rank, rank * tokens.weights, pairs[0], 1, *pairs[1:]


@cache
def _mined() -> frozenset[str]:
    return frozenset(file.relative_to(HELD).with_suffix("").as_posix() for file in HELD.rglob("*.json"))


@cache
def _of(class_name: str) -> Mapping[str, Any]:
    if class_name not in _mined():  # which a config may have named
        return {}
    found: Mapping[str, Any] = json.loads((HELD / f"{class_name}.json").read_text("utf-8"))
    return found


def vae_bytes(class_name: str, *, autocast: bool = False) -> tuple[float, float] | None:
    """What a VAE takes in 16 bits for a pixel that it encodes, and decodes; None for a class that was not mined."""
    found = _of(class_name)
    decode = "decode under autocast" if autocast else "decode"
    return (found["encode"], found[decode]) if found else None


def mined_tables(class_name: str) -> Sequence[Mapping[str, Any]]:
    """What was mined of a class, for each of its published configs; nothing where it was not."""
    tables: Sequence[Mapping[str, Any]] = _of(class_name).get("tables", ())
    return tables


@dataclass(frozen=True)
class Steps:
    """The rows of one published config. Those of a model `scale` times as wide are as much larger."""

    ways: Mapping[str, Any]
    scale: float = 1.0

    @property
    def lists(self) -> tuple[str, ...]:
        """The lists of blocks in the order they run."""
        return tuple(next(iter(self.ways.values()))["one"]["lists"])

    def knows(self, way: str, *, again: bool) -> bool:
        """Whether it was mined what a step in this way holds, where blocks are computed `again` or all is kept."""
        if way not in self.ways:
            return False
        whole = self.ways[way]["one"]["lists"].get(WHOLE)
        return whole is None or not again or bool(whole["again"])

    def drawing(self, way: str, tokens: Tokens) -> int:
        """Bytes beside the weights while a picture is drawn."""
        return self._highest(self._rows(way, tokens)["drawing"], tokens)

    def held(
        self,
        way: str,
        tokens: Tokens,
        lists: Sequence[BlockList],
        *,
        again: bool,
        interval: int,
        segment: int,
        grown: int,
        moved: bool = False,
    ) -> tuple[int, int]:
        """Bytes of activations and of gradients at the highest of forward and backward.

        `lists` are those that backward goes through. `again`: of each `interval` blocks the first `segment` are
        computed again, together. `grown` are the bytes of all gradients, which there are after backward. With `moved`
        what blocks that are computed again leave behind waits in host memory, but for that of the one that runs.
        """
        mined = self._rows(way, tokens)
        rows, before = mined["lists"], mined.get("before")
        found = [(self._highest(before, tokens), 0)] if before else []
        left = after = 0.0
        for one, block in (part for blocks in lists for part in _parts(blocks, rows[blocks.name])):
            keep = self._bytes(block["keep"], tokens)
            carry = self._bytes(block["carry"], tokens) if again else keep
            highest = self._highest(block["again" if again else "moment"], tokens)
            segments, kept, trailing = one.count, 0, 0
            if carry < keep:  # not all lists are computed again
                segments = -(-one.count // interval)
                last = one.count - (segments - 1) * interval
                trailing = max(0, last - segment)
                kept = (segments - 1) * max(0, interval - segment) + trailing
                highest += int((min(segment, one.count) - 1) * keep)
            after += one.share
            waits = moved and carry < keep
            first, later = left + carry, left + carry * (1 if waits else segments) + kept * keep
            if trailing:  # backward goes through these first, and they are gone then
                moment = self._highest(block["moment"], tokens)
                found.append((int(later + moment), int(grown * max(0.0, 1.0 - after))))
            through = later - trailing * keep
            for there, share in ((through, after), (first, after - one.share * (one.count - 1) / max(1, one.count))):
                found.append((int(there + highest), int(grown * max(0.0, 1.0 - share))))
            left = left if waits else later
        return max(found, key=sum, default=(0, 0))

    def _rows(self, way: str, tokens: Tokens) -> Any:
        return self.ways[way]["one" if tokens.batch == 1 else "several"]

    def _highest(self, rows: Sequence[Row], tokens: Tokens) -> int:
        return int(max(self._bytes(row, tokens) for row in rows))

    def _bytes(self, row: Row, tokens: Tokens) -> float:
        return self.scale * sum(amount * count for amount, count in zip(row, terms(tokens), strict=False))


def _parts(one: BlockList, block: Mapping[str, Any]) -> list[tuple[BlockList, Mapping[str, Any]]]:
    """The blocks of each kind in a list, with their rows."""
    if "parts" not in block:
        return [(one, block)]
    every = sum(count for count, _ in block["parts"])
    return [
        (BlockList(one.name, round(one.count * count / every), one.share * count / every), rows)
        for count, rows in block["parts"]
    ]


def steps_of(class_name: str, config: Mapping[str, Any], numbers: Mapping[str, int]) -> Steps | None:
    """The rows of a model by its config and the numbers in the Linears of a block of each list; None for a class that
    was not mined.

    Where none of the published models has blocks of this size, those of the one that is nearest are scaled.
    """

    def scale(table: Mapping[str, Any]) -> float:
        shares = [numbers[name] / mined for name, mined in table["numbers"].items() if numbers.get(name)]
        return sqrt(sum(shares) / len(shares)) if shares else 1.0

    tables = mined_tables(class_name)
    switches = {key for table in tables for key, value in table["config"].items() if isinstance(value, bool)}

    def others(table: Mapping[str, Any]) -> int:
        return sum(bool(table["config"].get(key)) != bool(config.get(key)) for key in switches)

    nearest = min(tables, key=lambda table: (others(table), abs(scale(table) - 1.0)), default=None)
    return None if nearest is None else Steps(nearest["ways"], scale(nearest))
