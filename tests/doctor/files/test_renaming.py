"""Virus scanners of Windows hold what was just written; a repair waits for them, and takes all back at last."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from zdoctor.doctor.apply import ApplyError, apply, undo
from zdoctor.doctor.files import durable
from zdoctor.doctor.model import Quarantine, WriteText

from ..trees import plan, snapshot


def held(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """The first `times` renamings are refused, as Windows does while a file is open."""
    left = [times]

    def hinder(name: str) -> None:
        plain = getattr(Path, name)

        def hindered(self: Path, target: Path) -> Path:
            if left[0]:
                left[0] -= 1
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))
            made: Path = plain(self, target)
            return made

        monkeypatch.setattr(Path, name, hindered)

    hinder("rename")
    hinder("replace")
    monkeypatch.setattr(durable, "TRIES", 3)
    monkeypatch.setattr(durable, "TRY_SECONDS", 0.0)


def test_a_repair_waits_for_who_looks_at_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree, state = tmp_path / "tree", tmp_path / "state"
    tree.mkdir()
    (tree / "a.safetensors").write_bytes(b"weights")
    before = snapshot(tree)
    held(monkeypatch, 2)
    apply(plan(Quarantine(str(tree / "a.safetensors")), WriteText(str(tree / "main"), "commit")), state=state)
    assert (tree / "main").read_text() == "commit" and not (tree / "a.safetensors").exists()
    held(monkeypatch, 2)
    undo(state=state)
    assert snapshot(tree) == before


def test_what_stays_open_is_left_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree, state = tmp_path / "tree", tmp_path / "state"
    tree.mkdir()
    (tree / "a.safetensors").write_bytes(b"weights")
    before = snapshot(tree)
    held(monkeypatch, 3)
    with pytest.raises(ApplyError, match=r"a\.safetensors: Permission denied\. Everything is as before"):
        apply(plan(Quarantine(str(tree / "a.safetensors"))), state=state)
    assert snapshot(tree) == before
