"""What is left of a file that was cut off, so that only the rest has to be downloaded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...model import HubFile, Unknown
from ...model.record import replace
from ..world import Stat, World
from .content import structure

_DISGUISES = (b"<", b"version https://git-lfs")


def with_beginning(world: World, file: HubFile, partials: Sequence[tuple[str, int, bool]]) -> HubFile:
    """`file` with the longest piece of it that lies here: itself, or one of the left-over downloads `partials`.

    Only the digest can tell whether a piece is right, so a file without one gets none. Raises Unreadable.
    """
    if file.state == "ok" or not file.needed or file.good_copy is not None or file.digest is None:
        return file
    address = file.digest.partition(":")[2]
    pieces = [
        (path, size)
        for path, size, alive in partials
        if not alive and address in world.name(path).split(".") and 0 < size <= (file.size or size)
    ]
    pieces += _itself(world, file)
    return replace(file, prefix=max(pieces, key=lambda piece: piece[1], default=None))


def _itself(world: World, file: HubFile) -> Iterator[tuple[str, int]]:
    """The file, where it is too short and nothing else under its name."""
    if file.state not in ("wrong-size", "broken-structure"):
        return
    final, stat = world.resolve(file.path)
    if not isinstance(stat, Stat) or not 0 < stat.size < (file.size or stat.size + 1):
        return
    if file.name.endswith(".safetensors"):
        if structure(world, final, stat).problem == "truncated":
            yield final, stat.size
        return
    start = world.read(final, 0, 64)
    if not isinstance(start, Unknown) and not start.lstrip().startswith(_DISGUISES) and file.size is not None:
        yield final, stat.size
