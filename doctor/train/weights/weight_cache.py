"""Quantized weights stay on disk between starts, shared by all runs of one base: the next start maps them.

One plain safetensors file for each base, adapter, format and dtype, in the user's cache folder. Its header follows
from what is asked for alone, so that a file with another header or another length is not the one that was asked for.
"""

from __future__ import annotations

import hashlib
import json
import math
import mmap
import os
import shutil
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..runtime.atomic_files import write_in_pieces
from ..runtime.run_lock import try_lock
from ..runtime.train_error import TrainError
from .safetensors_files import DTYPES, TensorEntry, read_header, stream_tensors, tensor_view

VERSION = 6  # to be raised when the same files give other numbers or another layout
SETTLED_NS = 2 * 10**9  # the coarsest clock of a file system: a write this close to the reading may not show
KEPT_NS = 30 * 24 * 3600 * 10**9
SAMPLE = 64
NAMES = {dtype: name for name, dtype in DTYPES.items()}

Layout = Mapping[str, tuple[torch.dtype, tuple[int, ...]]]


def cache_folder() -> Path:
    """Returns the folder of kept weights, which need not exist: below ZDOCTOR_CACHE, else below the user's cache
    folder.
    """
    chosen = os.environ.get("ZDOCTOR_CACHE")
    if chosen:
        return Path(os.path.expanduser(chosen)).absolute() / "weights"
    from platformdirs import user_cache_path

    return user_cache_path("zdoctor", appauthor=False) / "weights"


@dataclass(frozen=True)
class WeightKey:
    """The key says in words what some weights are made of; `settled`: a later write to the files would change it."""

    words: str
    settled: bool


