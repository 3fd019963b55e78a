"""What stands against an extraction is said before the first byte; what goes wrong later leaves nothing half."""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from zdoctor.doctor.apply import ApplyError, apply
from zdoctor.doctor.apply.actions.part import files_of, part_of
from zdoctor.doctor.apply.steps.extract_files import beyond_the_limit, windows_name
from zdoctor.doctor.model import CopyItem, ExtractFiles

from ..trees import plan, snapshot

BLOCK = 4 << 20
Watcher = Callable[[int, int, str], None]
root_on_linux = pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(os, "geteuid") or os.geteuid() != 0, reason="mounts, as root on Linux"
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "small").write_bytes(b"small")
    (folder / "large").write_bytes(os.urandom(3 * BLOCK))
    return folder


def item(source: Path, name: str = "", published: bool = True) -> CopyItem:
    data = source.read_bytes() if published else b""
    digest = "sha256:" + hashlib.sha256(data).hexdigest() if published else None
    return CopyItem(str(source), name or source.name, source.stat().st_size, digest)


def extract(
    target: Path, *items: CopyItem, state: Path, progress: Watcher | None = None, hardlink: bool = False
) -> None:
    apply(plan(ExtractFiles(str(target), items, hardlink)), state=state, progress=progress)


def once(act: Callable[[], object]) -> Watcher:
    """Act when the first block of the large file was read."""
    todo = [act]

    def progress(done: int, total: int, name: str) -> None:
        if name == "large" and todo:
            todo.pop()()

    return progress


@pytest.mark.parametrize(
    "name", ["../x", "/x", "a/../../x", "C:x", "C:\\x", "a\\..\\x", "\\\\srv\\x", "x\0", "", "a//b", "a/./b"]
)
def test_names_that_leave_the_folder(home: Path, tmp_path: Path, name: str) -> None:
    before = snapshot(home)
    with pytest.raises(ApplyError, match="would leave its folder"):
        extract(home / "out", CopyItem(str(home / "small"), name, 5), state=tmp_path / "state")
    assert snapshot(home) == before


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (("vae/a", "VAE/A"), "comes twice"),
        (("vae", "vae/a"), "lies below another file"),
        (("vae/a/b", "VAE/a"), "lies below another file"),
    ],
)
def test_names_that_get_in_each_other_s_way(home: Path, tmp_path: Path, names: tuple[str, ...], says: str) -> None:
    with pytest.raises(ApplyError, match=says):
        extract(home / "out", *(item(home / "small", name) for name in names), state=tmp_path / "state")
    assert not (home / "out").exists()


@pytest.mark.parametrize(
    ("name", "fits"),
    [
        ("vae/model.safetensors", True),
        ("console.json", True),
        ("com10.txt", True),
        ("auxiliary/x", True),
        ("con", False),
        ("vae/AUX.json", False),
        ("nul .txt", False),
        ("lpt1", False),
        ("COM\u00b9.bin", False),
        ("a.", False),
        ("folder /x", False),
        ("what?", False),
        ("a<b", False),
        ("a\x1bb", False),
    ],
)
def test_names_that_windows_cannot_hold(name: str, fits: bool, home: Path, tmp_path: Path) -> None:
    assert windows_name(name) == fits
    if os.name != "nt" and ":" not in name:  # elsewhere they are names like others
        extract(home / "out", item(home / "small", name), state=tmp_path / "state")
        assert (home / "out" / name).read_bytes() == b"small"


def test_a_fat_file_system_holds_no_file_of_4_gib() -> None:
    sizes = {"fits": (4 << 30) - 1, "large": 4 << 30}
    items = tuple(CopyItem("/s", name, size) for name, size in sizes.items())
    for filesystem in ("vfat", "FAT32", "msdos"):
        assert beyond_the_limit(filesystem, items) == items[1]
        assert beyond_the_limit(filesystem, items[:1]) is None
    for filesystem in ("exfat", "ext4", "ntfs3", "unknown"):
        assert beyond_the_limit(filesystem, items) is None


def _vanish(source: Path) -> None:
    source.unlink()


def _grow(source: Path) -> None:
    with source.open("ab") as file:
        file.write(b"more")


def _shrink(source: Path) -> None:
    os.truncate(source, 2 * BLOCK)


def _change(source: Path) -> None:
    with source.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(bytes([source.read_bytes()[-1] ^ 1]))


