"""A machine as data: what is recorded replays, what is not is unknown or, where a record says so, absent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from zdoctor.doctor.cli import main
from zdoctor.doctor.examine.examination import examine_config
from zdoctor.doctor.model import Speed, Unknown
from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.doctor.probe.recorded import MachineError, RecordedWorld
from zdoctor.doctor.probe.recorder import Recorder
from zdoctor.doctor.probe.redaction import redact
from zdoctor.doctor.probe.world import Mount, Stat
from zdoctor.tests.machines import MACHINES, load, text

ROOT = Path(__file__).parents[3]
SYSTEM: dict[str, Any] = {
    "os": "linux",
    "release": "Linux 6",
    "python": "3.11",
    "cwd": "/w",
    "home": "/home/x",
    "cpus": 2,
    "memory_total": 8,
    "memory_available": 4,
}


GPU: dict[str, Any] = {"name": "T4", "memory_total": 16, "memory_free": 15}
SPEED: dict[str, Any] = {"path": "/", "kind": "ssd", "filesystem": "ext4", "low": 1e8, "high": 2e8}


def world(files: dict[str, Any], **more: Any) -> RecordedWorld:
    return RecordedWorld({"schema": "zdoctor.machine/1", "system": SYSTEM, "files": files, **more})


def test_folders_follow_from_paths() -> None:
    w = world({"/a/b/c.txt": {"text": "hi"}, "/a/l": {"link": "b"}})
    assert isinstance(w.stat("/a/b"), Stat)
    assert w.names("/a") == ("b", "l")
    assert w.read("/a/b/c.txt") == b"hi"
    assert w.read("/a/l/c.txt") == b"hi"
    assert w.names("/a/l") == ("c.txt",)


@pytest.mark.parametrize(("complete", "answer"), [(True, None), (False, Unknown("not in the recording"))])
def test_silence_is_absence_only_in_a_complete_record(complete: bool, answer: Unknown | None) -> None:
    assert world({}, complete=complete).stat("/nowhere") == answer


def test_a_tensor_list_reads_as_a_safetensors_file() -> None:
    w = world({"/m.safetensors": {"tensors": {"a": ["BF16", [2, 3]], "b": ["F32", [4]]}}})
    stat = w.stat("/m.safetensors")
    assert isinstance(stat, Stat)
    length = int.from_bytes(w.read("/m.safetensors", 0, 8) or b"", "little")  # type: ignore[arg-type]
    header = json.loads(w.read("/m.safetensors", 8, length))  # type: ignore[arg-type]
    assert header["b"]["data_offsets"] == [12, 28]
    assert stat.size == 8 + length + 28


def test_the_deepest_mount_answers() -> None:
    mounts = [
        {"point": "/", "filesystem": "ext4", "free": 9},
        {"point": "/in", "filesystem": "ext4", "free": 0, "refusal": "read-only file system"},
    ]
    w = world({"/in/x": {"text": ""}}, mounts=mounts)
    assert w.refusal("/in") == "read-only file system"
    assert w.refusal("/inside") is None
    assert w.mount("/in/x") == Mount("/in", "ext4", True, 0)


@pytest.mark.parametrize("record", [{}, {"schema": "zdoctor.machine/2"}, {"schema": "zdoctor.machine/1"}])
def test_a_file_that_is_no_machine_is_refused(record: dict[str, Any]) -> None:
    with pytest.raises((MachineError, TypeError)):
        RecordedWorld(record)


@pytest.mark.parametrize(
    ("section", "value", "said"),
    [
        ("gpus", {"name": "T4"}, "gpus is no list"),
        ("gpus", ["T4"], "gpus[0] is no object"),
        ("gpus", [{"name": "T4"}], "gpus[0].memory_total is missing"),
        ("gpus", [{**GPU, "memory_free": "15 GB"}], "gpus[0].memory_free is '15 GB', not a whole number"),
        ("gpus", [GPU, {**GPU, "capability": 7.5}], "gpus[1].capability is 7.5, not a list or null"),
        ("gpus", [{**GPU, "capability": ["7", 5]}], "gpus[0].capability is ['7', 5], not two whole numbers"),
        ("mounts", "/", "mounts is no list"),
        ("mounts", [{"filesystem": "ext4"}], "mounts[0].point is missing"),
        ("mounts", [{"point": "/", "free": "20G"}], "mounts[0].free is '20G', not a whole number or null"),
        ("mounts", [{"point": "/", "refusal": True}], "mounts[0].refusal is True, not a text or null"),
        ("speeds", [{**SPEED, "kind": "floppy"}], "speeds[0].kind is 'floppy', not one of ssd, hdd"),
        ("speeds", [{**SPEED, "low": None}], "speeds[0].low is None, not a number"),
        ("system", {**SYSTEM, "os": "Linux"}, "system.os is 'Linux', not one of linux, windows, darwin"),
        ("system", {**SYSTEM, "cpus": True}, "system.cpus is True, not a whole number"),
        ("system", {**SYSTEM, "environment": ["a"]}, "system.environment is no object"),
        (
            "system",
            {**SYSTEM, "environment": {"CUDA_VISIBLE_DEVICES": 1}},
            "system.environment.CUDA_VISIBLE_DEVICES is 1, not a text",
        ),
        ("gpus", [{**GPU, "uuid": 7}], "gpus[0].uuid is 7, not a text or null"),
        ("packages", ["torch"], "packages is no object"),
    ],
)
def test_a_mistyped_machine_file_is_refused_by_the_field(
    section: str, value: Any, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = {"schema": "zdoctor.machine/1", "system": SYSTEM, "files": {}, section: value}
    with pytest.raises(MachineError) as raised:
        RecordedWorld(record)
    assert str(raised.value).startswith(said)
    file = tmp_path / "m.json"
    file.write_text(json.dumps(record))
    assert main(["check", str(ROOT / "examples" / "kaggle_zimage.yaml"), "--machine", str(file)]) == 2
    assert f"m.json is no machine file: {said}" in capsys.readouterr().err


def test_what_a_later_version_adds_is_let_through() -> None:
    w = world(
        {}, gpus="no driver", speeds=[{**SPEED, "device": "sda", "later": 1}], mounts=[{"point": "/", "later": 1}]
    )
    assert w.gpus() == Unknown("no driver")
    speed = w.speed(["/a"])
    assert isinstance(speed, Speed) and (speed.device, speed.latency) == ("sda", None)


@pytest.mark.parametrize(("visible", "kept"), [("GPU-1a", "GPU-1a2b"), ("0", "")])
def test_the_number_of_a_card_is_recorded_where_it_is_named_by_it(visible: str, kept: str) -> None:
    system = {**SYSTEM, "environment": {"CUDA_VISIBLE_DEVICES": visible}}
    recorder = Recorder(world({}, system=system, gpus=[{**GPU, "uuid": "GPU-1a2b"}]))
    recorder.gpus()
    record = recorder.record("this machine")
    (card,) = RecordedWorld(record).gpus()  # type: ignore[misc]
    assert card.uuid == kept and ("GPU-1a2b" in json.dumps(record)) is bool(kept)
    assert record["system"]["environment"] == {"CUDA_VISIBLE_DEVICES": visible}


def test_what_chooses_among_this_machines_cards_says_nothing_of_recorded_ones() -> None:
    live = LiveWorld(environment={"CUDA_VISIBLE_DEVICES": "3", "HF_HOME": "/x"})
    partial = {"schema": "zdoctor.machine/1", "live": True}
    assert dict(RecordedWorld({**partial, "gpus": [GPU]}, live).system.environment) == {"HF_HOME": "/x"}
    assert RecordedWorld(partial, live).system == live.system


def test_what_a_check_saw_replays_to_the_same_report(tmp_path: Path) -> None:
    """Record a check of this machine, and check again from the record alone."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\2\0\0\0\2\0\x08\2\0\0\0")
    config = tmp_path / "c.yaml"
    source = (ROOT / "tests" / "configs" / "server_healthy.yaml").read_text()
    config.write_text(source.replace("/data/faces", str(tmp_path / "data")))
    recorder = Recorder(LiveWorld(environment={}, cwd=str(tmp_path), home=str(tmp_path)))
    seen = examine_config(str(config), recorder).report
    record = redact(recorder.record("this machine"), recorder.system, {}, "", keep_paths=True)
    replayed = examine_config(str(config), RecordedWorld(record)).report
    assert [(f.rule, f.severity) for f in replayed.findings] == [(f.rule, f.severity) for f in seen.findings]
    assert replayed.passed == seen.passed


@pytest.mark.parametrize("name", MACHINES)
def test_the_recorded_machines_load(name: str) -> None:
    assert RecordedWorld(load(name)).system.recorded == load(name)["about"]


def test_the_example_is_the_recorded_kaggle_notebook() -> None:
    assert (ROOT / "examples" / "kaggle_t4x2.json").read_text(encoding="utf-8") == text("kaggle_t4x2")