def weight_key(entries: Sequence[TensorEntry], **parts: str) -> WeightKey:
    """Returns a key that changes when a file of the base does: its size, times, header or a sample of each tensor.

    Whoever writes to a file changes its times. The samples are for systems where that does not hold (network
    folders, Windows, tools that set times back): training or merging touches every part of a tensor.
    """
    now, newest = time.time_ns(), 0
    digest = hashlib.sha256()
    files: dict[Path, list[TensorEntry]] = {}
    for entry in entries:
        files.setdefault(entry.file, []).append(entry)
    for file, held in sorted(files.items()):
        with file.open("rb", buffering=0) as opened:
            state = os.fstat(opened.fileno())
            digest.update(f"{state.st_size} {state.st_mtime_ns} {state.st_ctime_ns} ".encode())
            newest = max(newest, state.st_mtime_ns, state.st_ctime_ns)
            digest.update(opened.read(min(entry.start for entry in held)))
            for entry in sorted(held, key=lambda entry: entry.start):
                opened.seek(entry.start + entry.size // 2)
                digest.update(opened.read(min(SAMPLE, entry.size - entry.size // 2)))
    words = {"version": str(VERSION), "base": digest.hexdigest(), **parts}
    return WeightKey(json.dumps(words, sort_keys=True), now - newest >= SETTLED_NS)


@dataclass(frozen=True)
class WeightCache:
    """The kept weights of one folder; `adapter` is the digest of the adapter file that is merged, or "none".

    Whatever cannot be read is made anew; whatever cannot be written is not kept, and `note` says so.
    """

    folder: Path
    adapter: str
    note: Callable[[str], None]

    def get(
        self,
        key: WeightKey,
        layout: Layout,
        device: torch.device,
        part: Callable[[TensorEntry], TensorEntry] | None = None,
    ) -> dict[str, Tensor] | None:
        """Returns the weights by name, or of each the `part` that is wanted; None when they are not there whole.

        On the CPU they are a private map of the file.
        """
        file = self._file(key)
        header = _header(key, layout)
        try:
            if file.stat().st_size != len(header) + _size(layout):
                return None
            with file.open("rb") as opened:
                if opened.read(len(header)) != header:
                    return None
                os.utime(file)  # it was used: it is kept for longer
                entries = [entry if part is None else part(entry) for entry in read_header(file)]
                if device.type == "cpu":
                    return map_tensors(opened.fileno(), entries)
            return {entry.name: value.to(device, copy=True) for entry, value in stream_tensors(entries)}
        except (OSError, TrainError):
            return None

    def put(self, key: WeightKey, layout: Layout, values: Iterable[tuple[str, Tensor]]) -> bool:
        """Keeps weights, each written as it is made; tells whether they are there now.

        Not while another process does, not after a change too recent to tell from the next one, and never more than
        half of what is free: then none of the `values` is asked for.
        """
        if not key.settled:
            return False
        header = _header(key, layout)
        size = len(header) + _size(layout)
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with (self.folder / ".lock").open("ab") as lock:
                if not try_lock(lock.fileno()):
                    return False
                self._sweep()
                free = shutil.disk_usage(self.folder).free
                if size > free // 2:
                    self.note(
                        f"The quantized weights ({_gigabytes(size)}) are not kept for the next start: "
                        f"{self.folder} has {_gigabytes(free)} free, and half of that stays free. The environment "
                        "variable ZDOCTOR_CACHE names another folder."
                    )
                    return False
                write_in_pieces(self._file(key), _parts(header, layout, values))
        except (OSError, TrainError) as error:
            self.note(f"The quantized weights are not kept for the next start: {error}")
            return False
        self.note(
            f"The quantized weights ({_gigabytes(size)}) are kept in {self.folder}, and the next start maps them. "
            "That folder can be deleted at any time; ZDOCTOR_CACHE names another."
        )
        return True

    def _file(self, key: WeightKey) -> Path:
        return self.folder / f"{hashlib.sha256(key.words.encode()).hexdigest()[:32]}.safetensors"

    def _sweep(self) -> None:
        """Remove what a killed process had begun to write, and what was not used for a month. Needs the lock."""
        old = time.time_ns() - KEPT_NS
        for file in [*self.folder.glob(".*.part"), *self.folder.glob("*.safetensors")]:
            with suppress(OSError):
                if file.suffix == ".part" or file.stat().st_mtime_ns < old:
                    file.unlink()


def map_tensors(descriptor: int, entries: Sequence[TensorEntry]) -> dict[str, Tensor]:
    """Returns the tensors as a private map of their file; nothing of it is read yet. Raises OSError."""
    try:
        content = mmap.mmap(descriptor, 0, access=mmap.ACCESS_COPY)
    except OSError:
        # The system promises memory for what may be written, and here it has less than the file. Nobody writes.
        content = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given buffer is not writable")
        return {entry.name: tensor_view(content, entry, entry.start) for entry in entries}


def _header(key: WeightKey, layout: Layout) -> bytes:
    """The safetensors header, padded so that every tensor lies where its numbers are aligned."""
    header: dict[str, object] = {"__metadata__": {"format": "pt", "zdoctor": key.words}}
    for name, (start, end) in _spans(layout).items():
        dtype, shape = layout[name]
        header[name] = {"dtype": NAMES[dtype], "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % 64)
    return len(text).to_bytes(8, "little") + text


def _spans(layout: Layout) -> dict[str, tuple[int, int]]:
    """Where each tensor begins and ends: the widest numbers first, so all are aligned without gaps, which the format
    does not allow.
    """
    spans, end = {}, 0
    for name, (dtype, shape) in sorted(layout.items(), key=lambda item: (-item[1][0].itemsize, item[0])):
        start, end = end, end + dtype.itemsize * math.prod(shape)
        spans[name] = start, end
    return spans


def _size(layout: Layout) -> int:
    return sum(dtype.itemsize * math.prod(shape) for dtype, shape in layout.values())


def _parts(
    header: bytes, layout: Layout, values: Iterable[tuple[str, Tensor]]
) -> Iterator[tuple[int, bytes | memoryview]]:
    """What lies where in the file, in the order in which the values come."""
    yield 0, header
    spans = _spans(layout)
    for name, value in values:
        assert (value.dtype, tuple(value.shape)) == layout[name], name
        numbers: Any = value.cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        yield len(header) + spans.pop(name)[0], memoryview(numbers)
    assert not spans


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"
