"""Files that are either wholly there or not changed."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from .errors import TrainError


@contextmanager
def atomic(file: Path) -> Iterator[BinaryIO]:
    """A stream whose content is `file` once the block has ended well. Raises TrainError when it cannot be written."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=f".{file.name.lstrip('.')}.", suffix=".part", dir=file.parent)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            Path(name).chmod(0o644)
            Path(name).replace(file)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        more = (
            " Make room there: what was saved before is whole, and the same command goes on from it." if full else ""
        )
        raise TrainError(f"{file} cannot be written: {error.strerror or error}.{more}") from error
