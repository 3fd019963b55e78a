"""Receipts of a deep check: an unchanged file is not read again, a changed one always is, a kill loses little."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from zdoctor.doctor.probe import digests as reading
from zdoctor.doctor.probe.digests import digests
from zdoctor.doctor.state import receipts as module
from zdoctor.doctor.state.receipts import Key, Receipts
from zdoctor.tests.hub_server import sha256

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="receipts rest on the change time")


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files made a moment ago count as old enough."""
    monkeypatch.setattr(module, "SETTLED_NS", 0)


class Reads:
    """Hashes files and counts the bytes that were read for it."""

    def __init__(self, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.state, self.bytes = state, 0
        true = reading._digest

        def counted(job: reading.Job, read: list[int], number: int, stop: object) -> object:
            answer = true(job, read, number, stop)  # type: ignore[arg-type]
            self.bytes += read[number]
            return answer

        monkeypatch.setattr(reading, "_digest", counted)

    def __call__(self, *files: Path) -> list[object]:
        self.bytes = 0
        return list(digests(dict.fromkeys(map(str, files), "sha256"), lambda _: 1, Receipts(self.state)).values())


@pytest.fixture
def reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reads:
    return Reads(tmp_path / "state", monkeypatch)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "model.safetensors"
    made.write_bytes(b"a" * 1000)
    return made


@pytest.mark.usefixtures("settled")
def test_an_unchanged_file_is_not_read_again(reads: Reads, file: Path) -> None:
    assert reads(file) == ["sha256:" + sha256(b"a" * 1000)] and reads.bytes == 1000
    assert reads(file) == ["sha256:" + sha256(b"a" * 1000)] and reads.bytes == 0


def _flip(file: Path) -> None:
    """One byte, and the modification time put back: only the change time tells."""
    before = file.stat()
    with file.open("r+b") as handle:
        handle.write(b"b")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert file.stat().st_mtime_ns == before.st_mtime_ns


def _mapped(file: Path) -> None:
    import mmap

    with file.open("r+b") as handle, mmap.mmap(handle.fileno(), 0) as memory:
        memory[0:1] = b"b"
        memory.flush()


def _replace(file: Path) -> None:
    before = file.stat()
    other = file.with_name("other")
    other.write_bytes(b"b" + b"a" * 999)
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(file)


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("change", [_flip, _mapped, _replace])
def test_a_changed_file_is_read_again(reads: Reads, file: Path, change: Callable[[Path], None]) -> None:
    reads(file)
    time.sleep(0.02)  # the change time of a file has the resolution of the kernel's tick
    change(file)
    assert reads(file) == ["sha256:" + sha256(b"b" + b"a" * 999)] and reads.bytes == 1000


def test_a_file_written_a_moment_ago_gets_no_receipt(reads: Reads, file: Path) -> None:
    reads(file)
    assert not (reads.state / "receipts.jsonl").exists()
    assert reads(file) and reads.bytes == 1000


def test_when_a_receipt_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time_ns()
    key = Key(1, 2, 3, now - 10**10, now - 3 * 10**9)
    receipts = Receipts(tmp_path)
    receipts.note(key, "sha256", "sha256:aa", now)
    assert Receipts(tmp_path).recall(key, "sha256") == "sha256:aa"
    assert Receipts(tmp_path).recall(key, "git-sha1") is None
    for name in ("device", "inode", "size", "modified_ns", "changed_ns"):
        other = Key(**{**vars(key), name: getattr(key, name) - 1})
        assert Receipts(tmp_path).recall(other, "sha256") is None
    receipts.note(Key(1, 2, 3, 0, now - 10**9), "sha256", "sha256:bb", now)
    assert Receipts(tmp_path).recall(Key(1, 2, 3, 0, now - 10**9), "sha256") is None
    for later in (module.EXPIRES_NS + 10**9, -(10**9)):  # a month on; a clock that was put back
        with monkeypatch.context() as patch:
            patch.setattr(time, "time_ns", lambda later=later: now + later)
            assert Receipts(tmp_path).recall(key, "sha256") is None


NOW = time.time_ns()
KEY = Key(1, 2, 3, 0, 0)
GOOD = {"file": [1, 2, 3, 0, 0], "kind": "sha256", "digest": "sha256:aa", "at": NOW}
HEAD = json.dumps({"schema": module.HEADER["schema"]}) + "\n"


@pytest.mark.parametrize(
    ("content", "recalled", "writes"),
    [
        (HEAD + json.dumps(GOOD) + "\n", "sha256:aa", True),
        (HEAD + "{\n\x00\n[[[\n" + json.dumps(GOOD) + "\n" + json.dumps(GOOD)[:20], "sha256:aa", True),
        (HEAD + json.dumps({**GOOD, "file": [1, 2, 3, 0]}), None, True),
        (HEAD + json.dumps({**GOOD, "file": [1, 2, 3, 0, True]}), None, True),
        (HEAD + json.dumps({**GOOD, "at": "now"}), None, True),
        (HEAD + json.dumps({**GOOD, "digest": "aa"}), None, True),
        ("", None, True),
        (json.dumps(GOOD) + "\n", None, False),
        ("somebody's notes\n", None, False),
        ("\xff\xfe" * 100, None, False),
        ("[" * 100_000, None, False),
    ],
    ids=range(11),  # the contents hold the time
)
def test_what_is_not_ours_is_ignored(tmp_path: Path, content: str, recalled: str | None, writes: bool) -> None:
    file = tmp_path / "receipts.jsonl"
    file.write_text(content, encoding="latin-1")
    receipts = Receipts(tmp_path)
    assert receipts.recall(KEY, "sha256") == recalled
    receipts.note(Key(9, 9, 9, 0, 0), "sha256", "sha256:cc", NOW)
    assert (file.read_text(encoding="latin-1") != content) == writes
    assert Receipts(tmp_path).recall(Key(9, 9, 9, 0, 0), "sha256") == ("sha256:cc" if writes else None)
    assert Receipts(tmp_path).recall(KEY, "sha256") == recalled


def test_the_file_stays_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 20)
    for number in range(50):
        Receipts(tmp_path).note(Key(number, 0, 0, 0, 0), "sha256", "sha256:aa", NOW)
    assert len((tmp_path / "receipts.jsonl").read_text().splitlines()) <= 21
    assert Receipts(tmp_path).recall(Key(49, 0, 0, 0, 0), "sha256") == "sha256:aa"
    assert [p.name for p in tmp_path.iterdir()] == ["receipts.jsonl"]


