"""Step: tensors of a safetensors file are written to a new one, under other names. Their numbers stay the same."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from ...model import WriteTensors
from ...model.plans import CopiedTensor
from ..actions.build import make
from ..actions.copy import Meter
from ..actions.errors import ApplyError
from ..actions.paths import at
from .needs import Needs, Work

_CHUNK = 1 << 20


def describe(step: WriteTensors) -> str:
    return f"write {step.path}: {len(step.tensors)} tensors of {step.source}, {', '.join(step.changes)}"


def precheck(step: WriteTensors, path: Path, needs: Needs) -> None:
    source = at(step.source)
    needs.source(source, step.size)
    needs.new_folder(path)
    needs.room(path, size=2 * step.size)  # of a fused pair each part has its own A


def perform(steps: Sequence[WriteTensors], path: Path, work: Work) -> None:
    make(work.journal, path, lambda part: _write(steps[0], part, work.meter))


def _write(step: WriteTensors, target: Path, meter: Meter) -> None:
    with at(step.source).open("rb") as source, target.open("xb") as file:
        length = struct.unpack("<Q", source.read(8))[0]
        held = json.loads(source.read(length))
        made, places = _header(step, held)
        text = json.dumps(made, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor, (begin, end) in zip(step.tensors, places, strict=True):
            if tensor.number is not None:
                file.write(struct.pack("<f", tensor.number))
            else:
                _copy(source, 8 + length + begin, end - begin, file)
                meter(end - begin, target.name)
        file.flush()
        os.fsync(file.fileno())


def _header(step: WriteTensors, held: dict[str, Any]) -> tuple[dict[str, Any], list[tuple[int, int]]]:
    """The header of the new file, and where the bytes of each of its tensors lie in the old one."""
    made: dict[str, Any] = {"__metadata__": dict(step.metadata)} if step.metadata else {}
    places: list[tuple[int, int]] = []
    position = 0
    for tensor in step.tensors:
        dtype, shape, (begin, end) = _held(tensor, held)
        made[tensor.name] = {"dtype": dtype, "shape": shape, "data_offsets": [position, position + end - begin]}
        position += end - begin
        places.append((begin, end))
    return made, places


def _held(tensor: CopiedTensor, held: dict[str, Any]) -> tuple[str, list[int], tuple[int, int]]:
    """The type, shape and place of a tensor of the new file. Raises ApplyError where the old one has none such."""
    if tensor.number is not None:
        return "F32", [], (0, 4)
    try:
        dtype, shape, (begin, end) = (held[tensor.source][key] for key in ("dtype", "shape", "data_offsets"))
        if tensor.rows is None:
            return dtype, shape, (begin, end)
        first, last = tensor.rows
        row = (end - begin) // shape[0]
        return dtype, [last - first, *shape[1:]], (begin + first * row, begin + last * row)
    except (KeyError, ValueError, IndexError, ZeroDivisionError) as error:
        raise ApplyError(f"{tensor.source} is not in the file as it was") from error


def _copy(source: BinaryIO, start: int, length: int, file: BinaryIO) -> None:
    source.seek(start)
    for chunk in _chunks(source, length):
        file.write(chunk)


def _chunks(source: BinaryIO, length: int) -> Iterator[bytes]:
    while length:
        chunk = source.read(min(_CHUNK, length))
        if not chunk:
            raise ApplyError("the file became shorter while it was read")
        length -= len(chunk)
        yield chunk
