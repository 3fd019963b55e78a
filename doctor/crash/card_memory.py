"""Who holds the card that was full: the numbers with which PyTorch says that it got no memory."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..model.record import dataclass

# The allocator's words since torch 1.12: of CUDA and HIP to 2.0, and since; of XPU; of CUDA's own allocator
# (cudaMallocAsync), which lists them; of MPS.
_SIZE = r"([\d.]+ ?(?:bytes|[KMGT]i?B))"
_ASKED = re.compile(rf"Tried to allocate {_SIZE}|Requested *: {_SIZE}")
_TOTAL = re.compile(rf"{_SIZE} total capacity|total capac\w+ of {_SIZE}|Device limit *: {_SIZE}|max allowed: {_SIZE}")
_FREE = re.compile(rf"{_SIZE} free;|of which {_SIZE} is free|Free \(according to CUDA\): {_SIZE}")
_ALLOCATED = re.compile(
    rf"{_SIZE} already allocated|{_SIZE} is allocated by PyTorch|Currently allocated *: {_SIZE}"
    rf"|MPS allocated: {_SIZE}"
)
_RESERVED = re.compile(rf"{_SIZE} reserved in total by PyTorch")
_SPARE = re.compile(rf"{_SIZE} is reserved by PyTorch but unallocated")
_OWN = re.compile(rf"this process has {_SIZE} memory in use")
_APART = re.compile(rf"other allocations: {_SIZE}")
_PROCESS = re.compile(rf"Process \d+ has {_SIZE} memory in use")
_WORDS: Mapping[str, re.Pattern[str]] = {
    "asked": _ASKED,
    "total": _TOTAL,
    "free": _FREE,
    "allocated": _ALLOCATED,
    "reserved": _RESERVED,
    "spare": _SPARE,
    "own": _OWN,
    "apart": _APART,
}
_UNITS = ("b", "k", "m", "g", "t")
MIB, GIB = 1 << 20, 1 << 30
CONTEXT = GIB // 2  # what CUDA and its libraries take of a card beside PyTorch's own store
_LEAST_OTHERS = 2 * GIB
_LEAST_TOLD = GIB
_MUCH = 0.25  # of a card, from which on it is no small matter
_ROOM = 2  # times what was asked for, from which on it is not the card that is full
_SCATTERED = 0.08


@dataclass(frozen=True)
class Card:
    """What a message counts, in bytes; None where it does not.

    `own` is what this process holds with all that is not PyTorch's, `processes` what those that the message numbers
    hold: where it does not say which is this one, one of them is. `spare` is reserved and not in use, `apart`
    what a Mac's graphics hold beside PyTorch.
    """

    asked: int | None = None
    total: int | None = None
    free: int | None = None
    allocated: int | None = None
    reserved: int | None = None
    spare: int | None = None
    own: int | None = None
    apart: int | None = None
    processes: tuple[int, ...] = ()

    @property
    def kept(self) -> int | None:
        """What PyTorch holds, in use or not."""
        return self.reserved if self.reserved is not None else _sum(self.allocated, self.spare)

    @property
    def scattered(self) -> int:
        """What PyTorch holds without using it."""
        if self.spare is not None:
            return self.spare
        return 0 if self.reserved is None or self.allocated is None else self.reserved - self.allocated

    @property
    def counted(self) -> bool:
        """Whether the message tells this process from the others."""
        return self.own is not None or len(self.processes) > 1

    @property
    def others(self) -> int:
        """What neither is free nor held by this process, 0 where that cannot be told."""
        if self.apart is not None:
            return self.apart
        mine = self.own if self.own is not None or self.kept is None else self.kept + CONTEXT
        if self.total is None or self.free is None or mine is None:
            return 0
        return max(0, self.total - self.free - mine)

    @property
    def outside(self) -> int:
        """What this process holds that is not PyTorch's."""
        return 0 if self.own is None or self.kept is None else max(0, self.own - self.kept - CONTEXT)

    @property
    def is_outside(self) -> bool:
        """Whether that is more than libraries of CUDA take."""
        return self.total is not None and self.outside >= max(_LEAST_OTHERS, int(_MUCH * self.total))

    @property
    def is_refused(self) -> bool:
        """Whether the driver gave nothing, although the card had room."""
        if self.free is None or self.asked is None:
            return False
        return self.free >= max(GIB, _ROOM * self.asked)

    @property
    def is_shared(self) -> bool:
        """Whether others hold so much that this run is not to blame."""
        return self.total is not None and self.others >= max(_LEAST_OTHERS, int(_MUCH * self.total))

    @property
    def is_lent(self) -> bool:
        """Whether PyTorch holds more than there is: a driver lends it RAM."""
        return self.total is not None and self.kept is not None and self.kept > self.total

    @property
    def is_scattered(self) -> bool:
        """Whether what is asked for would fit into what lies there unused, were it in one piece."""
        if self.asked is None or self.total is None:
            return False
        return self.scattered >= max(GIB, _ROOM * self.asked, int(_SCATTERED * self.total))

    @property
    def is_one_piece(self) -> bool:
        """Whether one tensor is as large as half of the card."""
        return self.asked is not None and self.total is not None and 2 * self.asked >= self.total

    @property
    def beside(self) -> int:
        """What others hold, where it is worth a word."""
        return self.others if self.others >= _LEAST_TOLD else 0


def card_of(message: str) -> Card:
    """What a message counts."""
    words = " ".join(message.split())
    found = {name: pattern.search(words) for name, pattern in _WORDS.items()}
    sizes = {name: bytes_of(next(filter(None, one.groups()))) for name, one in found.items() if one is not None}
    return Card(**sizes, processes=tuple(bytes_of(one[1]) for one in _PROCESS.finditer(words)))


def bytes_of(size: str) -> int:
    """A size as PyTorch writes it; on a Mac GB once meant GiB."""
    found = re.fullmatch(r"([\d.]+) ?(\w+)", size)
    if found is None or found[1].count(".") > 1:
        return 0
    return int(float(found[1]) * 1024 ** _UNITS.index(found[2][0].lower()))


def size_of(count: int) -> str:
    """Bytes as they are told."""
    return f"{count / GIB:.1f} GiB" if count >= GIB else f"{count / MIB:.0f} MiB"


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None else one + (other or 0)
