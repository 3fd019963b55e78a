"""The numbers of a LoRA, all of them, without numpy: a float's sign and exponent begin in its last byte.

Every second (or fourth) byte is sliced out and compared in C: 200 MB take a quarter of a second.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from math import prod
from typing import Any

from ..model import Tensor, Unknown, WeightFile
from ..model.lora import LoraValues, TensorValues
from ..model.record import dataclass
from .world import World
from .world.safetensors import offsets

_INTEGERS = ("I64", "I32", "I16", "I8", "U64", "U32", "U16", "U8")
_CHUNK = 1 << 20  # what a core keeps at hand
_USUAL = 0x3C  # most numbers of a LoRA have no larger last byte
_AT_OR_BELOW = [bytes(byte for byte in range(256) if byte & 0x7F <= top) for top in range(128)]


@dataclass(frozen=True)
class _Float:
    """A type of numbers in files: the bytes of one, and what is NaN or infinite.

    `value_of` reads one number. `bad` are the last bytes, without their sign, that only NaN and infinite numbers
    have; of those with the byte `edge` the numbers are whose byte before it is `edge_low` or more. `largest` are the
    bytes of the largest number.
    """

    size: int
    value_of: Callable[[bytes], float]
    bad: tuple[int, ...]
    edge: int = -1
    edge_low: int = 0
    largest: bytes = b""

    def beginning(self, last: int) -> float:
        """The smallest number whose last byte is this one."""
        return self.value_of(bytes(self.size - 1) + bytes([last]))


def _e4m3(data: bytes) -> float:
    exponent, mantissa = data[0] >> 3 & 15, data[0] & 7
    size = (1 + mantissa / 8) * 2.0 ** (exponent - 7) if exponent else mantissa / 8 * 2.0**-6
    return -size if data[0] & 0x80 else size


def _as(code: str, size: int) -> Callable[[bytes], float]:
    """A reader of numbers that lack their first bytes, which are zero then."""
    return lambda data: float(struct.unpack(f"<{code}", bytes(size - len(data)) + data)[0])


_FLOATS = {
    "F64": _Float(8, _as("d", 8), (), 0x7F, 0xF0),
    "F32": _Float(4, _as("f", 4), (), 0x7F, 0x80),
    "BF16": _Float(2, _as("f", 4), (), 0x7F, 0x80),
    "F16": _Float(2, _as("e", 2), (0x7C, 0x7D, 0x7E, 0x7F), largest=b"\xff\x7b"),
    "F8_E5M2": _Float(1, _as("e", 2), (0x7C, 0x7D, 0x7E, 0x7F), largest=b"\x7b"),
    "F8_E4M3": _Float(1, _e4m3, (0x7F,), largest=b"\x7e"),
}


def probe_values(world: World, file: WeightFile, progress: Any = None) -> LoraValues | Unknown:
    """What the numbers of every tensor are. Unknown where the file cannot be read to its end."""
    places = offsets(world, file.path)
    if isinstance(places, Unknown):
        return places
    found: dict[str, TensorValues] = {}
    unread: list[str] = []
    for name, (begin, end) in sorted(places.items(), key=lambda place: place[1]):
        tensor = file.tensors[name]
        if tensor.dtype in _INTEGERS and prod(tensor.shape) == 1:  # alpha, as some write it
            data = world.read(file.path, begin, end - begin)
            values = data if isinstance(data, Unknown) else _integer(tensor, data)
        elif tensor.dtype in _FLOATS:
            values = _values(world, file.path, tensor, begin, end)
        else:
            unread.append(name)
            continue
        if isinstance(values, Unknown):
            return values
        found[name] = values
        if progress is not None:
            progress(end, file.size, file.name)
    return LoraValues(found, tuple(unread))


def _integer(tensor: Tensor, data: bytes) -> TensorValues:
    number = float(int.from_bytes(data, "little", signed=tensor.dtype.startswith("I")))
    return TensorValues(not any(data), False, abs(number), abs(number), 0, number)


def _values(world: World, path: str, tensor: Tensor, begin: int, end: int) -> TensorValues | Unknown:
    kind = _FLOATS[tensor.dtype]
    zero, bad, top, clipped = True, False, 0, 0
    number: float | None = 0.0
    for start in range(begin, end, _CHUNK):
        length = min(_CHUNK, end - start)
        data = world.read(path, start, length)
        if isinstance(data, Unknown):
            return data
        if len(data) != length:
            return Unknown(f"{path} changed while it was read")
        if not any(data[:64]) and data.count(0) == length:
            continue
        last = data[kind.size - 1 :: kind.size]
        zero = zero and not last.strip(b"\0\x80") and data.count(0) + last.count(0x80) == length
        odd = _bad(kind, data, last)
        number = None if odd or length != kind.size else kind.value_of(data)
        bad = bad or odd
        top = max(top, _top(last, top, kind, odd))
        if kind.largest and top == kind.largest[-1]:
            clipped += _clipped(kind, data, last)
    return TensorValues(zero, bad, *_sizes(kind, top, zero), clipped, number if end - begin == kind.size else None)


def _bad(kind: _Float, data: bytes, last: bytes) -> bool:
    """Whether a number is NaN or infinite."""
    if any(byte in last or byte | 0x80 in last for byte in kind.bad):
        return True
    if kind.edge < 0 or not (kind.edge in last or kind.edge | 0x80 in last):
        return False
    return _both(kind, data, last, kind.edge, range(kind.edge_low, 256)) > 0


def _both(kind: _Float, data: bytes, last: bytes, top: int, below: Iterable[int]) -> int:
    """How many numbers have this last byte, of either sign, and one of those `below` before it."""
    before = data[kind.size - 2 :: kind.size].translate(_ones(below))
    both = int.from_bytes(last.translate(_ones((top, top | 0x80))), "big") & int.from_bytes(before, "big")
    return both.to_bytes(len(last), "big").count(1)


def _ones(marked: Iterable[int]) -> bytes:
    """A table for translate: 1 for these bytes, 0 for all others."""
    table = bytearray(256)
    for byte in marked:
        table[byte] = 1
    return bytes(table)


def _top(last: bytes, known: int, kind: _Float, odd: bool) -> int:
    """The largest last byte without its sign, of finite numbers; `known` where none is larger."""
    usual = max(known, _USUAL)
    first = 0x7F if last.translate(None, _AT_OR_BELOW[usual]) else usual
    odds = {*kind.bad, kind.edge} if odd else set(kind.bad)
    for top in range(first, known, -1):
        if (top in last or top | 0x80 in last) and top not in odds:
            return top
    return known


def _clipped(kind: _Float, data: bytes, last: bytes) -> int:
    """How many numbers are the largest of the type, of either sign."""
    if kind.size == 1:
        return last.count(kind.largest) + last.count(bytes([kind.largest[0] | 0x80]))
    return _both(kind, data, last, kind.largest[-1], kind.largest[:1])


def _sizes(kind: _Float, top: int, zero: bool) -> tuple[float, float]:
    if zero:
        return 0.0, 0.0
    return kind.beginning(top), float("inf") if top == 0x7F else kind.beginning(top + 1)
