"""A disk in memory that is really full: while pictures are encoded, and while a run trains."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from zdoctor.doctor.train import TrainError
from zdoctor.tests.doctor.commands.test_extract_refusals import mounted, root_on_linux

from .patient import Recorder, go, run_with

pytestmark = root_on_linux


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    with mounted(folder, "size=64k"):
        yield folder


@pytest.fixture
def pictures(circles: Path, tmp_path: Path) -> Path:
    """Of which nothing is encoded yet."""
    return Path(shutil.copytree(circles, tmp_path / "pictures", ignore=shutil.ignore_patterns(".encoded")))


def grow(disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)


def fill(disk: Path) -> None:
    with (disk / "filler").open("wb", buffering=0) as file:
        try:
            while file.write(bytes(1 << 16)):
                pass
        except OSError:
            pass


def test_while_pictures_are_encoded_it_says_so_and_goes_on_with_room(
    tiny: Path, pictures: Path, disk: Path, tmp_path: Path
) -> None:
    run, output = run_with(steps=2), disk / "out"
    with pytest.raises(TrainError, match=r"disk/out/.* cannot be written: No space left on device\. Make room there"):
        go(run, tiny, pictures, output, fresh=True)
    assert [*output.rglob("latent-*")] and not [*output.rglob("*.part")]
    grow(disk)
    shutil.rmtree(pictures / ".encoded", ignore_errors=True)
    assert go(run, tiny, pictures, output, fresh=True).losses == go(run, tiny, pictures, tmp_path / "calm").losses


def test_while_a_run_trains_the_last_checkpoint_stays(tiny: Path, circles: Path, disk: Path, tmp_path: Path) -> None:
    def at(step: int) -> None:
        if step == 3:
            fill(disk)

    grow(disk)
    run, output = run_with(steps=5, save_every=2), disk / "out"
    with pytest.raises(TrainError, match=r"No space left on device.*last good save is of step 2 \(.*2\.safetensors"):
        go(run, tiny, circles, output, progress=Recorder(at))
    (disk / "filler").unlink()
    assert go(run, tiny, circles, output).losses == go(run, tiny, circles, tmp_path / "calm").losses
