"""The live world, against real file systems."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from zdoctor.doctor.model import Speed, Unknown
from zdoctor.doctor.probe import filesystem
from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.doctor.probe.world import Mount, Stat

WORLD = LiveWorld(environment={"HF_HOME": "/x", "HF_TOKEN": "hf_secret"})


def test_secrets_are_not_facts() -> None:
    assert dict(WORLD.system.environment) == {"HF_HOME": "/x"}


def test_stat_tells_kinds_apart(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("gone")
    os.mkfifo(tmp_path / "pipe")
    kinds = {name: WORLD.stat(str(tmp_path / name)) for name in ("file", "folder", "link", "pipe", "nothing")}
    assert {k: v.kind if isinstance(v, Stat) else v for k, v in kinds.items()} == {
        "file": "file",
        "folder": "folder",
        "link": "link",
        "pipe": "other",
        "nothing": None,
    }
    assert WORLD.names(str(tmp_path)) == ("file", "folder", "link", "pipe")


@pytest.mark.parametrize("path", ["pipe", "folder", "gone", "nul\0name"])
def test_reading_what_is_no_file_is_unknown_and_never_blocks(tmp_path: Path, path: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    assert isinstance(WORLD.read(str(tmp_path / path)), Unknown)


def test_reads_ranges(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"0123456789")
    assert WORLD.read(str(tmp_path / "f"), 3, 4) == b"3456"
    assert WORLD.read(str(tmp_path / "f"), 8, 100) == b"89"


def test_a_writable_folder_has_no_refusal(tmp_path: Path) -> None:
    assert WORLD.refusal(str(tmp_path)) is None
    assert isinstance(WORLD.refusal(str(tmp_path / "missing")), Unknown)


@pytest.mark.parametrize(
    ("number", "marked", "said"),
    [(None, False, None), (5, False, "permission denied"), (19, False, "read-only file system"), (5, True, None)],
)
def test_a_folder_that_windows_keeps_shut(
    number: int | None, marked: bool, said: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C:\\Program Files without rights, a stick that is write-protected, and "Documents", which has a mark."""
    monkeypatch.setattr(filesystem, "is_marked_read_only", lambda state: marked)

    def open_it(folder: str) -> None:
        if number is not None:
            raise Refused(13, "Access is denied", folder)

    class Refused(PermissionError):
        winerror = number

    assert filesystem.refused(str(tmp_path), open_it) == said
    assert isinstance(filesystem.refused(str(tmp_path / "missing"), open_it), Unknown)


@pytest.mark.skipif(sys.platform != "linux" or shutil.which("unshare") is None, reason="needs Linux namespaces")
def test_a_read_only_mount_refuses_as_it_says(tmp_path: Path) -> None:
    """In a mount namespace of its own: what the world foretells is what a write really meets."""
    script = textwrap.dedent(
        """
        import sys
        from zdoctor.doctor.probe.live import LiveWorld
        folder = sys.argv[1]
        print(LiveWorld().refusal(folder))
        try:
            open(folder + "/.aitk_size.json", "w")
        except OSError as error:
            print(error.strerror)
        """
    )
    command = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && exec "$2" -c "$3" "$1"'
    flags = ["-m"] if os.geteuid() == 0 else ["-r", "-m"]
    done = subprocess.run(
        ["unshare", *flags, "sh", "-c", command, "sh", str(tmp_path), sys.executable, script],
        capture_output=True,
        text=True,
    )
    if done.returncode != 0 and "unshare" in done.stderr + "mount" and not done.stdout:
        pytest.skip(f"this kernel gives no mount namespace: {done.stderr.strip()}")
    assert done.stdout.splitlines() == ["read-only file system", "Read-only file system"]


def test_the_mount_of_a_path_that_does_not_exist_is_its_parents(tmp_path: Path) -> None:
    mount = WORLD.mount(str(tmp_path / "not" / "yet"))
    assert isinstance(mount, Mount) and mount.free and tmp_path.is_relative_to(mount.point)


def test_speed_is_measured_or_unknown_never_made_up(tmp_path: Path) -> None:
    file = tmp_path / "weights"
    file.write_bytes(os.urandom(8 << 20))
    os.sync()
    speed = WORLD.speed([str(file)])
    if isinstance(speed, Unknown):  # a file system that allows no reads past the page cache
        assert speed.reason
    else:
        assert isinstance(speed, Speed)
        assert 0 < speed.low <= speed.high and speed.source.startswith("measured")
    assert isinstance(WORLD.speed([]), Unknown)
    assert isinstance(WORLD.speed([str(tmp_path / "gone")]), Unknown)


def test_package_versions_come_from_metadata_without_importing() -> None:
    versions = WORLD.packages()
    assert set(versions) > {"huggingface_hub", "hf_xet"} and "no_such_package" not in versions
    assert versions["huggingface_hub"][0].isdigit()
