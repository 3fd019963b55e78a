"""Where the file system shares blocks, an extraction writes nothing, and reads only what no receipt vouches for."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from zdoctor.doctor.apply import ApplyError, apply
from zdoctor.doctor.apply.actions.part import part_of
from zdoctor.doctor.model import CopyItem, ExtractFiles

from ..trees import plan

SIZE = 9 << 20  # read in three blocks


@pytest.fixture(scope="module", params=["btrfs", "xfs"])
def disk(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    kind = request.param
    if sys.platform != "linux" or os.geteuid() != 0 or shutil.which(f"mkfs.{kind}") is None:
        pytest.skip(f"takes root and mkfs.{kind}")
    folder = tmp_path_factory.mktemp(kind)
    image, point = folder / "image", folder / "disk"
    point.mkdir()
    with image.open("wb") as file:
        file.truncate(400 << 20)
    subprocess.run([f"mkfs.{kind}", "-q", str(image)], check=True, capture_output=True)
    if subprocess.run(["mount", "-o", "loop", str(image), str(point)], capture_output=True).returncode:
        pytest.skip(f"this machine does not let us mount {kind}")
    yield point
    subprocess.run(["umount", str(point)], check=True)


@pytest.fixture
def home(disk: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = disk / "home"
    folder.mkdir()
    (folder / "a").write_bytes(os.urandom(SIZE))
    (folder / "b").write_bytes(os.urandom(SIZE))
    os.sync()
    really = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: really() + 10 * 10**9)  # as if the files had lain there for a while
    yield folder
    shutil.rmtree(folder)


class Watch(list[tuple[str, int]]):
    """The reports of progress: a file that is read comes in blocks, one that is known all at once."""

    def __call__(self, done: int, total: int, name: str) -> None:
        self.append((name, done))

    def of(self, name: str) -> int:
        return sum(seen == name for seen, _ in self)


def extract(home: Path, target: str, watch: Watch) -> Path:
    items = [
        CopyItem(str(home / name), name, SIZE, "sha256:" + hashlib.sha256((home / name).read_bytes()).hexdigest())
        for name in ("a", "b")
    ]
    apply(plan(ExtractFiles(str(home / target), tuple(items))), state=home / "state", progress=watch)
    return home / target


def test_the_second_time_nothing_is_read(home: Path) -> None:
    free = shutil.disk_usage(home).free
    first, second = Watch(), Watch()
    extract(home, "one", first)
    made = extract(home, "two", second)
    assert (first.of("a"), first.of("b")) == (3, 3)
    assert (second.of("a"), second.of("b")) == (1, 1)
    assert (made / "a").read_bytes() == (home / "a").read_bytes()
    os.sync()
    assert free - shutil.disk_usage(home).free < SIZE  # four copies


def test_a_source_that_changed_is_read_again(home: Path) -> None:
    extract(home, "one", Watch())
    with (home / "a").open("r+b") as file:
        file.write(b"changed")
    watch = Watch()
    extract(home, "two", watch)
    assert (watch.of("a"), watch.of("b")) == (3, 1)


def test_a_receipt_does_not_make_a_wrong_file_right(home: Path) -> None:
    extract(home, "one", Watch())
    wrong = CopyItem(str(home / "a"), "a", SIZE, "sha256:" + "0" * 64)
    with pytest.raises(ApplyError, match="is corrupt"):
        apply(plan(ExtractFiles(str(home / "two"), (wrong,))), state=home / "state")


def test_what_was_cut_short_goes_on(home: Path) -> None:
    class Stop(Watch):
        def __call__(self, done: int, total: int, name: str) -> None:
            if name == "b":
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match="1 finished file"):
        extract(home, "one", Stop())
    watch = Watch()
    made = extract(home, "one", watch)
    assert (watch.of("a"), watch.of("b")) == (0, 3)
    assert (made / "b").read_bytes() == (home / "b").read_bytes() and not part_of(made).exists()
