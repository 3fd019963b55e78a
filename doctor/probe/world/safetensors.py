"""The header of a weight file: what tensors it holds, and whether its structure is sound. Data is never read.

Pickles (.bin, .pt, .ckpt) are never opened beyond their first bytes: unpickling runs whatever code they carry.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

from ...model import Tensor, Unknown, WeightFile
from ...model.record import replace
from . import Stat, World

LARGEST_READ = 32 << 20
LARGEST_HEADER = 100_000_000
_FIRST_READ = 64 << 10
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")

_BY_BITS = {
    4: ("F4",),
    6: ("F6_E2M3", "F6_E3M2"),
    8: ("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"),
    16: ("I16", "U16", "F16", "BF16"),
    32: ("I32", "U32", "F32"),
    64: ("C64", "F64", "I64", "U64"),
}
BITS = {dtype: bits for bits, dtypes in _BY_BITS.items() for dtype in dtypes}


Problem = Literal["empty", "truncated", "not-safetensors", "bad-header", "pickle", "unreadable"]


class BadFile(Exception):
    """The file breaks the format, or cannot be read; the message says how."""

    def __init__(self, detail: str, problem: Problem = "bad-header") -> None:
        super().__init__(detail)
        self.problem = problem


def read_weight_file(world: World, path: str, name: str = "") -> WeightFile:
    """The weight file at the absolute `path`; `name` is what messages call it. Links are followed; never raises."""
    name = name or world.name(path)
    _, stat = world.resolve(path)
    if stat is None:
        return WeightFile(name, path, 0, problem="missing")
    if isinstance(stat, Unknown):
        return WeightFile(name, path, 0, problem="unreadable", detail=stat.reason)
    if stat.kind != "file":
        return WeightFile(name, path, 0, problem="unreadable", detail="it is not a file")
    return read_header(world, path, name, stat)


@lru_cache(maxsize=4096)  # a config is examined several times: as it stands, and with each repair
def read_header(world: World, path: str, name: str, stat: Stat) -> WeightFile:
    """As `read_weight_file`, for a file whose stat is known."""
    seen = WeightFile(name, path, stat.size)
    try:
        header = _header(world, path, stat.size)
        tree = parse_tree(header)
        seen = replace(seen, metadata=parse_metadata(tree))
        tensors, end = parse_tensors(header, tree)
        seen = replace(seen, tensors=tensors)
        expected = 8 + len(header) + end
        if seen.size < expected:
            missing = f"{seen.size} bytes of {expected}: {expected - seen.size} are missing at the end"
            raise BadFile(missing, "truncated")
        if seen.size > expected:
            raise BadFile(f"{seen.size - expected} bytes too many after the last tensor")
    except BadFile as error:
        return replace(seen, problem=error.problem, detail=str(error))
    return seen


forget_headers = read_header.cache_clear  # for a process that looks again and again


def offsets(world: World, path: str) -> dict[str, tuple[int, int]] | Unknown:
    """Where each tensor of a sound file begins and ends, counted from the beginning of the file."""
    _, stat = world.resolve(path)
    try:
        header = _header(world, path, stat.size if isinstance(stat, Stat) else 0)
        tree = parse_tree(header)
    except BadFile as error:
        return Unknown(str(error))
    tree.pop("__metadata__", None)
    behind = 8 + len(header)
    return {name: (behind + of["data_offsets"][0], behind + of["data_offsets"][1]) for name, of in tree.items()}


def _header(world: World, path: str, size: int) -> bytes:
    """The header's text. Raises BadFile."""
    if size == 0:
        raise BadFile("0 bytes", "empty")
    start = _bytes(world, path, 0, min(size, _FIRST_READ))
    length = int.from_bytes(start[:8], "little")
    pickle = path.lower().endswith(_PICKLES)
    # Two letters can be an honest header length, so content is guessed at only where the length cannot be right.
    disguise = _disguise(start) if pickle or length > LARGEST_HEADER or 8 + length > size else ""
    if disguise and not (pickle and "pickle" in disguise):
        raise BadFile(disguise, "not-safetensors")
    if pickle:
        raise BadFile("a Python pickle, not opened", "pickle")
    if len(start) < 8:
        raise BadFile(f"{size} bytes, the format begins with 8", "truncated")
    if length > LARGEST_HEADER:
        raise BadFile("its first 8 bytes are no header length", "not-safetensors")
    if 8 + length > size:
        raise BadFile(f"{size} bytes, its header alone takes {8 + length}", "truncated")
    if length > LARGEST_READ:
        raise BadFile(f"a header of {length} bytes is not read", "unreadable")
    header = start[8 : 8 + length]
    return header if len(header) == length else header + _bytes(world, path, len(start), length - len(header))


def _bytes(world: World, path: str, start: int, length: int) -> bytes:
    found = world.read(path, start, length)
    if isinstance(found, Unknown):
        raise BadFile(found.reason, "unreadable")
    return found


