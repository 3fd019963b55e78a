"""PTH001, PTH003, PTH004 and their repairs: the trap is sprung with the real libraries and file systems."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from zdoctor.checks.paths import adapter_path_is_directory, looks_local, missing_path, read_only_path
from zdoctor.doctor.apply import apply
from zdoctor.doctor.examine.engine import prescribe
from zdoctor.doctor.examine.examination import examine_config
from zdoctor.doctor.model import Dataset, Entry, Files, Plan, Run, System, Unknown, WritePlace, Writes
from zdoctor.doctor.model.recipe import Recipe
from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.doctor.probe.recorded import RecordedWorld
from zdoctor.doctor.probe.recorder import Recorder
from zdoctor.doctor.rules import Unestablished
from zdoctor.fixes.paths import mirror_dataset, name_the_file
from zdoctor.tests.changes import changed
from zdoctor.tests.configs_on_disk import write_config

LINUX = System("linux", "Linux 6", "3.11", "/w", "/home/x", 2, 8 << 30, 4 << 30)
KEYS = {
    "base_model": "model/name_or_path",
    "adapter": "model/assistant_lora_path",
    "output_folder": "training_folder",
}


def run(**fields: Any) -> Run:
    given: dict[str, Any] = {
        "trainer": "ai-toolkit",
        "config": "c.yaml",
        "root": "/config/process/0",
        "index": 0,
        "kind": "lora",
    }
    given |= {"process_type": "sd_trainer", "name": "n", "recipe": Recipe("zimage"), "keys": KEYS}
    return changed(Run(**given), **fields)


def entry(kind: str, *children: str) -> Entry:
    return Entry("/abs", kind, children=children)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("refusals", "findings"),
    [
        ([], 0),
        ([None, None], 0),
        (["read-only file system", "read-only file system"], 1),
        ([None, "no space left"], 1),
        ([Unknown("not looked at"), "read-only file system"], 1),
    ],
)
def test_one_finding_for_each_folder_that_refuses(refusals: list[Any], findings: int) -> None:
    places = tuple(
        WritePlace(f"file {n}", "/data", "datasets/0/folder_path", "then", refusal)
        for n, refusal in enumerate(refusals)
    )
    assert len(list(read_only_path(run(), Writes(places, "/w")))) == findings


def test_a_folder_that_could_not_be_looked_at_is_not_green() -> None:
    place = WritePlace("a file", "/data", "datasets/0/folder_path", "then", Unknown("the share does not answer"))
    with pytest.raises(Unestablished, match="does not answer"):
        list(read_only_path(run(), Writes((place,), "/w")))
    files = Files({"/data": entry("denied")})
    with pytest.raises(Unestablished):
        list(missing_path(run(datasets=(Dataset("datasets/0", "/data", ".txt", (512,)),)), files, "", LINUX))
    with pytest.raises(Unestablished):
        list(adapter_path_is_directory(run(adapter="/data"), files))


@contextmanager
def without_root() -> Iterator[None]:
    """File modes stop no root: take on the rights of nobody while looking, as any user has."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_the_trap_of_a_read_only_dataset_and_its_mirror() -> None:
    """What the trainer does first, opening .aitk_size.json for writing, fails in the folder, not in the mirror."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        root.chmod(0o777)
        data = root / "data"
        data.mkdir()
        (data / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\2\0\0\0\2\0\x08\2\0\0\0")
        (data / "a.txt").write_text("a caption")
        data.chmod(0o555)
        config = write_config(root, folder_path=str(data), training_folder=str(root / "out"))
        world = LiveWorld(environment={}, cwd=str(root), home=str(root))
        examine_config(str(config), world)  # imports what it needs while the interpreter's files can be read
        with without_root():
            with pytest.raises(PermissionError):
                (data / ".aitk_size.json").open("w")
            report = examine_config(str(config), world).report
        (finding,) = [f for f in report.findings if f.rule == "PTH001" and f.args["folder"] == str(data)]
        plan = prescribe(report)
        fixes = tuple(fix for fix in finding.fixes if fix in plan.fixes)
        assert len(fixes) == 1
        apply(Plan(str(config), fixes), state=root / "state")
        mirror = root / "zdoctor-mirror" / "data"
        assert f"folder_path: {mirror}" in config.read_text().replace("'", "")
        mirror.chmod(0o777)
        with without_root():
            (mirror / ".aitk_size.json").write_text("{}")
            assert (mirror / "a.txt").read_text() == "a caption"
            after = examine_config(str(config), world).report
        assert not [f for f in after.findings if f.rule == "PTH001" and "dataset" in f.args["phase"]]
        assert sorted(p.name for p in data.iterdir()) == ["a.png", "a.txt"]
        data.chmod(0o755)


@pytest.mark.parametrize(("mode", "names"), [(0o000, False), (0o100, False), (0o600, True), (0o444, True)])
def test_of_what_may_not_be_read_there_is_no_mirror(mode: int, names: bool) -> None:
    """The folder or every picture in it is shut: links to them open nothing, only its owner can."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        root.chmod(0o777)
        data = root / "data"
        data.mkdir()
        Image.new("RGB", (512, 512)).save(data / "a.png")
        data.chmod(mode)
        if os.geteuid() == 0:
            os.chown(data, 65534, -1)
            os.chown(data / "a.png", 65534, -1)
        config = write_config(root, folder_path=str(data), training_folder=str(root / "out"))
        world = LiveWorld(environment={}, cwd=str(root), home="/home/x")
        examine_config(str(config), world)  # imports what it needs while the interpreter's files can be read
        recorder = Recorder(world)
        with without_root():
            with pytest.raises(PermissionError):
                [file.read_bytes() for file in data.iterdir()]
            report = examine_config(str(config), world).report
            own = examine_config(str(config), world, as_runner=True).report
            examine_config(str(config), recorder)
        again = examine_config(str(config), RecordedWorld(recorder.record("x"))).report
        for made, rules in ((report, {"DAT001", "PTH001"}), (again, {"DAT001", "PTH001"}), (own, {"DAT001"})):
            found = [f for f in made.errors if f.args.get("folder") == str(data)]
            assert {f.rule for f in found} == rules and not made.crashed
            for finding in found:
                (fix,) = finding.fixes
                assert not fix.steps and fix.command == f"chmod -R u+rwX {data}"
            told = next(f for f in found if f.rule == "DAT001").text()
            assert ("may not be read by this user: permission denied" in told) is not names
        command = report.errors[0].fixes[0].command
        assert command == f"chmod -R u+rwX {data}"
        with without_root():
            subprocess.run(command.split(), check=True)
            assert list(data.iterdir())
            after = examine_config(str(config), world).report
        assert not {"DAT001", "PTH001"} & {f.rule for f in after.errors if f.args.get("folder") == str(data)}


