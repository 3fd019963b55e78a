"""The writer: every step does what it says, verified, and a failure leaves no trace."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from zdoctor.doctor.apply import Applied, ApplyError, StalePlan, apply, bind, describe, diff
from zdoctor.doctor.model import (
    CopyItem,
    ExtractFiles,
    Fix,
    MakeLink,
    MirrorFolder,
    PlaceCopy,
    Plan,
    Quarantine,
    ReplaceText,
    SetValue,
    Step,
    WriteText,
)

from ..trees import plan, snapshot, without_parts

Digest = Callable[[bytes], str | None]


def sha256(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def git_sha1(data: bytes) -> str:
    return "git-sha1:" + hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.mark.parametrize(
    "before, after",
    [
        (b"a: 1\nb: 2 # two\n", b"a: 1\nb: 3 # two\n"),
        (b"a: 1\r\nb: 2 # two\r\n", b"a: 1\r\nb: 3 # two\r\n"),
        (b"\xef\xbb\xbfa: 1\nb: 2\n", b"\xef\xbb\xbfa: 1\nb: 3\n"),
        ("a: é\nb: 2".encode(), "a: é\nb: 3".encode()),
    ],
    ids=["plain", "crlf", "bom", "no-newline-at-the-end"],
)
def test_only_the_value_changes(home: Path, state: Path, before: bytes, after: bytes) -> None:
    config = home / "c.yaml"
    config.write_bytes(before)
    config.chmod(0o640)
    apply(plan(SetValue(str(config), "/b", 3)), state=state)
    assert config.read_bytes() == after
    assert config.stat().st_mode & 0o777 == 0o640
    assert [p.name for p in home.iterdir()] == ["c.yaml"]


def test_edits_of_one_file_are_one_edit(home: Path, state: Path) -> None:
    config = home / "c.yaml"
    config.write_text("a: 1\nb: 2\n")
    edits = (ReplaceText(str(config), 3, 4, "1", "10"), ReplaceText(str(config), 8, 9, "2", "20"))
    shown = diff(plan(*edits))
    assert "-a: 1\n-b: 2\n+a: 10\n+b: 20" in shown
    apply(plan(*edits), state=state)
    assert config.read_text() == "a: 10\nb: 20\n"


def test_a_linked_config_stays_a_link(home: Path, state: Path) -> None:
    (home / "real.yaml").write_text("a: 1\n")
    (home / "c.yaml").symlink_to("real.yaml")
    apply(plan(SetValue(str(home / "c.yaml"), "/a", 2)), state=state)
    assert (home / "c.yaml").readlink() == Path("real.yaml")
    assert (home / "real.yaml").read_text() == "a: 2\n"


def test_a_hard_linked_config_keeps_its_other_name(home: Path, state: Path) -> None:
    (home / "c.yaml").write_text("a: 1 # a long line that gets shorter\n")
    (home / "other.yaml").hardlink_to(home / "c.yaml")
    apply(plan(SetValue(str(home / "c.yaml"), "/a", 2)), state=state)
    assert (home / "other.yaml").read_text() == "a: 2 # a long line that gets shorter\n"


@pytest.mark.parametrize("digest", [sha256, git_sha1, lambda _: None], ids=["sha256", "git-sha1", "unknown"])
@pytest.mark.parametrize("count", [0, 5, (9 << 20) + 1], ids=["empty", "small", "big"])
def test_files_are_extracted(home: Path, state: Path, digest: Digest, count: int) -> None:
    data = os.urandom(count)
    (home / "blob").write_bytes(data)
    (home / "link").symlink_to("blob")
    seen: list[tuple[int, int, str]] = []
    items = (CopyItem(str(home / "link"), "vae/model.safetensors", count, digest(data)),)
    done = apply(plan(ExtractFiles(str(home / "out"), items)), state=state, progress=lambda *args: seen.append(args))
    copied = home / "out" / "vae" / "model.safetensors"
    assert copied.read_bytes() == data
    assert not copied.is_symlink()
    assert done.copied == count
    assert not count or seen[-1] == (count, count, "vae/model.safetensors")


@pytest.mark.parametrize("kind", [sha256, git_sha1])
def test_a_corrupt_source_is_named_and_only_what_is_finished_stays(home: Path, state: Path, kind: Digest) -> None:
    (home / "good").write_bytes(b"good")
    (home / "bad").write_bytes(b"baad")
    before = snapshot(home)
    items = (
        CopyItem(str(home / "good"), "good", 4, kind(b"good")),
        CopyItem(str(home / "bad"), "bad", 4, kind(b"good")),
    )
    target = home / "deep" / "out"
    with pytest.raises(ApplyError, match=r"bad is corrupt.*Everything is as before[.]$"):
        apply(plan(ExtractFiles(str(target), items[1:])), state=state)
    assert snapshot(home) == before
    with pytest.raises(ApplyError, match=r"bad is corrupt.*1 finished file, 4 bytes, is kept in .*zdoctor-part"):
        apply(plan(ExtractFiles(str(target), items)), state=state)
    part = target.with_name("out.zdoctor-part")
    assert [p.name for p in target.parent.iterdir()] == [part.name]
    assert [p.name for p in (part / "files").iterdir()] == ["good"]
    assert without_parts(home) == before


def test_a_mirror_can_be_written_to_and_the_source_stays(home: Path, state: Path) -> None:
    source = home / "dataset"
    (source / "sub" / "_latent_cache").mkdir(parents=True)
    (source / "a.png").write_bytes(b"png")
    (source / "sub" / "a.txt").write_text("caption")
    (source / ".aitk_size.json").write_text("{}")
    (source / "sub" / "_latent_cache" / "x.safetensors").write_bytes(b"cache")
    before = snapshot(source)
    mirror = home / "mirror"
    apply(plan(MirrorFolder(str(source), str(mirror))), state=state)
    assert (mirror / "a.png").readlink() == source / "a.png"
    assert (mirror / "sub" / "a.txt").is_symlink()
    for name in (".aitk_size.json", "sub/_latent_cache/x.safetensors"):
        assert not (mirror / name).is_symlink()
        (mirror / name).write_text("rewritten by the trainer")
    assert snapshot(source) == before


def test_a_mirror_where_links_are_refused(home: Path, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = home / "dataset"
    source.mkdir()
    (source / "a.png").write_bytes(b"png")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "A required privilege is not held by the client")

    monkeypatch.setattr(Path, "symlink_to", refuse)
    apply(plan(MirrorFolder(str(source), str(home / "hard"))), state=state)
    assert (home / "hard" / "a.png").stat().st_ino == (source / "a.png").stat().st_ino
    monkeypatch.setattr(Path, "hardlink_to", refuse)
    apply(plan(MirrorFolder(str(source), str(home / "copied"))), state=state)
    assert (home / "copied" / "a.png").read_bytes() == b"png"


def test_a_copy_takes_the_place_of_the_damaged_file(home: Path, state: Path) -> None:
    (home / "bad").write_bytes(b"bad")
    (home / "bad").chmod(0o444)
    (home / "good").write_bytes(b"good")
    done = apply(plan(PlaceCopy(str(home / "bad"), str(home / "good"), 4, sha256(b"good"))), state=state)
    assert (home / "bad").read_bytes() == b"good"
    assert (home / "bad").stat().st_mode & 0o777 == 0o444
    assert (home / f"bad.zdoctor-quarantine-{done.id}").read_bytes() == b"bad"


def test_links_and_texts(home: Path, state: Path) -> None:
    link, ref = home / "snapshots" / "c" / "model", home / "refs" / "main"
    steps = (MakeLink(str(link), "../../blobs/x"), WriteText(str(ref), "c" * 40))
    apply(plan(*steps), state=state)
    assert str(link.readlink()) == "../../blobs/x"
    assert ref.read_text() == "c" * 40
    apply(plan(MakeLink(str(link), "../../blobs/y"), WriteText(str(ref), "d" * 40)), state=state)
    assert str(link.readlink()) == "../../blobs/y"
    assert ref.read_text() == "d" * 40


def test_a_plan_whose_files_changed_is_refused(home: Path, state: Path) -> None:
    config, stray = home / "c.yaml", home / "stray"
    config.write_text("a: 1\n")
    stray.write_text("x")
    made = plan(SetValue(str(config), "/a", 2), Quarantine(str(stray)))
    for path, text in ((config, "a: 1 \n"), (stray, "xy")):
        binding = bind(made)
        path.write_text(text)
        before = snapshot(home)
        with pytest.raises(StalePlan, match=path.name):
            apply(made, binding=binding, state=state)
        assert snapshot(home) == before
    apply(made, binding=bind(made), state=state)
    assert config.read_text() == "a: 2 \n"


def test_too_little_room_is_said_before_the_first_byte(home: Path, state: Path) -> None:
    (home / "s").touch()
    os.truncate(home / "s", 1 << 42)
    before = snapshot(home / "none")
    item = CopyItem(str(home / "s"), "s", 1 << 42)
    with pytest.raises(ApplyError, match=r"free, but 4\.44 TB are needed"):
        apply(plan(ExtractFiles(str(home / "out"), (item,))), state=state)
    assert snapshot(home / "none") == before
    assert not (home / "out").exists()


def refused(home: Path) -> dict[str, tuple[Step, ...]]:
    (home / "file").write_text("x")
    (home / "folder").mkdir()
    (home / "folder" / "f").write_text("x")
    file, folder = str(home / "file"), str(home / "folder")
    return {
        "already exists": (ExtractFiles(folder, ()),),
        "is not there any more": (Quarantine(str(home / "none")),),
        "cannot be read": (PlaceCopy(file, str(home / "none"), 1, None),),
        "should be 7": (PlaceCopy(str(home / "new"), file, 7, None),),
        "twice": (WriteText(file, "a"), MakeLink(file, "b")),
        "is a folder": (WriteText(folder, "a"),),
        "lies inside": (MirrorFolder(folder, f"{folder}/mirror"),),
        "is no folder": (WriteText(f"{file}/below", "a"),),
        "folder twice": (Quarantine(f"{folder}/f"), Quarantine(folder)),
        "f twice": (Quarantine(folder), Quarantine(f"{folder}/f")),
        "cannot be edited": (Quarantine(f"{folder}/f"), ReplaceText(file, 0, 1, "y", "z")),
    }


def test_plans_that_cannot_be_carried_out_change_nothing(home: Path, state: Path) -> None:
    for message, steps in refused(home).items():
        before = snapshot(home)
        with pytest.raises(ApplyError, match=message):
            apply(plan(*steps), state=state)
        assert snapshot(home) == before, message


def test_every_step_is_described(home: Path) -> None:
    steps: tuple[Step, ...] = (
        ExtractFiles("/m", (CopyItem("/a", "a", 24_600_000_000), CopyItem("/b", "b", 0))),
        MirrorFolder("/d", "/e"),
        Quarantine("/f"),
        WriteText("/r", "abc"),
        MakeLink("/l", "t"),
        PlaceCopy("/p", "/s", 5, None),
        SetValue("/none.yaml", "/a", True),
    )
    shown = diff(plan(*steps))
    assert "copy 2 files, 24.6 GB, into /m" in shown
    assert "cannot be done now: set /a to true in /none.yaml" in shown
    assert len(shown.splitlines()) == len(steps)
    assert all(describe(step) for step in steps)


def test_an_empty_plan_is_no_transaction(state: Path) -> None:
    assert apply(Plan("c.yaml", (Fix("nothing", ()),)), state=state) == Applied("", 0)
    assert not state.exists()


def test_it_can_be_imported_where_there_are_no_unix_modules() -> None:
    program = "import sys; sys.modules['fcntl'] = None; import zdoctor.doctor.apply, zdoctor.doctor.state"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_nothing_heavy_is_imported_before_it_is_needed() -> None:
    program = "import sys, zdoctor.doctor.apply; print({'huggingface_hub', 'torch', 'numpy'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert run.stdout == "set()\n"


def test_an_error_of_our_own_is_taken_back_and_not_hidden(home: Path, state: Path) -> None:
    (home / "s").write_text("x")
    before = snapshot(home)

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    steps = (WriteText(str(home / "a"), "a"), ExtractFiles(str(home / "o"), (CopyItem(str(home / "s"), "s", 1),)))
    with pytest.raises(ZeroDivisionError):
        apply(plan(*steps), state=state, progress=broken)
    assert snapshot(home) == before
