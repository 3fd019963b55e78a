"""Fingerprints of texts, of whole files, and of files too large to be read for it, by their sizes and parts of them.

Caches, states and receipts of earlier versions go by them: none may change.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def running(kind: str, size: int) -> Any:
    """The running hash of a file of `size` bytes: "sha256", or "git-sha1" as git names a file."""
    import hashlib  # loads OpenSSL, which most checks do without

    if kind == "git-sha1":
        return hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    return hashlib.sha256()


def of_bytes(content: bytes, kind: str = "sha256") -> str:
    state = running(kind, len(content))
    state.update(content)
    return str(state.hexdigest())


def of_texts(*texts: str, length: int = 16) -> str:
    return of_bytes("\0".join(texts).encode("utf-8", "surrogatepass"))[:length]


def of_file(file: Path) -> str:
    """The sha256 of a whole file."""
    state = running("sha256", 0)
    with file.open("rb") as stream:
        while block := stream.read(1 << 20):
            state.update(block)
    return str(state.hexdigest())


def of_beginnings(files: Iterable[Path]) -> str:
    """Changes when one of the files does, by its name, size, time or first MiB."""
    state = running("sha256", 0)
    for file in files:
        found = file.stat()
        state.update(f"{file.name} {found.st_size} {found.st_mtime_ns} ".encode())
        with file.open("rb") as stream:
            state.update(stream.read(1 << 20))
    return str(state.hexdigest()[:16])


def of_ends(files: Iterable[Path]) -> str:
    """Identifies files wherever they lie, by their sizes and the first and last 64 KiB of each."""
    state = running("sha256", 0)
    for file in files:
        size = file.stat().st_size
        with file.open("rb") as stream:
            state.update(f"{size} ".encode() + stream.read(1 << 16))
            if size > 1 << 16:
                stream.seek(-(1 << 16), os.SEEK_END)
                state.update(stream.read())
    return str(state.hexdigest()[:16])