def test_a_run_folder_that_refuses_is_left_to_the_user() -> None:
    place = WritePlace("the run folder", "/ro/out/n", "output_folder", "at its start", "permission denied")
    writes = Writes((place,), "/w")
    (finding,) = read_only_path(run(), writes)
    (fix,) = mirror_dataset(finding, run(), LINUX, writes, ())
    assert fix.safety == "ask"


ADAPTER = "/models/adapter"


@pytest.mark.parametrize(
    ("found", "adapter", "architecture", "fires", "safeties"),
    [
        (entry("folder", "a.safetensors", "README.md"), ADAPTER, "zimage", True, ["safe"]),
        (entry("folder", "v1.safetensors", "v2.safetensors"), ADAPTER, "zimage", True, ["ask", "ask"]),
        (entry("folder"), ADAPTER, "zimage", True, []),
        (entry("folder", "pytorch_lora_weights.safetensors"), ADAPTER, "flux", True, ["safe"]),
        (entry("file"), ADAPTER + ".safetensors", "zimage", False, []),
        (entry("missing"), "ostris/zimage_turbo_training_adapter", "zimage", True, ["ask"]),
        (entry("missing"), "ostris/FLUX.1-schnell-training-adapter", "flux", False, []),
        (entry("missing"), "ostris/adapter/file.safetensors", "zimage", False, []),
    ],
)
def test_an_adapter_must_be_a_file(
    found: Entry, adapter: str, architecture: str, fires: bool, safeties: list[str]
) -> None:
    made = run(adapter=adapter, architecture=architecture)
    findings = list(adapter_path_is_directory(made, Files({adapter: found})))
    assert bool(findings) == fires
    assert [fix.safety for f in findings for fix in name_the_file(f, made)] == safeties


def test_the_trap_of_an_adapter_folder(tmp_path: Path) -> None:
    """safetensors, which the trainer hands the path to, fails on the folder and opens the file inside."""
    import torch
    from safetensors.torch import load_file, save_file

    save_file({"a": torch.zeros(2)}, tmp_path / "adapter.safetensors")
    with pytest.raises(OSError):
        load_file(str(tmp_path))
    made = run(adapter=str(tmp_path))
    files = Files({str(tmp_path): Entry(str(tmp_path), "folder", children=("adapter.safetensors",))})
    (finding,) = adapter_path_is_directory(made, files)
    (fix,) = name_the_file(finding, made)
    (step,) = fix.steps
    assert set(load_file(step.value)) == {"a"}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "found", "says"),
    [
        ("/data/faces", entry("missing"), "does not exist"),
        ("/path/to/images/folder", entry("missing"), "placeholder"),
        ("~/faces", entry("missing"), "does not expand ~"),
        (r"D:\faces", entry("missing"), "Windows path"),
        ("/data/faces", entry("dangling"), "a link to something that is gone"),
        ("/data/faces", entry("folder"), None),
        ("/data/faces.json", entry("file"), None),
    ],
)
def test_a_missing_dataset(text: str, found: Entry, says: str | None) -> None:
    data = Dataset("datasets/0", text, ".txt", (512,))
    findings = list(missing_path(run(datasets=(data,)), Files({text: found}), "", LINUX))
    assert [says is not None and says in f.text() for f in findings] == ([True] if says else [])


@pytest.mark.parametrize(("trainer", "told"), [("ai-toolkit", 0), ("SimpleTuner", 1), ("sd-scripts", 1)])
def test_a_file_in_place_of_a_dataset_folder(trainer: str, told: int) -> None:
    """They walk the folder, and find nothing in a file; ai-toolkit reads it as a list, which is another rule's."""
    asked = replace(run(datasets=(Dataset("datasets/0", "/data/a.png", ".txt", (512,)),)), trainer=trainer)
    found = list(missing_path(asked, Files({"/data/a.png": entry("file")}), "", LINUX))
    assert ["/data/a.png is a file" in finding.text() for finding in found] == [True] * told


def test_the_trap_of_a_missing_dataset(tmp_path: Path) -> None:
    """The trainer opens what is no folder as a JSON file."""
    with pytest.raises(FileNotFoundError):
        (tmp_path / "nope").open()


@pytest.mark.parametrize(
    ("text", "local"),
    [
        ("Tongyi-MAI/Z-Image-Turbo", False),
        ("ostris/adapter/v2.safetensors", False),
        ("/models/z", True),
        ("./z", True),
        ("~/z", True),
        (r"C:\z", True),
        ("C:/z", True),
        (r"models\z", True),
        ("a/b/c/d", True),
        ("z-image", False),
    ],
)
def test_hub_ids_are_told_from_paths(text: str, local: bool) -> None:
    assert looks_local(text) is local
