"""The layers of a model by their names: in which lists of blocks they are, how many, and how large."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import prod
from typing import TypeVar

from ..families.network import Linears
from ..families.record.blocks import block_of
from ..families.record.steps import BlockList

_Shape = TypeVar("_Shape", bound=tuple[int, ...])

_EMBEDDINGS_AND_HEADS = (
    *("embed_tokens.weight", "shared.weight", "relative_attention_bias.weight", "lm_head.weight"),
    *("token_embedding.weight", "position_embedding.weight"),  # of CLIP
)


def fused_linears(linears: Linears) -> dict[str, tuple[int, int]]:
    """Query, key and value of each attention as one Linear."""
    found: dict[str, tuple[int, int]] = {}
    for name in (name for name in linears if name.endswith(".to_q")):
        before = name.removesuffix("to_q")
        shapes = [linears[before + part] for part in ("to_q", "to_k", "to_v")]
        found[f"{before}to_qkv"] = (sum(shape[0] for shape in shapes), shapes[0][1])
    return found


def as_linears(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, int]]:
    """All layers of a model that is put in 8 bits as a whole, as if each were a Linear."""
    return {name: (shape[0], prod(shape[1:])) for name, shape in all_layers(shapes).items()}


def without(linears: Mapping[str, _Shape], left_out: str) -> dict[str, _Shape]:
    return {name: shape for name, shape in linears.items() if not left_out or not re.search(left_out, name)}


def in_8_bits(
    blocks: Mapping[str, tuple[int, int]], every: Mapping[str, tuple[int, int]], name: str, count: int
) -> tuple[int, int, int]:
    """How many blocks a list has, and the numbers in the Linears of one: those that may be in 8 bits, and others."""
    quantized, whole = numbers_in(blocks, name), numbers_in(every, name)
    return count, quantized // max(1, count), (whole - quantized) // max(1, count)


def all_layers(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """The shapes by name of all Linears and convolutions."""
    found = {name: shape for name, shape in shapes.items() if name.endswith(".weight") and len(shape) in (2, 4)}
    return {name.removesuffix(".weight"): shape for name, shape in found.items()}


def _in_list(linears: Mapping[str, tuple[int, ...]], name: str) -> dict[str, tuple[int, ...]]:
    return {key: shape for key, shape in linears.items() if key.startswith(name + ".")}


def numbers_in(linears: Mapping[str, tuple[int, ...]], name: str) -> int:
    return sum(map(prod, _in_list(linears, name).values()))


def count_of(linears: Mapping[str, tuple[int, ...]], name: str) -> int:
    return len({key.removeprefix(f"{name}.").partition(".")[0] for key in _in_list(linears, name)})


def block_lists(
    order: Sequence[str], counts: Mapping[str, int], linears: Linears, *, every: bool
) -> tuple[BlockList, ...]:
    """The lists from the first with a LoRA on, in the order they run, each with its share of the LoRA.

    With `every` all of them: where blocks are computed again, kohya's trainers go back to what the model is given.
    """
    sides = {name: sum(map(sum, _in_list(linears, name).values())) for name in order}
    first = 0 if every else next((place for place, name in enumerate(order) if sides[name]), 0)
    whole = max(1, sum(sides.values()))
    return tuple(BlockList(name, counts[name], sides[name] / whole) for name in order[first:] if counts[name])


def largest_block(shapes: Mapping[str, tuple[int, ...]], lists: Sequence[str]) -> int:
    """Of weights in the blocks of these lists."""
    found: dict[str, int] = {}
    for name, shape in shapes.items():
        block = block_of(name, lists)
        found[block] = found.get(block, 0) + prod(shape)
    return max(found.values(), default=0)


def is_text_linear(name: str, shape: tuple[int, ...]) -> bool:
    """Whether this is the weight of a Linear inside a text encoder, not of an embedding or a head."""
    return len(shape) == 2 and name.endswith(".weight") and not name.endswith(_EMBEDDINGS_AND_HEADS)
