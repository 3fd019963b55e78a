"""Safetensors files are read tensor by tensor, in the order they lie on disk, through one reused buffer."""

from __future__ import annotations

import json
import math
import mmap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from io import FileIO
from pathlib import Path

import psutil
import torch
from torch import Tensor

from ...families.part_files import shards_of
from ...model.amounts import few
from ...model.weights import SCALES
from ..runtime.atomic_files import drop_from_memory
from ..runtime.train_error import TrainError

DTYPES: dict[str, torch.dtype] = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
FLOATS = ("F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2")


@dataclass(frozen=True)
class TensorEntry:
    """One tensor of one file; `start` is its byte offset in the file, `size` its length in bytes.

    The halves of a `swapped` one change places when it is read; the columns of a `turned` one are rows in the file.
    """

    name: str
    file: Path
    dtype: str
    shape: tuple[int, ...]
    start: int
    size: int
    swapped: bool = False
    turned: bool = False

    def rows(self, start: int, stop: int) -> TensorEntry:
        width = self.size // self.shape[0]
        shape = (stop - start, *self.shape[1:])
        return replace(self, shape=shape, start=self.start + start * width, size=(stop - start) * width)


def read_header(file: Path) -> list[TensorEntry]:
    """Returns the tensors of a safetensors file by its header alone. Raises TrainError when the file is not whole."""
    try:
        total = file.stat().st_size
        with file.open("rb") as stream:
            first = stream.read(8)
            if first.startswith(b"GGUF"):
                raise TrainError(f"{file} is a GGUF file. Only safetensors files of plain weights can be used.")
            length = int.from_bytes(first, "little")
            if total < 8 or not 2 <= length <= total - 8:
                raise TrainError(f"{file} is not a safetensors file ({total} bytes, no header). Fetch it again.")
            header = json.loads(stream.read(length))
            header.pop("__metadata__", None)
            begin = 8 + length
            entries = [
                TensorEntry(name, file, info["dtype"], tuple(info["shape"]), begin + start, stop - start)
                for name, info in header.items()
                for start, stop in [info["data_offsets"]]
            ]
    except FileNotFoundError:
        raise TrainError(
            f"{file} does not exist, although the files beside it belong to a set with it. Fetch it again."
        ) from None
    except OSError as error:
        raise TrainError(f"{file} cannot be read: {error.strerror or error}.") from error
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        raise TrainError(f"The safetensors header of {file} is damaged. Fetch the file again.") from None
    end = max((entry.start + entry.size for entry in entries), default=begin)
    if end > total:
        raise TrainError(f"{file} is cut off: it has {total} bytes, its header promises {end}. Fetch it again.")
    return sorted(entries, key=lambda entry: entry.start)


def weight_files(folder: Path) -> list[Path]:
    """Returns the safetensors files that hold a component: all shards, or its only file. Raises TrainError.

    A file in place of the folder stands for itself, and the first shard for all of them.
    """
    if folder.is_file():
        return [folder.with_name(name) for name in shards_of(folder.name)]
    indexes = sorted(folder.glob("*.safetensors.index.json"))
    if indexes:
        try:
            names = sorted(set(json.loads(indexes[0].read_text(encoding="utf-8"))["weight_map"].values()))
        except (OSError, ValueError, KeyError, AttributeError, TypeError):
            raise TrainError(f"The index {indexes[0]} cannot be read. Fetch it again.") from None
        return [folder / name for name in names]
    files = sorted(folder.glob("*.safetensors"))
    if len(files) != 1:
        found = "no safetensors file" if not files else f"{len(files)} safetensors files and no index"
        raise TrainError(f"{folder} has {found}; expected one file, or shards with their .safetensors.index.json.")
    return files


def tensor_entries(files: list[Path]) -> dict[str, TensorEntry]:
    return {entry.name: entry for file in files for entry in read_header(file)}


def check_tensors(entries: Mapping[str, TensorEntry], expected: Mapping[str, tuple[int, ...]], folder: Path) -> None:
    """Raises TrainError when the files lack tensors that the model needs, or have them in another shape or format."""
    asker = "the others ask for" if folder.is_file() else "its config.json asks for"
    missing = [name for name in expected if name not in entries]
    if missing:
        raise TrainError(
            f"{len(missing)} of the {len(expected)} tensors that the model of {folder} needs are in none of its "
            f"files: {few(missing)}. They would stay empty (on meta) or random. Fetch the complete files again."
        )
    wrong = [name for name, shape in expected.items() if entries[name].shape != shape]
    if wrong:
        first = wrong[0]
        raise TrainError(
            f"{len(wrong)} tensors of {folder} have another shape than {asker}: {first} is "
            f"{list(entries[first].shape)} and should be {list(expected[first])}. They do not belong together."
        )
    odd = [name for name, shape in expected.items() if shape and entries[name].dtype not in FLOATS]  # () only counts
    if odd:
        raise TrainError(
            f"{folder} holds {entries[odd[0]].dtype} weights ({odd[0]}); only plain float weights can be used."
        )
    scales = [name for name in entries if name not in expected and name.endswith(SCALES)]
    if scales:
        raise TrainError(f"{folder} is a scaled 8-bit checkpoint ({scales[0]}); use the plain bf16 or f32 weights.")


def stream_tensors(entries: list[TensorEntry]) -> Iterator[tuple[TensorEntry, Tensor]]:
    """Yields each tensor in file and offset order. The tensor is a view of a buffer that the next one overwrites.

    Files too large for memory are dropped from the page cache as they are read, so that they do not push out what
    other programs use; smaller ones stay there, which makes the next start fast.
    """
    forget = sum(entry.size for entry in entries) > psutil.virtual_memory().available // 2
    ordered = sorted(entries, key=lambda entry: (str(entry.file), entry.start))
    buffer = bytearray(max((entry.size for entry in ordered), default=0))
    window = memoryview(buffer)
    index = 0
    while index < len(ordered):
        file = ordered[index].file
        with file.open("rb", buffering=0) as stream:
            while index < len(ordered) and ordered[index].file == file:
                entry = ordered[index]
                half = entry.size // 2 if entry.swapped else 0
                _read_into(window[: entry.size - half], stream, entry.start + half, entry)
                _read_into(window[entry.size - half : entry.size], stream, entry.start, entry)
                yield entry, tensor_view(buffer, entry)
                if forget:
                    drop_from_memory(stream.fileno(), entry.start, entry.size)
                index += 1


def _read_into(window: memoryview, stream: FileIO, start: int, entry: TensorEntry) -> None:
    stream.seek(start)
    done = 0
    while done < len(window):
        count = stream.readinto(window[done:])
        if not count:
            raise TrainError(f"{entry.file} ended while {entry.name} was read. Fetch it again.")
        done += count


def tensor_view(buffer: bytearray | mmap.mmap, entry: TensorEntry, offset: int = 0) -> Tensor:
    """Returns the tensor whose bytes begin at `offset` of a buffer. It shares the buffer's memory, unless turned."""
    count = math.prod(entry.shape)
    if count == 0:
        return torch.empty(entry.shape, dtype=DTYPES[entry.dtype])
    flat = torch.frombuffer(buffer, dtype=DTYPES[entry.dtype], count=count, offset=offset)
    return flat.reshape(entry.shape[::-1]).T.contiguous() if entry.turned else flat.reshape(entry.shape)
