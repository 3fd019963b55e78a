"""A file of a cache gets a second name instead of a copy, when it is what it should be."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from zdoctor.doctor.apply import ApplyError, apply, describe, undo
from zdoctor.doctor.model import PlaceCopy
from zdoctor.tests.hub_server import sha256

from ..trees import plan, snapshot

DATA = b"weights" * 100


@pytest.fixture
def step(tmp_path: Path) -> PlaceCopy:
    """An older snapshot holds the file, a newer one a damaged one."""
    old, new = (tmp_path / "hub" / "models--o--n" / "snapshots" / name / "vae" for name in "ab")
    for folder, data in ((old, DATA), (new, b"damaged")):
        folder.mkdir(parents=True)
        (folder / "m").write_bytes(data)
    (old / "m").chmod(0o444)
    return PlaceCopy(str(new / "m"), str(old / "m"), len(DATA), "sha256:" + sha256(DATA), link=True)


def test_a_hard_link_takes_no_room(step: PlaceCopy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = snapshot(tmp_path / "hub")
    monkeypatch.setattr("zdoctor.doctor.apply.steps.needs._require_room", lambda _, wanted, __: full(wanted))
    done = apply(plan(step), state=tmp_path / "state")
    assert os.path.samefile(step.path, step.source) and done.copied == len(DATA)
    assert Path(step.source).stat().st_mode & 0o777 == 0o444  # also the mode of its only inode
    assert describe(step).startswith("hard-link")
    undo(state=tmp_path / "state")
    assert snapshot(tmp_path / "hub") == before
    assert Path(step.source).stat().st_nlink == 1


def full(wanted: int) -> None:
    assert wanted == 0


@pytest.mark.parametrize("code", [errno.EXDEV, errno.EPERM, errno.EMLINK])
def test_a_copy_where_links_are_refused(
    step: PlaceCopy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(self: Path, target: Path) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    apply(plan(step), state=tmp_path / "state")
    assert Path(step.path).read_bytes() == DATA and not os.path.samefile(step.path, step.source)


@pytest.mark.parametrize("change", [b"!" + DATA[1:], DATA[:-1]])
def test_only_what_it_should_be(step: PlaceCopy, tmp_path: Path, change: bytes) -> None:
    Path(step.source).chmod(0o644)
    Path(step.source).write_bytes(change)
    before = snapshot(tmp_path / "hub")
    with pytest.raises(ApplyError, match=r"is corrupt|and should be"):
        apply(plan(step), state=tmp_path / "state")
    assert snapshot(tmp_path / "hub") == before
