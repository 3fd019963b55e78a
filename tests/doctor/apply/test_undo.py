"""Undo is exact, or it is refused with the name of what would be lost."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from huggingface_hub import scan_cache_dir
from hypothesis import example, given, settings
from hypothesis import strategies as st

from zdoctor.doctor.apply import ApplyError, Busy, UndoRefused, apply, history, recover, undo
from zdoctor.doctor.apply.actions.journal import Journal, locked
from zdoctor.doctor.cli import main
from zdoctor.doctor.files.fingerprints import of_bytes
from zdoctor.doctor.model import (
    CopyItem,
    ExtractFiles,
    MakeLink,
    MirrorFolder,
    PlaceCopy,
    Quarantine,
    ReplaceText,
    SetValue,
    Step,
    WriteText,
)
from zdoctor.tests.modes import modes_apply

from ..trees import plan, snapshot, without_parts


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    (folder / "data" / "sub").mkdir(parents=True)
    (folder / "data" / "a.png").write_bytes(b"png")
    (folder / "data" / ".aitk_size.json").write_text("{}")
    (folder / "c.yaml").write_text("a: 1\n")
    (folder / "c.yaml").chmod(0o600)
    os.utime(folder / "c.yaml", ns=(1, 123456789))
    (folder / "bad").write_bytes(b"bad")
    (folder / "good").write_bytes(b"good")
    (folder / "link").symlink_to("gone")
    return folder


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


def everything(home: Path) -> tuple[Step, ...]:
    return (
        PlaceCopy(str(home / "bad"), str(home / "good"), 4, None),
        MakeLink(str(home / "link"), "good"),
        WriteText(str(home / "refs" / "main"), "c"),
        ExtractFiles(str(home / "out" / "m"), (CopyItem(str(home / "good"), "x/y", 4),)),
        MirrorFolder(str(home / "data"), str(home / "mirror")),
        SetValue(str(home / "c.yaml"), "/a", "mirror"),
    )


def test_undo_is_exact_and_history_tells_it(home: Path, state: Path) -> None:
    before = snapshot(home)
    done = apply(plan(*everything(home)), state=state)
    assert snapshot(home) != before
    (entry,) = history(state)
    assert (entry.id, entry.state, entry.config) == (done.id, "applied", "config.yaml")
    assert len(entry.what) == 6
    lines = undo(state=state)
    assert len(lines) == 6
    assert snapshot(home) == before
    assert history(state)[0].state == "undone"
    with pytest.raises(UndoRefused, match="nothing to undo"):
        undo(state=state)


def test_a_journal_that_cannot_be_read_is_not_an_empty_one(
    home: Path, state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ZDOCTOR_STATE", str(state))
    assert main(["history"]) == 0 and "Nothing was repaired yet" in capsys.readouterr().out
    state.write_text("a file")
    assert main(["history"]) == 2
    said = capsys.readouterr()
    assert f"{state}/journal: Not a directory" in said.err and "ZDOCTOR_STATE" in said.err and not said.out
    state.unlink()
    apply(plan(*everything(home)), state=state)
    if os.name == "nt":
        pytest.skip("modes of POSIX")
    (state / "journal").chmod(0o300)
    with modes_apply():
        with pytest.raises(ApplyError, match="cannot be read"):
            history(state)
        with pytest.raises(ApplyError, match="cannot be read"):
            recover(state)


def edit_config(home: Path) -> None:
    (home / "c.yaml").write_text("a: mine\n")


def remove_config(home: Path) -> None:
    (home / "c.yaml").unlink()


def write_into_mirror(home: Path) -> None:
    (home / "mirror" / "sub" / "new.txt").write_text("caption")


def change_copy(home: Path) -> None:
    (home / "out" / "m" / "x" / "y").write_bytes(b"mine")


def retarget_link(home: Path) -> None:
    (home / "link").unlink()
    (home / "link").symlink_to("data")


def replace_repaired(home: Path) -> None:
    (home / "bad").write_bytes(b"mine")


def empty_quarantine(home: Path) -> None:
    next(home.glob("bad.zdoctor-quarantine-*")).unlink()


@pytest.mark.parametrize(
    "meddle, named",
    [
        (edit_config, "c.yaml was edited since"),
        (remove_config, "c.yaml is gone"),
        (write_into_mirror, "new.txt is new"),
        (change_copy, "y was changed since"),
        (retarget_link, "link was changed since"),
        (replace_repaired, "bad was changed since"),
        (empty_quarantine, "which was .*bad, is gone"),
    ],
)
def test_undo_is_refused_where_work_would_be_lost(
    home: Path, state: Path, meddle: Callable[[Path], None], named: str
) -> None:
    apply(plan(*everything(home)), state=state)
    meddle(home)
    before = snapshot(home)
    with pytest.raises(UndoRefused, match=named):
        undo(state=state)
    assert snapshot(home) == before
    assert history(state)[0].state == "applied"


def remove_from_mirror(home: Path) -> None:
    (home / "mirror" / "a.png").unlink()


def remove_mirror(home: Path) -> None:
    shutil.rmtree(home / "mirror")


def put_back_by_hand(home: Path) -> None:
    (home / "c.yaml").write_text("a: 1\n")


def touch_mode(home: Path) -> None:
    (home / "c.yaml").chmod(0o644)


@pytest.mark.parametrize("meddle", [remove_from_mirror, remove_mirror, put_back_by_hand, touch_mode])
def test_undo_goes_through_where_nothing_is_lost(home: Path, state: Path, meddle: Callable[[Path], None]) -> None:
    before = snapshot(home)
    apply(plan(*everything(home)), state=state)
    meddle(home)
    undo(state=state)
    assert snapshot(home) == before


def test_passes_of_one_repair_are_undone_together(home: Path, state: Path) -> None:
    before = snapshot(home)
    config = str(home / "c.yaml")
    first = apply(plan(SetValue(config, "/a", 2), Quarantine(str(home / "bad"))), state=state)
    second = apply(plan(SetValue(config, "/a", 3), WriteText(str(home / "bad"), "new")), state=state, group=first.id)
    assert second.id != first.id
    (entry,) = history(state)
    assert entry.id == first.id
    undo(second.id, state=state)
    assert snapshot(home) == before
    assert history(state)[0].state == "undone"


def test_repairs_are_undone_by_name_and_only_in_a_possible_order(home: Path, state: Path) -> None:
    config = str(home / "c.yaml")
    first = apply(plan(SetValue(config, "/a", 2)), state=state)
    middle = snapshot(home)
    second = apply(plan(SetValue(config, "/a", 3)), state=state)
    with pytest.raises(UndoRefused, match="edited since"):
        undo(first.id, state=state)
    with pytest.raises(UndoRefused, match="There is no repair"):
        undo("x", state=state)
    undo(second.id, state=state)
    assert snapshot(home) == middle
    with pytest.raises(UndoRefused, match="already taken back"):
        undo(second.id, state=state)
    undo(first.id[:-1] if not second.id.startswith(first.id[:-1]) else first.id, state=state)
    assert [entry.state for entry in history(state)] == ["undone", "undone"]


def test_only_one_writer_at_a_time(home: Path, state: Path) -> None:
    with locked(state):
        with pytest.raises(Busy):
            apply(plan(SetValue(str(home / "c.yaml"), "/a", 2)), state=state)
        assert recover(state) == ()
    assert recover(state) == ()


def test_recover_looks_without_touching(tmp_path: Path) -> None:
    assert recover(tmp_path / "none") == ()
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("symlinks", [True, False])
def test_a_quarantine_in_a_hub_cache_disturbs_no_scan(tmp_path: Path, symlinks: bool) -> None:
    cache = tmp_path / "hub"
    repo = cache / "models--o--n"
    commit, etag = "c" * 40, "e" * 64
    for folder in ("blobs", "refs", f"snapshots/{commit}"):
        (repo / folder).mkdir(parents=True)
    (repo / "refs" / "main").write_text(commit)
    pointer = repo / "snapshots" / commit / "model.safetensors"
    blob = repo / "blobs" / etag
    if symlinks:
        blob.write_bytes(b"bad")
        pointer.symlink_to(f"../../blobs/{etag}")
    else:
        pointer.write_bytes(b"bad")
    (repo / "blobs" / f"{etag}.0a1b2c3d.incomplete").write_bytes(b"half")
    store = cache / "blobs" / "ab"
    store.mkdir(parents=True)
    (cache / "blobs" / ".huggingface-shared-blobs").write_text("1\n")
    (store / ("ab" + "0" * 62)).write_bytes(b"bad")
    (tmp_path / "good").write_bytes(b"good")
    before = snapshot(cache)
    size = scan_cache_dir(cache).size_on_disk
    damaged = blob if symlinks else pointer
    steps = (
        PlaceCopy(str(damaged), str(tmp_path / "good"), 4, None),
        Quarantine(str(repo / "blobs" / f"{etag}.0a1b2c3d.incomplete")),
        Quarantine(str(store / ("ab" + "0" * 62))),
    )
    apply(plan(*steps), state=tmp_path / "state")
    scan = scan_cache_dir(cache)
    assert not scan.warnings
    assert not scan.incomplete_files
    assert [r.repo_id for r in scan.repos] == ["o/n"]
    assert scan.size_on_disk == size - 2  # a byte more of the repaired file, the three of the store gone
    assert pointer.read_bytes() == b"good"
    assert sum(path.is_file() for path in (repo / ".zdoctor-quarantine").rglob("*")) == 2
    undo(state=tmp_path / "state")
    assert snapshot(cache) == before


NAMES = st.sampled_from(["a", "b", "c", "d"])
PATHS = st.lists(NAMES, min_size=1, max_size=2).map("/".join)
TEXTS = st.text(st.sampled_from("a:1 é\r\n"), max_size=8)
TREES = st.dictionaries(
    PATHS, st.one_of(st.tuples(st.just("file"), TEXTS), st.tuples(st.just("link"), PATHS)), max_size=6
)
STEPS = st.lists(
    st.one_of(
        st.builds(WriteText, PATHS, TEXTS),
        st.builds(MakeLink, PATHS, PATHS),
        st.builds(Quarantine, PATHS),
        st.builds(MirrorFolder, PATHS, PATHS),
        st.builds(PlaceCopy, PATHS, PATHS, st.integers(0, 8), st.none()),
        st.builds(lambda target, source: ExtractFiles(target, (CopyItem(source, "x/y", 1),)), PATHS, PATHS),
        st.builds(lambda path, new: ReplaceText(path, 0, 0, "", new), PATHS, TEXTS),
    ),
    min_size=1,
    max_size=3,
)


def plant(home: Path, tree: dict[str, tuple[str, str]]) -> None:
    for name, (kind, text) in tree.items():
        path = home / name
        if path.is_symlink() or path.exists() or any(p.is_symlink() or p.is_file() for p in path.parents):
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == "file":
            path.write_bytes(text.encode())
        else:
            path.symlink_to(home / text)


def settled(home: Path, step: Step) -> Step:
    """The step with its relative names below `home` and the sizes its sources really have."""

    def at(name: str) -> str:
        return str(home / name)

    def size(name: str) -> int:
        return (home / name).stat().st_size if (home / name).is_file() else 1

    match step:
        case ExtractFiles():
            items = tuple(CopyItem(at(i.source), i.name, size(i.source)) for i in step.items)
            return ExtractFiles(at(step.path), items)
        case MirrorFolder():
            return MirrorFolder(at(step.source), at(step.path))
        case PlaceCopy():
            return PlaceCopy(at(step.path), at(step.source), size(step.source), None)
        case WriteText():
            return WriteText(at(step.path), step.text)
        case MakeLink():
            return MakeLink(at(step.path), step.target)
        case Quarantine():
            return Quarantine(at(step.path))
        case ReplaceText():
            return ReplaceText(at(step.path), 0, 0, "", step.new)
        case _:
            return step


@settings(max_examples=300, deadline=None)
@given(TREES, STEPS)
@example({"a": ("link", "b"), "c": ("file", "")}, [Quarantine("a"), WriteText("a/a", "")])
@example({"b": ("link", "a")}, [MakeLink("b", "b"), WriteText("b/a", "")])
def test_any_plan_on_any_tree_is_undone_exactly_or_never_happened(
    tree: dict[str, tuple[str, str]], steps: list[Step]
) -> None:
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        home, state = Path(folder) / "home", Path(folder) / "state"
        home.mkdir()
        plant(home, tree)
        before = snapshot(home)
        try:
            apply(plan(*(settled(home, step) for step in steps)), state=state)
        except ApplyError as error:
            assert "Not taken back" not in str(error)
            assert without_parts(home) == before
            return
        undo(state=state)
        assert snapshot(home) == before


def interrupted_edit(home: Path, state: Path, before: bytes, after: bytes) -> Path:
    """A transaction that was killed right before it wrote over a config in place."""
    path = home / "torn.yaml"
    path.write_bytes(before)
    journal = Journal.create(state, str(path), ("an edit",))
    journal.keep("0.before", before)
    journal.keep("0.after", after)
    info = path.stat()
    names = {"path": str(path), "temporary": str(home / "none")}
    journal.begin(
        "edit", **names, mode=0o644, mtime_ns=info.st_mtime_ns, before=of_bytes(before), after=of_bytes(after)
    )
    journal.log({"do": "in-place", "n": 0})
    return path


@pytest.mark.parametrize("before, after", [(b"path: long value\n", b"path: b\n"), (b"a: 1\n", b"a: much longer\n")])
def test_a_half_written_file_is_recognised_and_restored(home: Path, state: Path, before: bytes, after: bytes) -> None:
    for done in range(len(after) + 1):
        path = interrupted_edit(home, state, before, after)
        path.write_bytes(after[:done] + before[done:])
        assert len(recover(state)) == 1
        assert path.read_bytes() == before


def test_what_was_edited_after_a_kill_is_left_and_named(home: Path, state: Path) -> None:
    path = interrupted_edit(home, state, b"a: 1\n", b"a: 2\n")
    path.write_text("a: 3\n")
    lines = recover(state)
    assert "torn.yaml was edited since" in lines[1]
    assert path.read_text() == "a: 3\n"
    assert recover(state) == ()


@pytest.mark.parametrize("torn", [b'{"do": "appl', b'{"do": "applied"', b"\0\0\0\0"])
def test_a_torn_last_line_was_never_written(home: Path, state: Path, torn: bytes) -> None:
    path = interrupted_edit(home, state, b"a: 1\n", b"a: 2\n")
    path.write_text("a: 2\n")
    (file,) = (state / "journal").glob("*/journal.jsonl")
    with file.open("ab") as journal:
        journal.write(torn)
    assert len(recover(state)) == 1
    assert path.read_text() == "a: 1\n"
    assert history(state)[0].state == "rolled back"
    assert recover(state) == ()


def test_a_path_that_leads_through_what_it_replaces(home: Path, state: Path) -> None:
    (home / "loop").mkdir()
    (home / "loop" / "a").symlink_to(home / "loop")
    before = snapshot(home)
    apply(plan(WriteText(str(home / "loop" / "a" / "a"), "text")), state=state)
    undo(state=state)
    assert snapshot(home) == before
