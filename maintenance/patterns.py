"""The names of a model's tensors as patterns: those of blocks that are alike once, for lists of any length."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from zdoctor.maintenance.builders import Tree
from zdoctor.maintenance.remembering import text_of


def lengths_of(tree: Tree) -> dict[str, int]:
    """List of blocks -> how many."""
    found: dict[str, int] = {}
    for name in tree:
        for match in re.finditer(r"\.(\d+)(?=\.)", name):
            before = name[: match.start()]
            found[before] = max(found.get(before, 0), int(match.group(1)) + 1)
    return found


def patterns_of(tree: Tree, lists: Mapping[str, str]) -> dict[str, list[str]]:
    """Shape -> names of tensors, those of blocks that are alike once."""
    found: dict[str, list[str]] = {}
    blocks: dict[tuple[str, str, str], set[int]] = {}
    lengths = lengths_of(tree)
    for name, sizes in tree.items():
        shape = " × ".join(ast.unparse(ast.parse(text_of(size), mode="eval")) for size in sizes)
        before = next((one for one in lists if re.match(rf"{re.escape(one)}\.\d+\.", name)), None)
        if before is None:
            found.setdefault(shape, []).append(name)
            continue
        number, _, after = name[len(before) + 1 :].partition(".")
        blocks.setdefault((shape, before, after), set()).add(int(number))
    for (shape, before, after), numbers in blocks.items():
        for which in _slices(numbers, lengths[before]):
            found.setdefault(shape, []).append(f"{before}.{which}.{after}")
    return found


def _slices(numbers: set[int], length: int) -> list[str]:
    """The blocks of these numbers in a list of any length: all, or those from and to a place near an end."""
    if len(numbers) == length:
        return ["*"]
    first = next(n for n in range(length + 1) if n not in numbers)
    last = next(n for n in range(length + 1) if length - 1 - n not in numbers)
    middle = numbers - {*range(first), *range(length - last, length)}
    if middle and middle == {*range(min(middle), max(middle) + 1)}:
        start, stop = min(middle), max(middle) + 1 - length
        return [*_slices(numbers - middle, length), f"[{start}:{stop}]"]
    if middle:
        return [str(number) for number in sorted(numbers)]
    if not (first and last) and first + last > length // 2:  # nearly all of them
        return [f"[:{first - length}]" if first else f"[{length - last}:]"]
    return [text for text, many in ((f"[:{first}]", first), (f"[-{last}:]", last)) if many]