@pytest.mark.parametrize("published", [True, False], ids=["sha256", "no-digest"])
@pytest.mark.parametrize("act", [_grow, _shrink, _change])
def test_a_source_that_changes_while_it_is_copied(
    home: Path, tmp_path: Path, act: Callable[[Path], None], published: bool
) -> None:
    source = home / "large"
    os.utime(source, ns=(10**18, 10**18))
    wanted = item(source, published=published)
    with pytest.raises(ApplyError, match=r"(changed while it was copied|is corrupt).*Everything is as before\.$"):
        extract(home / "deep" / "out", wanted, state=tmp_path / "state", progress=once(lambda: act(source)))
    assert sorted(p.name for p in home.iterdir()) == ["large", "small"]


def test_a_source_that_never_stops_growing_is_not_read_for_ever(home: Path, tmp_path: Path) -> None:
    source, read = home / "large", [0]
    wanted = item(source)

    def feed(done: int, total: int, name: str) -> None:
        read[0] = done
        with source.open("ab") as file:
            file.write(bytes(2 * BLOCK))

    with pytest.raises(ApplyError, match="changed while it was copied"):
        extract(home / "out", wanted, state=tmp_path / "state", progress=feed)
    assert read[0] <= 5 * BLOCK


def test_a_source_whose_name_goes_while_it_is_read_arrives_all_the_same(home: Path, tmp_path: Path) -> None:
    if os.name == "nt":
        pytest.skip("an open file keeps its name there")
    data, wanted = (home / "large").read_bytes(), item(home / "large")
    extract(home / "out", wanted, state=tmp_path / "state", progress=once(lambda: _vanish(home / "large")))
    assert (home / "out" / "large").read_bytes() == data


def _gone(home: Path) -> Path:
    return home / "none"


def _loop(home: Path) -> Path:
    (home / "one").symlink_to("two")
    (home / "two").symlink_to("one")
    return home / "one"


def _folder(home: Path) -> Path:
    (home / "folder").mkdir()
    return home / "folder"


def _pipe(home: Path) -> Path:
    if not hasattr(os, "mkfifo"):
        pytest.skip("no pipes with names there")
    os.mkfifo(home / "pipe")
    return home / "pipe"


@pytest.mark.parametrize("make", [_gone, _loop, _folder, _pipe])
def test_a_source_that_is_no_file(home: Path, tmp_path: Path, make: Callable[[Path], Path]) -> None:
    source = make(home)
    before = sorted(path.name for path in home.iterdir())
    with pytest.raises(ApplyError, match=rf"{source.name} (is no file|cannot be read).*Nothing was done\.$"):
        extract(home / "out", CopyItem(str(source), "x", 0), state=tmp_path / "state")
    assert sorted(path.name for path in home.iterdir()) == before


def test_a_target_below_a_loop_of_links(home: Path, tmp_path: Path) -> None:
    _loop(home)
    before = snapshot(home)
    with pytest.raises(ApplyError, match="Nothing was done"):
        extract(home / "one" / "out", item(home / "small"), state=tmp_path / "state")
    assert snapshot(home) == before


@pytest.mark.parametrize("inside", ["models--a--b/out", "models--a--b/snapshots/c/out", "out", "models--x--y"])
def test_a_target_inside_the_cache(home: Path, tmp_path: Path, inside: str) -> None:
    blob = home / "hub" / "models--a--b" / "blobs" / "x"
    blob.parent.mkdir(parents=True)
    blob.write_bytes(b"small")
    before = snapshot(home)
    with pytest.raises(ApplyError, match=r"inside the hub cache .*hub; choose a folder elsewhere\. Nothing was done"):
        extract(home / "hub" / inside, item(blob), state=tmp_path / "state")
    assert snapshot(home) == before
    extract(home / "hub2", item(blob), state=tmp_path / "state")