def test_a_folder_that_cannot_be_written_is_no_problem(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file in its place")
    receipts = Receipts(tmp_path / "state")
    receipts.note(KEY, "sha256", "sha256:aa", NOW)
    assert receipts.recall(KEY, "sha256") == "sha256:aa"


@pytest.mark.usefixtures("settled")
def test_a_killed_check_resumes(reads: Reads, tmp_path: Path) -> None:
    """A process that is killed while it reads the second file: the next one reads only that."""
    for name in "ab":
        (tmp_path / name).write_bytes(name.encode() * (3000 - ord(name)))
    script = """
import os, signal, sys
from pathlib import Path
from zdoctor.doctor.state import receipts
from zdoctor.doctor.probe import digests
receipts.SETTLED_NS = 0
true = digests._digest
def dies(job, read, number, stop):
    if number == 1:
        while not (Path(sys.argv[1]) / "receipts.jsonl").exists() :
            pass
        while (Path(sys.argv[1]) / "receipts.jsonl").read_bytes().count(b"\\n") < 2:
            pass
        os.kill(os.getpid(), signal.SIGKILL)
    return true(job, read, number, stop)
digests._digest = dies
digests.digests(dict.fromkeys(sys.argv[2:], "sha256"), lambda _: 1, receipts.Receipts(Path(sys.argv[1])))
"""
    command = [sys.executable, "-c", script, str(reads.state), str(tmp_path / "a"), str(tmp_path / "b")]
    assert subprocess.run(command, timeout=60).returncode == -signal.SIGKILL
    assert reads(tmp_path / "a", tmp_path / "b") and reads.bytes == 3000 - ord("b")
    assert reads(tmp_path / "a", tmp_path / "b") and reads.bytes == 0