def parse_tree(header: bytes) -> dict[str, Any]:
    try:
        tree = json.loads(header.decode("utf-8"), parse_constant=_no_constant, parse_float=str)
    except UnicodeDecodeError:
        raise BadFile("the header is not UTF-8 text") from None
    except RecursionError:
        raise BadFile("the header nests too deeply") from None
    except ValueError:
        filled = "it is all zeros" if not header.strip(b"\0") else "the header is not JSON"
        raise BadFile(filled) from None
    if not isinstance(tree, dict):
        raise BadFile("the header is no JSON object")
    return tree


def parse_metadata(tree: dict[str, Any]) -> Mapping[str, str]:
    metadata = tree.pop("__metadata__", None)
    if metadata is None:
        return {}
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        raise BadFile("__metadata__ holds something other than text")
    return metadata


def parse_tensors(header: bytes, tree: Mapping[str, Any]) -> tuple[dict[str, Tensor], int]:
    """Tensors of a header, and where the last one ends, counted from the end of the header. Raises BadFile."""
    tensors: dict[str, Tensor] = {}
    spans: list[tuple[int, int, str]] = []
    # A model repeats a few dozen shapes hundreds of times: each is examined once. To Python true is 1, so where the
    # word stands anywhere, every tensor is.
    made: dict[tuple[object, ...], tuple[Tensor, int]] = {}
    by_shape = b"true" not in header and b"false" not in header
    for name, value in tree.items():
        known = _again(value, made) if by_shape else None
        if known is None:
            dtype, shape, begin, end = _entry(name, value)
            made[(dtype, *shape)] = Tensor(dtype, tuple(shape)), end - begin
            known = made[(dtype, *shape)][0], begin, end
        tensors[name], begin, end = known
        spans.append((begin, end, name))
    spans.sort()
    position = 0
    for begin, end, name in spans:
        if begin != position:
            raise BadFile(f"tensor {_shown(name)} begins at byte {begin}, the one before it ends at {position}")
        position = end
    return tensors, position


def _again(value: Any, made: Mapping[tuple[object, ...], tuple[Tensor, int]]) -> tuple[Tensor, int, int] | None:
    """The tensor of this shape that was made before, and where this one begins and ends; None when there is more to
    look at."""
    try:
        begin, end = value["data_offsets"]
        tensor, size = made[(value["dtype"], *value["shape"])]
    except (KeyError, TypeError, ValueError):
        return None
    is_sound = type(begin) is int and type(end) is int and begin >= 0 and end - begin == size
    return (tensor, begin, end) if is_sound else None


def _entry(name: str, value: Any) -> tuple[str, list[int], int, int]:
    try:
        dtype, shape, (begin, end) = value["dtype"], value["shape"], value["data_offsets"]
        bits = BITS[dtype]
    except (KeyError, TypeError, ValueError):
        raise BadFile(f"tensor {_shown(name)} lacks a known dtype, a shape or offsets") from None
    if type(shape) is not list:
        raise BadFile(f"tensor {_shown(name)} has no shape")
    if type(begin) is not int or type(end) is not int or begin < 0:
        raise BadFile(f"tensor {_shown(name)} has an offset that is no whole number")
    for side in shape:
        if type(side) is not int or side < 0:
            raise BadFile(f"tensor {_shown(name)} has a size that is no whole number")
        bits *= side
        if bits >= 1 << 70:
            raise BadFile(f"tensor {_shown(name)} has an impossible shape")
    if bits != 8 * (end - begin):
        raise BadFile(f"tensor {_shown(name)} has {end - begin} bytes, its shape and dtype take {bits / 8:.0f}")
    return dtype, shape, begin, end


def _no_constant(word: str) -> float:
    raise ValueError(word)


def _shown(name: str) -> str:
    return name if len(name) <= 80 else f"{name[:77]}..."


def _disguise(start: bytes) -> str:
    """What a file is that only bears the name of a weight file, "" when it shows no such sign."""
    text = start[:512].lstrip().lower()
    if text.startswith(b"version https://git-lfs"):
        return "a git-lfs pointer: the text that stands for the file until `git lfs pull` fetches it"
    if text.startswith((b"<!doctype", b"<html", b"<?xml", b"<head")):
        return "a web page, probably an error or login page saved in place of the file"
    if text.startswith((b'{"', b"{\n", b'{"error')):
        return "a JSON text, not weights"
    if start.startswith(b"PK\x03\x04"):
        return "a PyTorch pickle under another name" if b"data.pkl" in start[:512] else "a zip archive"
    if start.startswith(b"\x80") and start[1:2] in b"\x02\x03\x04\x05":
        return "a Python pickle under another name"
    if start.startswith(b"GGUF"):
        return "a GGUF file"
    if start.startswith(b"\x1f\x8b"):
        return "a gzip archive"
    return ""
