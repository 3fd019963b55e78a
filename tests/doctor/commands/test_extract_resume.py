"""An extraction that was cut short: what was finished stays, is told of, and is what the next run begins with."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from zdoctor.doctor.apply import Applied, ApplyError, Busy, apply, diff, history, recover, undo
from zdoctor.doctor.apply.actions.part import files_of, finished, held, part_of
from zdoctor.doctor.cli import main
from zdoctor.doctor.commands import extract as extract_command
from zdoctor.doctor.model import CopyItem, ExtractFiles
from zdoctor.doctor.progress import Progress
from zdoctor.tests.hub_cache import BIG, MODEL, REPO, Cache, download
from zdoctor.tests.hub_server import HubServer

from ..trees import plan, snapshot, without_parts

SIZE = 3 << 20  # more than one file of it is read in several blocks
NAMES = ("a.safetensors", "vae/b.safetensors", "vae/c.safetensors")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    for number, name in enumerate(NAMES):
        (folder / Path(name).name).write_bytes(os.urandom(SIZE + (number << 21)))
        os.utime(folder / Path(name).name, ns=(10**18, 10**18))
    return folder


def step(home: Path, *names: str, published: bool = True, hardlink: bool = False) -> ExtractFiles:
    items = []
    for name in names or NAMES:
        data = (home / Path(name).name).read_bytes()
        digest = "sha256:" + hashlib.sha256(data).hexdigest() if published else None
        items.append(CopyItem(str(home / Path(name).name), name, len(data), digest))
    return ExtractFiles(str(home / "models" / "m"), tuple(items), hardlink)


def extract(home: Path, wanted: ExtractFiles, progress: Callable[[int, int, str], None] | None = None) -> Applied:
    return apply(plan(wanted), state=home.parent / "state", progress=progress)


def stop_in(name: str, strike: Callable[[], None]) -> Callable[[int, int, str], None]:
    def progress(done: int, total: int, now: str) -> None:
        if now == name:
            strike()

    return progress


def interrupt() -> None:
    raise KeyboardInterrupt


def cut_short(home: Path, wanted: ExtractFiles, at: str = NAMES[2]) -> Path:
    with pytest.raises(KeyboardInterrupt):
        extract(home, wanted, stop_in(at, interrupt))
    return part_of(Path(wanted.path))


def require_extracted(wanted: ExtractFiles) -> None:
    target = Path(wanted.path)
    found = {p.relative_to(target).as_posix(): p.read_bytes() for p in target.rglob("*") if p.is_file()}
    assert found == {item.name: Path(item.source).read_bytes() for item in wanted.items}
    assert not part_of(target).exists()


@pytest.mark.parametrize("published", [True, False], ids=["sha256", "no-digest"])
def test_the_next_run_goes_on(home: Path, published: bool) -> None:
    before, wanted = snapshot(home), step(home, published=published)
    with pytest.raises(KeyboardInterrupt, match=r"2 finished files, 8\.39 MB, are kept in .*m\.zdoctor-part: "):
        extract(home, wanted, stop_in(NAMES[2], interrupt))
    part = part_of(Path(wanted.path))
    assert sorted(finished(part)) == list(NAMES[:2])
    assert sorted(p.name for p in files_of(part).rglob("*")) == ["a.safetensors", "b.safetensors", "vae"]
    assert [entry.state for entry in history(home.parent / "state")] == ["cut short"]
    assert without_parts(home) == before
    assert "verifying each; 8.39 MB of it lie ready from an earlier run" in diff(plan(wanted))
    done = extract(home, wanted)
    assert (done.adopted, done.copied) == (2 * SIZE + (1 << 21), SIZE + (2 << 21))
    assert done.unverified == (0 if published else 3)
    require_extracted(wanted)
    undo(state=home.parent / "state")
    assert snapshot(home) == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a forked process")
def test_after_a_kill_the_next_run_goes_on(home: Path) -> None:
    wanted, state = step(home), home.parent / "state"
    for at in NAMES[1:]:
        pid = os.fork()
        if not pid:
            extract(home, wanted, stop_in(at, lambda: os.kill(os.getpid(), signal.SIGKILL)))
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
        assert (files_of(part_of(Path(wanted.path))) / at).exists()
    lines = recover(state)
    assert "2 finished files" in lines[-1] and len(lines) == 2
    assert not (files_of(part_of(Path(wanted.path))) / NAMES[2]).exists()
    assert extract(home, wanted).adopted == 2 * SIZE + (1 << 21)
    require_extracted(wanted)


def test_only_what_this_extraction_wants_is_taken(home: Path) -> None:
    cut_short(home, step(home))
    (home / "b.safetensors").write_bytes(b"another model")
    wanted = step(home, *NAMES[1:])
    assert extract(home, wanted).adopted == 0
    require_extracted(wanted)


def test_without_a_digest_a_source_that_changed_is_copied_again(home: Path) -> None:
    cut_short(home, step(home, published=False))
    data = bytearray((home / "a.safetensors").read_bytes())
    data[0] ^= 1
    (home / "a.safetensors").write_bytes(data)
    wanted = step(home, published=False)
    assert extract(home, wanted).adopted == SIZE + (1 << 21)
    require_extracted(wanted)


def _edit(file: Path) -> None:
    info = file.stat()
    with file.open("r+b") as opened:
        opened.write(b"edited")
    os.utime(file, ns=(info.st_atime_ns, info.st_mtime_ns))


def _link(file: Path) -> None:
    away = file.with_name("away")
    file.rename(away)
    file.symlink_to(away.name)


def _move_the_folder_away(file: Path) -> None:
    away = file.parents[4] / "vae"
    file.parent.rename(away)
    file.parent.symlink_to(away)


@pytest.mark.parametrize("meddle", [Path.unlink, _edit, _link, _move_the_folder_away])
def test_a_finished_file_that_was_changed_is_made_anew(home: Path, meddle: Callable[[Path], None]) -> None:
    wanted = step(home)
    part = cut_short(home, wanted)
    meddle(files_of(part) / NAMES[1])
    outside = {p: p.read_bytes() for p in home.parent.rglob("vae/*") if part not in p.parents}
    assert extract(home, wanted).adopted == SIZE
    require_extracted(wanted)
    assert all(path.read_bytes() == data for path, data in outside.items())


@pytest.mark.parametrize(
    "tail", [b'\n{"name": "vae/c.safetens', b"\n\0\0\0", b"\n[1]\n5\n{}", b'\n{"name": "../../a"}']
)
def test_a_torn_manifest(home: Path, tail: bytes) -> None:
    wanted = step(home)
    part = cut_short(home, wanted)
    with (part / "manifest.jsonl").open("ab") as manifest:
        manifest.write(b"\n" + tail)
    assert extract(home, wanted).adopted == 2 * SIZE + (1 << 21)
    require_extracted(wanted)


def test_what_a_power_cut_leaves_of_the_manifest_is_ours(home: Path) -> None:
    wanted = step(home)
    part = part_of(Path(wanted.path))
    part.mkdir(parents=True)
    (part / "lock").touch()
    (part / "manifest.jsonl").touch()
    extract(home, wanted)
    require_extracted(wanted)


@pytest.mark.parametrize("name", ["notes.txt", "manifest.jsonl", "files/a.safetensors"])
def test_a_folder_that_no_extraction_made_is_left_alone(home: Path, name: str) -> None:
    wanted = step(home)
    part = part_of(Path(wanted.path))
    (part / name).parent.mkdir(parents=True)
    (part / name).write_text("mine")
    before = snapshot(home)
    with pytest.raises(ApplyError, match="no extraction of yours made it"):
        extract(home, wanted)
    assert snapshot(home) == before


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="gives files away, which takes root")
def test_what_another_user_has_prepared_is_not_believed(home: Path) -> None:
    wanted = step(home)
    part = cut_short(home, wanted)
    os.chown(part, 65534, 65534)
    before = snapshot(home)
    with pytest.raises(ApplyError, match="no extraction of yours made it"):
        extract(home, wanted)
    assert snapshot(home) == before


def test_files_that_were_moved_elsewhere_are_left_alone(home: Path) -> None:
    wanted = step(home)
    part = cut_short(home, wanted)
    files_of(part).rename(home / "moved")
    (home / "moved" / "mine").touch()
    files_of(part).symlink_to(home / "moved")
    before = snapshot(home)
    with pytest.raises(ApplyError, match="no extraction of yours made it"):
        extract(home, wanted)
    assert snapshot(home) == before


def test_two_at_the_same_time(home: Path) -> None:
    """Two users, or two state folders: the second is told, and takes nothing from the first."""
    wanted = step(home)
    part = cut_short(home, wanted)
    with held(part), pytest.raises(ApplyError, match="Another zdoctor is at work in"):
        extract(home, wanted)
    assert sorted(finished(part)) == list(NAMES[:2])
    with held(part), pytest.raises(Busy), held(part):
        pass
    extract(home, wanted)
    require_extracted(wanted)


def test_copies_are_not_begun_with_hard_links(home: Path) -> None:
    wanted = step(home, hardlink=True)
    with pytest.raises(KeyboardInterrupt):
        extract(home, wanted, stop_in("c.safetensors", interrupt))
    done = extract(home, step(home))
    assert done.adopted == 0
    assert not any((Path(wanted.path) / name).samefile(home / Path(name).name) for name in NAMES)
    undo(state=home.parent / "state")
    with pytest.raises(KeyboardInterrupt):
        extract(home, wanted, stop_in("c.safetensors", interrupt))
    assert extract(home, wanted).adopted == 2 * SIZE + (1 << 21)
    assert all((Path(wanted.path) / name).samefile(home / Path(name).name) for name in NAMES)


def test_what_is_finished_needs_no_more_room(home: Path) -> None:
    wanted = step(home)
    part = cut_short(home, wanted)
    room = shutil.disk_usage(home).free
    huge = [CopyItem(str(home / "huge"), name, room, "sha256:" + "0" * 64) for name in ("x", "y")]
    (home / "huge").touch()
    os.truncate(home / "huge", room)
    with pytest.raises(ApplyError, match="are needed"):
        extract(home, ExtractFiles(wanted.path, (*wanted.items, *huge)))
    assert sorted(finished(part)) == list(NAMES[:2])


def test_giving_up_is_deleting_the_folder(home: Path) -> None:
    before, wanted = snapshot(home), step(home)
    shutil.rmtree(cut_short(home, wanted))
    assert recover(home.parent / "state") == ()
    (home / "models").rmdir()
    assert snapshot(home) == before


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    with HubServer({REPO: MODEL}) as server:
        return download(server, tmp_path / "hub", "linked")


def test_the_command_says_what_it_kept_and_goes_on(
    cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(cache.root))
    target = str(tmp_path / "model")
    progress = Progress()
    monkeypatch.setattr(progress, "bytes_done", stop_in(BIG, interrupt))
    monkeypatch.setattr(extract_command, "open_progress", lambda: progress)
    assert main(["extract", REPO, target]) == 130
    said = capsys.readouterr().err
    assert "stopped. Nothing is half done." in said and "are kept in" in said
    assert f"{target}.zdoctor-part: the same command goes on from there" in said
    assert main(["history"]) == 0
    assert "cut short" in capsys.readouterr().out
    monkeypatch.undo()
    monkeypatch.setenv("HF_HUB_CACHE", str(cache.root))
    monkeypatch.setenv("ZDOCTOR_STATE", str(tmp_path / "another state"))
    assert main(["extract", REPO, target]) == 0
    assert "lay finished there from an earlier run; 1.6 MB were added." in capsys.readouterr().out
    assert (Path(target) / BIG).read_bytes() == MODEL[BIG]
    assert sys.platform == "win32" or not list(tmp_path.glob("*.zdoctor-part"))
