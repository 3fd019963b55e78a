"""Receipts of files that were hashed: what an unchanged file's sha256 was, so that it need not be read again.

JSON Lines in the state folder, one line per file, on disk before the next file is read. A receipt is keyed by
(device, inode, size, mtime, ctime); every way to change a file's content changes one of them. It proves that nobody
changed the file, not that the disk still gives back what was written: after a month it no longer counts.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from ..files.durable import Row, append_rows, json_lines, rows_of
from ..model.record import dataclass
from . import keep

HEADER = {"schema": "zdoctor.receipts/1"}
SETTLED_NS = 2 * 10**9  # the coarsest clock of a file system: a write this close to the reading may not show
EXPIRES_NS = 30 * 24 * 3600 * 10**9
MOST = 4000
SIZE_LIMIT = 4 << 20


@dataclass(frozen=True)
class Key:
    """What the system changes when a file's content changes. Times in ns since 1970."""

    device: int
    inode: int
    size: int
    modified_ns: int
    changed_ns: int

    @staticmethod
    def of(stat: os.stat_result) -> Key:
        return Key(stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)


class Receipts:
    """The receipts of one state folder. A file that is no receipt file is left alone, and nothing is noted then."""

    def __init__(self, state: Path) -> None:
        self.file = state / "receipts.jsonl"
        self._known: dict[tuple[Key, str], tuple[str, int]] = {}
        self._usable = True
        self._load()

    def recall(self, key: Key, kind: str) -> str | None:
        """The digest of the file with this key; None when it has to be read."""
        digest, at = self._known.get((key, kind), (None, 0))
        fresh = 0 <= time.time_ns() - at < EXPIRES_NS
        return digest if fresh and _settled(key, at) else None

    def note(self, key: Key, kind: str, digest: str, started_ns: int) -> None:
        """Keep the digest of a file whose reading began at `started_ns`. What cannot be written is not kept."""
        if not self._usable or not _settled(key, started_ns):
            return
        self._known[key, kind] = digest, started_ns
        with suppress(OSError):
            self.file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            first = () if self.file.exists() and self.file.stat().st_size else (HEADER,)
            append_rows(self.file, *first, _row(key, kind, digest, started_ns), mode=0o600)

    def _load(self) -> None:
        try:
            size = self.file.stat().st_size
            rows = rows_of(self.file.read_bytes()) if 0 < size <= SIZE_LIMIT else []
        except OSError:
            return
        self._usable = size == 0 or rows[:1] == [HEADER]
        if not self._usable:
            return
        for found in filter(None, map(_receipt, rows)):
            key, kind, digest, at = found
            self._known.pop((key, kind), None)
            self._known[key, kind] = digest, at
        if len(rows) > MOST:  # the newest half stays
            self._known = dict(list(self._known.items())[-MOST // 2 :])
            rows = [_row(key, kind, digest, at) for (key, kind), (digest, at) in self._known.items()]
            keep(self.file, json_lines(HEADER, *rows))


def _settled(key: Key, at: int) -> bool:
    """Whether the file was last touched long enough before `at` that a later write would show in its times."""
    return max(key.modified_ns, key.changed_ns) + SETTLED_NS <= at


def _row(key: Key, kind: str, digest: str, at: int) -> Row:
    numbers = [key.device, key.inode, key.size, key.modified_ns, key.changed_ns]
    return {"file": numbers, "kind": kind, "digest": digest, "at": at}


def _receipt(row: Row) -> tuple[Key, str, str, int] | None:
    if row.keys() != {"file", "kind", "digest", "at"}:
        return None
    numbers, kind, digest, at = row["file"], row["kind"], row["digest"], row["at"]
    if not isinstance(numbers, list) or len(numbers) != 5 or any(type(n) is not int for n in (*numbers, at)):
        return None
    if not isinstance(kind, str) or not isinstance(digest, str) or not digest.startswith(kind + ":"):
        return None
    return Key(*numbers), kind, digest, at
