"""Caches that lie, lead astray, or take no writes: a finding or a clear refusal, and nothing else is touched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from zdoctor.doctor.cli import main
from zdoctor.tests.configs_on_disk import write_config
from zdoctor.tests.doctor.commands.test_extract_refusals import environment, mounted, root_on_linux
from zdoctor.tests.hub_cache import BIG, MODEL, REPO, SHARD, Cache, download, load, picture
from zdoctor.tests.hub_server import HubServer

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="links, pipes and modes of POSIX")


@pytest.fixture(scope="module")
def healthy(server: HubServer, tmp_path_factory: pytest.TempPathFactory) -> Cache:
    return download(server, tmp_path_factory.mktemp("hub") / "hub", "linked")


@pytest.fixture
def cache(healthy: Cache, server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    """A copy to spoil, named by a config in the working directory; `canary` beside it is nobody's business."""
    (tmp_path / "canary").mkdir()
    for name in ("config.json", "model.safetensors"):
        (tmp_path / "canary" / name).write_bytes(b"do not touch")
    write_config(tmp_path, name_or_path=REPO)
    monkeypatch.chdir(tmp_path)
    for name, value in (("HF_HUB_CACHE", "hub"), ("ZDOCTOR_STATE", "state")):
        monkeypatch.setenv(name, str(tmp_path / value))
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    return healthy.copy(tmp_path / "hub")


def listed(cache: Cache, name: str) -> None:
    """The list of files names one more, at a place where the cache has no say."""
    listing = json.loads(cache.manifest.read_text())
    listing["files"][name] = {"size": 12, "blob_id": "a" * 40}
    cache.manifest.write_text(json.dumps(listing))


def instead(path: Path, make: Callable[[Path], object]) -> None:
    if path.is_dir() and not path.is_symlink():
        path.rename(path.with_name(path.name + ".away"))
    else:
        path.unlink(missing_ok=True)
    make(path)


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(50 << 30)


def outside(cache: Cache) -> Path:
    return cache.root.parent / "canary"


def deep(cache: Cache) -> None:
    folder = cache.file("vae")
    for _ in range(60):
        folder = folder / "vae"
        folder.mkdir()


INDEX = "transformer/diffusion_pytorch_model.safetensors.index.json"


def quarantine_outside(cache: Cache) -> None:
    (cache.repo / ".zdoctor-quarantine").symlink_to(outside(cache))
    cache.blob(SHARD).unlink()


SPOILT: dict[str, Callable[[Cache], object]] = {
    "list leads up": lambda c: listed(c, "../../../../canary/config.json"),
    "list is absolute": lambda c: listed(c, str(outside(c) / "config.json")),
    "list names a drive": lambda c: listed(c, "C:\\Windows\\win.ini"),
    "list holds a null": lambda c: listed(c, "vae/a\0b"),
    "list of one very long name": lambda c: listed(c, "a/" * 5000),
    "list is endless": lambda c: sparse(c.manifest),
    "list nests": lambda c: c.manifest.write_text('{"format_version": 1, "files": ' + "[" * 200_000),
    "ref is endless": lambda c: instead(c.ref, sparse),
    "ref is a folder": lambda c: instead(c.ref, Path.mkdir),
    "ref is a pipe": lambda c: instead(c.ref, os.mkfifo),
    "ref leads up": lambda c: c.ref.write_text("../../../canary"),
    "snapshot leads out": lambda c: instead(c.file(""), lambda p: p.symlink_to(outside(c))),
    "snapshot is a file": lambda c: instead(c.file(""), Path.touch),
    "blob is a loop": lambda c: instead(c.blob(SHARD), lambda p: p.symlink_to(p.name)),
    "blob is a folder": lambda c: instead(c.blob(SHARD), Path.mkdir),
    "blob is a pipe": lambda c: instead(c.blob(SHARD), os.mkfifo),
    "blob never ends": lambda c: instead(c.blob(SHARD), lambda p: p.symlink_to("/dev/zero")),
    "file leads out": lambda c: instead(c.file(BIG), lambda p: p.symlink_to(outside(c) / "model.safetensors")),
    "folder leads back": lambda c: instead(c.file("vae"), lambda p: p.symlink_to("../..")),
    "folder in folder in folder": deep,
    "index leads up": lambda c: c.file(INDEX).resolve().write_text('{"weight_map": {"a": "../../../../canary/x"}}'),
    "index nests": lambda c: c.file(INDEX).resolve().write_text("[" * 200_000),
    "quarantine leads out": quarantine_outside,
    "blobs lead out": lambda c: instead(c.repo / "blobs", lambda p: p.symlink_to(outside(c))),
}


@pytest.mark.parametrize("name", SPOILT)
def test_what_lies_or_leads_astray(cache: Cache, capsys: pytest.CaptureFixture[str], name: str) -> None:
    SPOILT[name](cache)
    before = picture(outside(cache))
    for words in (["check", "config.yaml", "--deep"], ["cache"], ["cache", REPO, "--deep"], ["fix", "config.yaml"]):
        assert main(words) in (0, 1, 3), words
        out, err = capsys.readouterr()
        assert "Traceback" not in err and "crashed" not in out and " failed: " not in out, out + err
    assert main(["extract", REPO, "copy", "--model-only"]) in (0, 1, 2)
    for words in (["fix", "config.yaml", "--apply", "--select", "HUB"], ["cache", REPO, "--fix", "--apply"]):
        assert main(words) in (0, 1, 2, 3), words
        out, err = capsys.readouterr()
        assert "Traceback" not in err, err
    assert picture(outside(cache)) == before


