"""Whole files are read once, several at a time, none that changes meanwhile; and recorded machines answer too."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from zdoctor.doctor.model import Unknown
from zdoctor.doctor.probe import digests as module
from zdoctor.doctor.probe.digests import digests
from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.doctor.probe.recorded import SCHEMA, RecordedWorld
from zdoctor.doctor.probe.recorder import Recorder
from zdoctor.doctor.state.receipts import Key, Receipts
from zdoctor.tests.hub_server import git_sha1, sha256


def files(folder: Path, *sizes: int) -> dict[str, bytes]:
    made = {}
    for number, size in enumerate(sizes):
        content = os.urandom(size)
        (folder / f"{number}.bin").write_bytes(content)
        made[str(folder / f"{number}.bin")] = content
    return made


@pytest.mark.parametrize("readers", [1, 3])
def test_every_file_gets_its_digest(tmp_path: Path, readers: int) -> None:
    made = files(tmp_path, 0, 1, module.BUFFER, 3 * module.BUFFER + 7)
    seen: list[tuple[int, int, str]] = []
    asked: list[list[str]] = []

    def how_many(paths: list[str]) -> int:
        asked.append(paths)
        return readers

    found = digests(dict.fromkeys(made, "sha256"), how_many, progress=lambda *at: seen.append(at))
    assert found == {path: "sha256:" + sha256(content) for path, content in made.items()}
    assert [os.path.getsize(path) for path in asked[0]] == sorted(map(len, made.values()), reverse=True)
    total = sum(map(len, made.values()))
    assert seen[-1][:2] == (total, total) and seen == sorted(seen, key=lambda at: at[0])
    assert digests(dict.fromkeys(made, "git-sha1"), how_many) == {
        path: "git-sha1:" + git_sha1(content) for path, content in made.items()
    }


def test_what_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    made = files(tmp_path, 10)
    (good,) = made
    wanted = dict.fromkeys([good, str(tmp_path / "gone"), str(tmp_path), "nul\0"], "sha256")
    found = digests(wanted, lambda _: 2)
    assert found.pop(good) == "sha256:" + sha256(made[good])
    assert all(isinstance(answer, Unknown) and "cannot be read" in answer.reason for answer in found.values())


def test_a_file_that_changes_meanwhile_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (path,) = files(tmp_path, 3 * module.BUFFER)

    class Notes(Receipts):
        noted = 0

        def recall(self, key: Key, kind: str) -> None:
            return None

        def note(self, key: Key, kind: str, digest: str, started_ns: int) -> None:
            self.noted += 1

    def touch_it(handle: int, advice: str) -> None:
        with open(path, "r+b") as file:  # another process writes, after the reading has begun
            file.write(b"x")

    monkeypatch.setattr(module, "_advise", touch_it)
    notes = Notes(tmp_path)
    assert digests({path: "sha256"}, lambda _: 1, notes) == {path: Unknown("it changed while it was read")}
    assert notes.noted == 0


def test_ctrl_c_ends_the_threads_and_keeps_what_was_done(tmp_path: Path) -> None:
    small, large = 10, 50 * module.BUFFER
    made = files(tmp_path, large, small)

    class Notes(Receipts):
        def recall(self, key: Key, kind: str) -> None:
            return None

        def note(self, key: Key, kind: str, digest: str, started_ns: int) -> None:
            noted.append(key.size)
            raise KeyboardInterrupt

    noted: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        digests(dict.fromkeys(made, "sha256"), lambda _: 2, Notes(tmp_path))
    assert len(noted) == 1


def test_the_live_world_reads_each_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (path,) = files(tmp_path, 10)
    world = LiveWorld()
    first = world.digests({path: "sha256"})
    monkeypatch.setattr(module, "_digest", None)
    assert world.digests({path: "sha256"}) == first and world.digests({}) == {}


def record(files: dict[str, Any], **more: Any) -> dict[str, Any]:
    system = {"os": "linux", "release": "", "python": "3.11", "cwd": "/", "home": "/home/u", "cpus": 2}
    memory = {"memory_total": 1, "memory_available": 1, "environment": {}}
    return {"schema": SCHEMA, "system": {**system, **memory}, "files": files, **more}


def test_recorded_machines_answer(tmp_path: Path) -> None:
    entries = {
        "/text": {"text": "hello"},
        "/cut": {"text": "hel", "size": 5},
        "/weights": {"tensors": {"a": ["F32", [2]]}, "digests": ["sha256:" + "e" * 64]},
        "/link": {"link": "weights"},
        "/other": {"tensors": {"a": ["F32", [2]]}},
    }
    found = RecordedWorld(record(entries)).digests(dict.fromkeys([*entries, "/none"], "sha256"))
    assert found["/text"] == "sha256:" + sha256(b"hello")
    assert found["/weights"] == found["/link"] == "sha256:" + "e" * 64
    assert all(isinstance(found[path], Unknown) for path in ("/cut", "/other", "/none"))

    made = files(tmp_path, 10)
    (path,) = made
    recorder = Recorder(LiveWorld(home="/nowhere"))
    recorder.stat(path)
    answer = recorder.digests({path: "sha256"})
    replayed = RecordedWorld(recorder.record("a test"))
    assert replayed.digests({path: "sha256"}) == answer == {path: "sha256:" + sha256(made[path])}