@pytest.mark.skipif(sys.platform == "win32", reason="no limits of that kind there")
def test_a_file_that_the_system_does_not_let_grow(home: Path, tmp_path: Path) -> None:
    """As on a FAT file system that is not known as one: EFBIG from the system call itself."""
    import resource
    import signal

    wanted = item(home / "large")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    former = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (BLOCK, before[1]))
    try:
        with pytest.raises(ApplyError, match=r"out\.zdoctor-part.*: File too large\. Everything is as before"):
            extract(home / "out", wanted, state=tmp_path / "state")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, former)
    assert sorted(p.name for p in home.iterdir()) == ["large", "small"]


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX users")
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="becomes nobody, which takes root")
@pytest.mark.parametrize("owner", ["root", "nobody"])
def test_a_target_of_someone_else(owner: str) -> None:
    """In a process of nobody: a folder of root, and a part folder that root had begun."""
    with TemporaryDirectory() as name:  # those of pytest are closed to others
        home = Path(name)
        home.chmod(0o755)
        (home / "small").write_bytes(b"small")
        folder = home / "target"
        folder.mkdir()
        if owner == "nobody":
            folder.chmod(0o777)
            part = part_of(folder / "out")
            files_of(part).mkdir(parents=True)
            (part / "manifest.jsonl").write_text('\n{"schema": "zdoctor.part/1", "folders": []}')
        before = snapshot(folder)
        code = f"""
import os
from pathlib import Path
from zdoctor.doctor.apply import ApplyError, apply
from zdoctor.doctor.model import CopyItem, ExtractFiles, Fix, Plan
def extract(target, state):
    step = ExtractFiles(target, (CopyItem({str(home / "small")!r}, "small", 5),))
    apply(Plan("c", (Fix("t", (step,)),)), state=Path(state))
extract({str(home / "warm")!r}, {str(home / "warm-state")!r})  # nobody may not read every Python
os.setgid(65534)
os.setuid(65534)
try:
    extract({str(folder / "out")!r}, {str(home / "state")!r})
except ApplyError as error:
    print(error)
"""
        (home / "state").mkdir()
        (home / "state").chmod(0o777)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment())
        assert "permission denied" in done.stdout.lower(), done.stdout + done.stderr
        assert str(folder) in done.stdout
        assert snapshot(folder) == before


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "PYTHONDONTWRITEBYTECODE": "1"}


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[None]:
    """A disk in memory at `folder`, in a mount namespace that only this process sees."""
    libc = ctypes.CDLL(None, use_errno=True)
    command = ["mount", "-t", "tmpfs", "-o", options, "zdoctor-test", str(folder)]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("this machine does not let us mount")
    try:
        yield
    finally:
        libc.umount2(os.fsencode(folder), 2)


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    folder = tmp_path / "disk"
    folder.mkdir()
    return folder


def _fill(folder: Path) -> None:
    try:
        with (folder / "filler").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 16))
    except OSError:
        pass


def _use_up_the_inodes(folder: Path) -> None:
    try:
        for number in range(10_000):
            (folder / f"filler{number}").touch()
    except OSError:
        pass


@root_on_linux
@pytest.mark.parametrize(
    ("options", "act"), [("size=24m", _fill), ("size=64m,nr_inodes=20", _use_up_the_inodes)], ids=["bytes", "inodes"]
)
def test_a_disk_that_runs_full_meanwhile(
    home: Path, tmp_path: Path, disk: Path, options: str, act: Callable[[Path], None]
) -> None:
    wanted = (item(home / "small"), item(home / "large"), item(home / "small", "vae/last"))
    with mounted(disk, options):
        with pytest.raises(ApplyError, match=r"No space left on device.*1 finished file|2 finished files"):
            extract(disk / "out", *wanted, state=tmp_path / "state", progress=once(lambda: act(disk)))
        assert not (disk / "out").exists()
        kept = {p.name for p in files_of(part_of(disk / "out")).rglob("*") if p.is_file()}
        assert "small" in kept and "last" not in kept
        for filler in disk.glob("filler*"):
            filler.unlink()
        extract(disk / "out", *wanted, state=tmp_path / "state")
        assert (disk / "out" / "large").read_bytes() == (home / "large").read_bytes()
        assert [p.name for p in disk.iterdir()] == ["out"]


@root_on_linux
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("size=8m", "free, but 1.* are needed"),
        ("size=64m,nr_inodes=5", "has room for 4 more files, but"),
        ("ro", "cannot be written to: read-only file system"),
    ],
)
def test_what_cannot_fit_is_said_before_the_first_byte(
    home: Path, tmp_path: Path, disk: Path, options: str, says: str
) -> None:
    with mounted(disk, options):
        with pytest.raises(ApplyError, match=rf"{says}.*Nothing was done\.$"):
            extract(disk / "out", item(home / "small", "vae/x"), item(home / "large"), state=tmp_path / "state")
        assert list(disk.iterdir()) == []
        with pytest.raises(ApplyError, match=r"lies on another file system|read-only"):
            extract(disk / "out", item(home / "small"), state=tmp_path / "state", hardlink=True)


@root_on_linux
@pytest.mark.parametrize(("flag", "says"), [("i", "immutable"), ("a", "append-only")])
def test_a_folder_with_a_flag(home: Path, tmp_path: Path, flag: str, says: str) -> None:
    folder = home / "flagged"
    folder.mkdir()
    if subprocess.run(["chattr", f"+{flag}", str(folder)], capture_output=True).returncode:
        pytest.skip("this file system has no such flags")
    try:
        with pytest.raises(ApplyError, match=rf"cannot be written to: .*{says}.*Nothing was done"):
            extract(folder / "out", item(home / "small"), state=tmp_path / "state")
        assert list(folder.iterdir()) == []
    finally:
        subprocess.run(["chattr", f"-{flag}", str(folder)], check=True)