def broken(cache: Cache) -> dict[str, object]:
    cache.blob(BIG).write_bytes(MODEL[BIG][:-100])
    return picture(cache.root)


@root_on_linux
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("size=5m,mode=755", "free, but"),
        ("size=64m,nr_inodes=100", "room for|No space left"),
        ("ro", "cannot be written to"),
    ],
    ids=["full", "no inodes", "read-only"],
)
def test_a_disk_that_takes_nothing(
    healthy: Cache, cache: Cache, capsys: pytest.CaptureFixture[str], options: str, says: str, tmp_path: Path
) -> None:
    """A damaged file there: named, and its repair refused with the reason; every byte stays."""
    disk = tmp_path / "disk"
    disk.mkdir()
    with mounted(disk, options.replace("ro", "size=64m")):
        here = healthy.copy(disk / "hub")
        broken(here)
        if "full" in says or "size=5m" in options:
            with (disk / "filler").open("wb", buffering=0) as file:
                room = os.statvfs(disk)
                file.write(bytes(max(room.f_bavail * room.f_frsize - 20_000, 0)))
        if "nr_inodes" in options:
            while os.statvfs(disk).f_favail > 0:
                (disk / f"filler{os.statvfs(disk).f_favail}").touch()
        if options == "ro":
            subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        before = picture(disk)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("HF_HUB_CACHE", str(here.root))
            assert main(["fix", "config.yaml", "--apply", "--select", "HUB001"]) != 0
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        assert any(word in " ".join((out + err).split()) for word in says.split("|")), out + err
        assert picture(disk) == before


@root_on_linux
@pytest.mark.parametrize("mode", [0o700, 0o755], ids=["closed", "read-only"])
def test_a_cache_of_someone_else(healthy: Cache, server: HubServer, mode: int) -> None:
    """Closed to us it is unknown, never green; one that may be read is checked, and not repaired."""
    with TemporaryDirectory() as name:  # those of pytest are closed to others
        home = Path(name)
        home.chmod(0o755)
        cache = healthy.copy(home / "hub")
        broken(cache)
        cache.manifest.chmod(0o644)
        for folder, _, files in os.walk(cache.root):
            os.chmod(folder, mode)
            for path in (folder, *(os.path.join(folder, file) for file in files)):
                os.chown(path, 65534, 65534, follow_symlinks=False)
        write_config(home, name_or_path=REPO)
        (home / "state").mkdir(mode=0o777)
        (home / "state").chmod(0o777)
        before = picture(home / "hub")
        code = """
from zdoctor.doctor.cli import main
from zdoctor.tests.modes import modes_apply
hub = ["--select", "HUB"]
with modes_apply():
    for words in (["check", "config.yaml", *hub], ["cache"], ["fix", "config.yaml", "--apply", *hub]):
        print("->", main(words), flush=True)
"""
        given = {"HF_HUB_CACHE": str(cache.root), "ZDOCTOR_STATE": str(home / "state"), "HOME": str(home)}
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            cwd=home,
            env={**environment(), **given, "HF_ENDPOINT": server.url},
        )
        said = " ".join(done.stdout.split())
        codes = [line for line in done.stdout.splitlines() if line.startswith("->")]
        assert "Traceback" not in done.stderr, done.stderr
        if mode == 0o700:
            assert "EACCES" in said and codes[:2] != ["-> 0", "-> 0"], done.stdout + done.stderr
            assert f"{BIG} of" not in said
        else:
            assert f"{BIG} of {REPO} is damaged" in said
            assert codes == ["-> 1", "-> 1", "-> 1"] or codes[2] == "-> 2", done.stdout + done.stderr
            assert "cannot be written to" in said + done.stderr, done.stdout + done.stderr
        assert picture(home / "hub") == before


def test_files_that_come_and_go_meanwhile(cache: Cache, capsys: pytest.CaptureFixture[str]) -> None:
    """A download runs beside the check: whatever it sees, it ends in words."""
    blob, link = cache.blob(SHARD), cache.file(SHARD)
    content, over = blob.read_bytes(), threading.Event()

    def disturb() -> None:
        while not over.is_set():
            blob.unlink(missing_ok=True)
            blob.write_bytes(content[:1000])
            blob.write_bytes(content)
            link.unlink(missing_ok=True)
            link.symlink_to(os.path.relpath(blob, link.parent))

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        for words in (["check", "config.yaml", "--deep", "--select", "HUB"], ["cache", "--deep"]) * 4:
            assert main(words) in (0, 1, 3)
            out, err = capsys.readouterr()
            assert "Traceback" not in err and " failed: " not in out, out + err
    finally:
        over.set()
        thread.join()
    assert load(cache) == MODEL
