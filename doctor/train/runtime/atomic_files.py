"""A file is written as a whole or not changed at all."""

from __future__ import annotations

import errno
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from ...files.durable import replace
from .train_error import TrainError


@contextmanager
def atomic_file(file: Path, *, durable: bool = True) -> Iterator[BinaryIO]:
    """Yields a stream whose content is `file` once the block has ended well.

    Raises TrainError when it cannot be written.

    `durable`: it is on the disk then, which takes milliseconds, and seconds while others write much.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=f".{file.name.lstrip('.')}.", suffix=".part", dir=file.parent)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                yield stream
                stream.flush()
                if durable:
                    os.fsync(stream.fileno())
            Path(name).chmod(0o644)
            replace(Path(name), file)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        more = " Make room there and start again: what was saved before is whole." if full else ""
        raise TrainError(f"{file} cannot be written: {error.strerror or error}.{more}") from error


def write_atomic(file: Path, content: bytes | memoryview, *, durable: bool = True) -> None:
    """Writes a file as a whole or leaves it unchanged. Raises TrainError when it cannot be written."""
    with atomic_file(file, durable=durable) as stream:
        stream.write(content)


def write_in_pieces(file: Path, parts: Iterable[tuple[int, bytes | memoryview]]) -> None:
    """Writes a file in pieces, each with its offset, each made when its turn comes."""
    with atomic_file(file) as stream:
        for offset, part in parts:
            stream.seek(offset)
            stream.write(part)
            stream.flush()
            # only what is on the disk is dropped, nearly nothing, but the disk begins to write: less to wait for
            drop_from_memory(stream.fileno(), offset, len(part))


def drop_from_memory(descriptor: int, start: int, size: int) -> None:
    """Advises the system to drop bytes of a file from the page cache, where it takes advice."""
    if sys.platform == "linux":
        with suppress(OSError):
            os.posix_fadvise(descriptor, start, size, os.POSIX_FADV_DONTNEED)
