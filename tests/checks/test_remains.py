"""TRN012, TRN013 and TRN014: what they say of an output folder is what the runner says of it, without torch."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from zdoctor.checks import remains as rules
from zdoctor.doctor.model import Finding, Run, Unknown
from zdoctor.doctor.model.datasets import Dataset
from zdoctor.doctor.model.remains import Remains, own_identity, own_lock, own_state
from zdoctor.doctor.model.trainer import RUNNER
from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.doctor.probe.start import probe_remains
from zdoctor.doctor.train import TrainError
from zdoctor.doctor.train.runtime.run_lock import lock_run
from zdoctor.tests.changes import changed
from zdoctor.tests.doctor.train.patient import go
from zdoctor.tests.models import healthy, run_of

NAME = "t"


@pytest.fixture(scope="module")
def picture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    Image.new("RGB", (64, 64), "red").save(folder / "red.png")
    return folder


@pytest.fixture
def output(tmp_path: Path) -> Path:
    folder = tmp_path / NAME
    folder.mkdir()
    return folder


def run_in(output: Path, **changes: Any) -> Run:
    run = run_of(healthy())
    kept: dict[str, Any] = {"trainer": RUNNER, "output_folder": str(output), "device": "cpu", "steps": 1, "rank": 4}
    kept |= {"datasets": (Dataset("datasets/0", "images", ".txt", (64,)),), "disable_sampling": True}
    return changed(run, **{**kept, "quantization": "int8", **changes})


def findings(run: Run) -> list[Finding]:
    remains = probe_remains(LiveWorld(), run)
    assert isinstance(remains, Remains), remains
    made: list[Finding] = []
    for rule in (rules.lora_of_another_program, rules.state_of_another_run, rules.run_in_progress):
        made += rule(run, remains)
    return made


def trained(run: Run, picture: Path) -> str:
    """What the runner says when it does not train; "" when it does."""
    try:
        go(run, healthy(), picture, Path(str(run.output_folder)))
    except TrainError as error:
        return str(error)
    return ""


def save(folder: Path, name: str, author: str | None = "ai-toolkit") -> Path:
    metadata = {"format": "pt"} if author is None else {"software": json.dumps({"name": author, "repo": "x"})}
    save_file({"diffusion_model.layers.0.attention.to_q.lora_A.weight": torch.ones(4, 8)}, folder / name, metadata)
    return folder / name


def newest(folder: Path) -> None:
    save(folder, f"{NAME}_000000250.safetensors")
    later = save(folder, f"{NAME}_000000500.safetensors")
    save(folder, f"{NAME}_000000100.safetensors", "zdoctor")
    os.utime(later, (2e9, 2e9))


@pytest.mark.parametrize(
    ("left", "words"),
    [
        (lambda folder: save(folder, f"{NAME}.safetensors"), ("but by ai-toolkit", "another name and set network.")),
        (lambda folder: save(folder, f"{NAME}.safetensors", None), ("an unknown program",)),
        (newest, ("_000000250.safetensors was", "pretrained_lora_path: ", "_000000500.safetensors.")),
        (lambda folder: (folder / f"{NAME}_000000250.safetensors").touch(), ("cut off or damaged", "move it away")),
    ],
)
def test_a_lora_that_is_not_zdoctors(
    output: Path, picture: Path, left: Callable[[Path], object], words: tuple[str, ...]
) -> None:
    left(output)
    before = {file: file.read_bytes() for file in output.iterdir()}
    run = run_in(output)
    (finding,) = findings(run)
    assert all(part in finding.text() for part in words)
    said = trained(run, picture)
    assert said == finding.text() or "cannot be opened" in finding.text() or "that can be opened" in said
    assert {file: file.read_bytes() for file in before} == before
    for file in before:
        file.rename(output / f"old-{file.name}")
    assert not findings(run)


@pytest.mark.parametrize(
    "name", [f"{NAME}_25.safetensors", f"{NAME}_refiner.safetensors", f"x{NAME}.safetensors", f"{NAME}.pt"]
)
def test_names_that_the_run_never_writes_are_left_alone(output: Path, name: str) -> None:
    """A healthy twin: ai-toolkit would go on from some of these."""
    save(output, name)
    assert findings(run_in(output)) == []


def test_a_new_name_that_begins_with_the_lora_of_the_other_program_trains(output: Path, picture: Path) -> None:
    run = run_in(output)
    assert not trained(run, picture)
    file = output / f"{NAME}.safetensors"
    (output / own_state(NAME)).unlink()
    save_file(load_file(file), file, {"software": json.dumps({"name": "ai-toolkit"})})
    (finding,) = findings(run)
    assert f"network.pretrained_lora_path: {file}" in finding.text()
    settings = {
        **run.settings,
        "network/pretrained_lora_path": replace(run.settings["network/linear"], value=str(file)),
    }
    moved = changed(run, name="again", output_folder=str(output.with_name("again")), settings=settings)
    assert not findings(moved) and not trained(moved, picture)


@pytest.fixture(scope="module")
def state(picture: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("earlier") / NAME
    assert not trained(run_in(folder), picture)
    return folder


@pytest.fixture
def earlier(state: Path, output: Path) -> Iterator[Path]:
    for file in (own_state(NAME), own_identity(NAME), f"{NAME}.safetensors"):
        (output / file).write_bytes((state / file).read_bytes())
    yield output


@pytest.mark.parametrize(
    ("changes", "key"),
    [({"rank": 8}, "rank"), ({"quantization": "qfloat8"}, "quantization"), ({"network_type": "lokr"}, "rank")],
)
def test_the_state_of_another_run(earlier: Path, picture: Path, changes: dict[str, Any], key: str) -> None:
    run = run_in(earlier, steps=2)
    other = changed(run, **changes)
    (finding,) = findings(other)
    assert finding.text() == trained(other, picture) and f"this run has {key} " in finding.text()
    assert not findings(run) and not trained(run, picture)


def test_an_adapter_beside_a_state_without_one(earlier: Path) -> None:
    (finding,) = findings(run_in(earlier, adapter="adapters/v2.safetensors"))
    assert "with adapter none; this run has adapter adapters/v2.safetensors" in finding.text()
    told = earlier / own_identity(NAME)
    told.write_text(told.read_text().replace('"none"', '"0123456789abcdef"'))
    assert "this run has adapter none" in findings(run_in(earlier))[0].text()
    assert not findings(run_in(earlier, adapter="adapters/v2.safetensors"))


def test_other_words_for_the_same_and_settings_that_may_change_are_silent(earlier: Path, picture: Path) -> None:
    same = run_in(earlier, quantization="qint8", learning_rate=1e-3, steps=2, alpha=99, batch_size=2, seed=9)
    assert not findings(same) and not trained(same, picture)


@pytest.mark.parametrize("told", [None, b"", b"{", b"[]", b'{"rank": 8}', b"[" * 9000])
def test_a_state_that_nothing_is_told_of_is_left_to_the_runner(earlier: Path, told: bytes | None) -> None:
    file = earlier / own_identity(NAME)
    file.unlink() if told is None else file.write_bytes(told)
    assert not findings(run_in(earlier, rank=8))


def test_a_state_whose_end_is_missing(earlier: Path, picture: Path) -> None:
    file, run = earlier / own_state(NAME), run_in(earlier, steps=2)
    whole = file.read_bytes()
    file.write_bytes(whole[:-1000])
    (finding,) = findings(run)
    assert "is cut off" in finding.text() and "cut off" in trained(run, picture)
    file.write_bytes(whole)
    assert not findings(run) and not trained(run, picture)


def test_a_run_that_is_at_work(output: Path, picture: Path) -> None:
    run = run_in(output)
    with lock_run(output, NAME):
        (finding,) = findings(run)
        assert finding.text() == trained(run, picture)
    assert (output / own_lock(NAME)).exists() and not findings(run)


def test_no_folder_yet_and_one_that_cannot_be_looked_at(tmp_path: Path) -> None:
    assert not findings(run_in(tmp_path / "new"))
    (tmp_path / "file").touch()
    assert isinstance(probe_remains(LiveWorld(), run_in(tmp_path / "file")), Unknown)
    assert not findings(run_in(Path("a\0b")))
