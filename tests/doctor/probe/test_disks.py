"""Second caches on other disks: found where people put them, and nothing that may hang is touched."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from zdoctor.doctor.probe.disks import MountLine, folders_below
from zdoctor.doctor.probe.hub.caches import caches, origins
from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.tests.doctor.probe.test_hub import POSIX, machine

PLACES = ("hf/hub", "hub", ".cache/huggingface/hub")


@pytest.mark.parametrize(
    ("place", "mounted", "found"),
    [
        ("disk/hf/hub", ("disk", "ext4"), True),
        ("disk/hub", ("disk", "xfs"), True),
        ("disk/.cache/huggingface/hub", ("disk", "fuseblk"), True),
        ("disk/other/hub", ("disk", "ext4"), False),
        ("disk/hf/hub", ("disk", "nfs4"), False),
        ("disk/hf/hub", ("disk", "autofs"), False),
        ("disk/hf/hub", ("disk", "fuse.sshfs"), False),
        ("disk/hf/hub", ("disk/hf", "cifs"), False),  # a network folder mounted into the disk
        ("disk/hf/hub", ("disk/hf/hub", "nfs"), False),
    ],
)
def test_only_local_disks_are_looked_at(
    place: str, mounted: tuple[str, str], found: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / place).mkdir(parents=True)
    point, kind = str(tmp_path / mounted[0]), mounted[1]
    above = [MountLine(str(tmp_path / "disk"), "ext4")] if mounted[0] != "disk" else []
    mounts = [MountLine(point, kind), *above, MountLine("/", "ext4")]
    touched: list[str] = []
    real = os.lstat

    def noted(path: str) -> os.stat_result:
        touched.append(path)
        return real(path)

    monkeypatch.setattr(os, "lstat", noted)
    seen = list(folders_below(mounts, PLACES))
    monkeypatch.undo()
    assert (str(tmp_path / place) in seen) == found
    if kind in ("nfs4", "autofs", "fuse.sshfs", "cifs", "nfs"):
        assert not [path for path in touched if path.startswith(point)]


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "real" / "hub").mkdir(parents=True)
    (tmp_path / "hf").symlink_to("real")
    mounts = [MountLine(str(tmp_path), "ext4"), MountLine("/", "ext4")]
    assert not [path for path in folders_below(mounts, PLACES) if path.startswith(str(tmp_path))]


def test_this_machine_is_looked_at_without_a_fault() -> None:
    assert all(Path(path).is_dir() for path in LiveWorld().elsewhere((".", "hf/hub")))


def test_a_folder_counts_as_a_cache_when_it_holds_models() -> None:
    files = {
        "/mnt/data/hf/hub/models--acme--tiny/refs/main": {"text": "c" * 40},
        "/srv/hub/builds/1": {"text": ""},
        f"{POSIX}/version.txt": {"text": "1"},
    }
    world = machine("linux", files)
    assert caches(world) == (POSIX,)
    world = machine("linux", files, elsewhere=["/mnt/data/hf/hub", "/srv/hub", POSIX])
    assert origins(world) == {POSIX: "default", "/mnt/data/hf/hub": "found"}


@pytest.mark.parametrize(
    ("environment", "origin"),
    [
        ({}, {"/home/u/.cache/huggingface/hub": "default"}),
        ({"HF_HOME": "/a"}, {"/a/hub": "HF_HOME"}),
        ({"HF_HOME": "/a", "HF_HUB_CACHE": "/c"}, {"/c": "HF_HUB_CACHE"}),
        ({"HUGGINGFACE_HUB_CACHE": "/b", "HF_HUB_CACHE": "/c"}, {"/c": "HF_HUB_CACHE"}),
        ({"HUGGINGFACE_HUB_CACHE": "/b"}, {"/b": "HUGGINGFACE_HUB_CACHE"}),
        ({"XDG_CACHE_HOME": "/x"}, {"/x/huggingface/hub": "XDG_CACHE_HOME"}),
    ],
)
def test_what_makes_a_cache_the_active_one(environment: dict[str, str], origin: dict[str, str]) -> None:
    assert origins(machine("linux", {}, environment)) == origin
