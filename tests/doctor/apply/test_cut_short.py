"""The next undo takes back what a kill cut short; a damaged journal is an error, a newer one is left alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from zdoctor.doctor.apply import ApplyError, UndoRefused, apply, history, recover, undo
from zdoctor.doctor.apply.actions import journal
from zdoctor.doctor.apply.actions.journal import Journal
from zdoctor.doctor.cli import main
from zdoctor.doctor.model import SetValue, WriteText

from ..trees import plan, snapshot


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "c.yaml").write_text("a: 1\n")
    return folder


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


def cut_off(state: Path, done: str, kept: int) -> None:
    """As if a kill had come when the last repair had written `kept` of its records."""
    file = state / "journal" / done / "journal.jsonl"
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:kept]))


def test_undo_after_a_kill_in_a_later_pass_takes_the_whole_repair_back(home: Path, state: Path) -> None:
    before = snapshot(home)
    earlier = apply(plan(WriteText(str(home / "refs" / "main"), "c")), state=state)
    between = snapshot(home)
    config = str(home / "c.yaml")
    first = apply(plan(SetValue(config, "/a", 2)), state=state)
    second = apply(plan(SetValue(config, "/a", 3)), state=state, group=first.id)
    cut_off(state, second.id, 2)
    undo(state=state)
    assert snapshot(home) == between
    assert {entry.id: entry.state for entry in history(state)} == {earlier.id: "applied", first.id: "undone"}
    undo(state=state)
    assert snapshot(home) == before


@pytest.mark.parametrize("named", [False, True])
def test_undo_by_name_of_what_was_cut_short(home: Path, state: Path, named: bool) -> None:
    before = snapshot(home)
    done = apply(plan(SetValue(str(home / "c.yaml"), "/a", 2)), state=state)
    cut_off(state, done.id, 2)
    lines = undo(done.id if named else None, state=state)
    assert lines == (f"{done.id} was taken back: it was cut short",)
    assert snapshot(home) == before
    with pytest.raises(UndoRefused, match="already taken back" if named else "nothing to undo"):
        undo(done.id if named else None, state=state)


def test_an_undo_that_was_cut_short_is_finished_for_every_pass(home: Path, state: Path) -> None:
    before = snapshot(home)
    config = str(home / "c.yaml")
    first = apply(plan(SetValue(config, "/a", 2)), state=state)
    second = apply(plan(SetValue(config, "/a", 3)), state=state, group=first.id)
    Journal(state / "journal" / second.id).log({"do": "undoing"})
    assert len(recover(state)) == 2
    assert snapshot(home) == before
    assert [entry.state for entry in history(state)] == ["undone"]


def test_a_kill_before_the_first_record_is_the_last_repair_of_all(home: Path, state: Path) -> None:
    done = apply(plan(SetValue(str(home / "c.yaml"), "/a", 2)), state=state)
    after = snapshot(home)
    unbegun = state / "journal" / "99991231-000000-000000-00"
    unbegun.mkdir()
    (unbegun / "journal.jsonl").write_bytes(b'{"do": "begin", "vers')
    assert undo(state=state) == (f"{unbegun.name} was cut short before it had changed anything",)
    assert snapshot(home) == after and not unbegun.exists()
    assert undo(state=state) and history(state)[0].id == done.id and history(state)[0].state == "undone"


BEGIN = {
    "do": "begin",
    "version": 1,
    "when": "2026-01-01T00:00:00+00:00",
    "group": None,
    "config": "c",
    "what": ["w"],
}
DAMAGED: dict[str, list[object]] = {
    "a list": [BEGIN, []],
    "a number": [BEGIN, 5],
    "no path": [BEGIN, {"do": "folder", "n": 0}],
    "a path that is none": [BEGIN, {"do": "part", "n": 0, "path": 5}],
    "no number": [BEGIN, {"do": "folder", "path": "/nowhere"}],
    "a record is missing": [BEGIN, {"do": "folder", "n": 1, "path": "/nowhere"}],
    "no beginning": [{"do": "folder", "n": 0, "path": "/nowhere"}],
    "no version": [{**BEGIN, "version": None}],
    "no words": [{**BEGIN, "what": 5}],
    "words that are none": [{**BEGIN, "what": [5]}],
    "nothing to salvage": [BEGIN, {"do": "scratch", "n": 0, "path": "/nowhere", "salvage": {}}],
}


@pytest.mark.parametrize("rows", DAMAGED.values(), ids=DAMAGED)
@pytest.mark.parametrize("command", [["history"], ["undo"], ["fix", "c.yaml", "--apply"], ["cache", "--apply"]])
def test_a_damaged_journal_is_one_error_that_names_its_folder(
    home: Path,
    state: Path,
    command: list[str],
    rows: list[object],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("ZDOCTOR_STATE", str(state))
    monkeypatch.chdir(home)
    folder = state / "journal" / "20260101-000000-000000-00"
    folder.mkdir(parents=True)
    (folder / "journal.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    before = {**snapshot(home), **snapshot(folder)}
    assert main(command) == 2
    assert f"{folder}, is damaged" in capsys.readouterr().err
    assert {**snapshot(home), **snapshot(folder)} == before
    main(["fix", "c.yaml"])
    assert f"{folder}, is damaged" in capsys.readouterr().err


def test_what_has_ended_is_not_read_again_by_every_check(home: Path, state: Path) -> None:
    """Three hundred repairs of the past took a check as long as all the rest of it."""
    done = [apply(plan(SetValue(str(home / "c.yaml"), "/a", number)), state=state).id for number in (2, 3, 4)]
    undo(state=state)
    read: list[str] = []
    real = journal._read

    def watched(path: Path) -> list[journal.Record]:
        read.append(path.parent.name)
        return real(path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal, "_read", watched)
        assert journal.unfinished(state) == [] and read == []
        cut_off(state, done[1], len(Journal(state / "journal" / done[1]).records) - 1)
        read.clear()
        assert [found.id for found in journal.unfinished(state)] == [done[1]] == read


def test_a_journal_that_lost_its_records_is_damaged(home: Path, state: Path) -> None:
    done = apply(plan(SetValue(str(home / "c.yaml"), "/a", 2)), state=state)
    (state / "journal" / done.id / "journal.jsonl").unlink()
    with pytest.raises(ApplyError, match=f"{done.id}, is damaged"):
        undo(state=state)
    assert (state / "journal" / done.id / "0.before").exists()


def test_the_journal_of_a_newer_zdoctor_is_left_alone(home: Path, state: Path) -> None:
    config = str(home / "c.yaml")
    first = apply(plan(SetValue(config, "/a", 2)), state=state)
    newer = state / "journal" / "99991231-000000-000000-00"
    newer.mkdir()
    (newer / "journal.jsonl").write_text(json.dumps({"do": "begin", "version": 2}) + '\n{"do": "edit", "n": 7}\n')
    before = snapshot(newer)
    for id in (None, newer.name):
        with pytest.raises(UndoRefused, match=f"newer zdoctor.*{newer}"):
            undo(id, state=state)
    assert [entry.state for entry in history(state)] == ["applied", "of a newer zdoctor"]
    assert "newer zdoctor" in history(state)[1].what[0]
    assert recover(state) == () and undo(first.id, state=state)
    apply(plan(SetValue(config, "/a", 4)), state=state)
    assert snapshot(newer) == before


@pytest.mark.parametrize("command", [["fix", "c.yaml"], ["fix", "c.yaml", "--allow", "result"], ["history"]])
def test_who_looks_recovers_nothing_and_says_what_to_type(
    home: Path, state: Path, command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ZDOCTOR_STATE", str(state))
    monkeypatch.chdir(home)
    main(["check", "c.yaml"])  # which remembers the config
    done = apply(plan(SetValue(str(home / "c.yaml"), "/a", 2)), state=state)
    cut_off(state, done.id, 2)
    before = snapshot(home), snapshot(state)
    capsys.readouterr()
    main(command)
    assert (snapshot(home), snapshot(state)) == before
    said = capsys.readouterr()
    assert done.id in said.err + said.out and "zdoctor undo" in said.err + said.out


def test_a_check_says_what_was_cut_short_and_leaves_it(
    home: Path, state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ZDOCTOR_STATE", str(state))
    done = apply(plan(SetValue(str(home / "c.yaml"), "/a", 2)), state=state)
    main(["check", str(home / "c.yaml")])
    assert done.id not in capsys.readouterr().err
    cut_off(state, done.id, 2)
    left = snapshot(home)
    main(["check", str(home / "c.yaml")])
    assert f"{done.id} was cut short" in capsys.readouterr().err and snapshot(home) == left
