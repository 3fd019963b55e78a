"""HST001, HST002, HST003, HST004, HST005, HST006, HST007, HST008, HST009: on plain records, and for real."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from zdoctor.checks import host as rules
from zdoctor.doctor.model import (
    Component,
    Gpu,
    Host,
    ModelFolder,
    Run,
    SetValue,
    System,
    Value,
    WeightFile,
    Where,
)
from zdoctor.doctor.model.trainer import RUNNER
from zdoctor.doctor.probe.host import limits
from zdoctor.doctor.rules import NotApplicable
from zdoctor.fixes.host import (
    allow_long_paths,
    keep_the_cache_elsewhere,
    load_in_the_training_itself,
    pin_nothing,
    promise_more,
    set_the_clock,
)
from zdoctor.tests.changes import changed
from zdoctor.tests.models import run_of

GIB = 1 << 30
LINUX = System("linux", "6", "3.11", "/c", "/h", 16, 30 * GIB, 28 * GIB)
DOCKER = Host(shared_memory=64 << 20)
CARD = Gpu(0, "card", 24 * GIB, 23 * GIB, (8, 9), "580", "recorded")
NO_RUN = Run("", "", "", 0, "other", "", "")


def training(trainer: str = "ai-toolkit", *, cached: bool = False, **changes: Any) -> Run:
    run = run_of("Tongyi-MAI/Z-Image-Turbo")
    datasets = tuple(replace(d, resolutions=(1024,), cache_latents=cached) for d in run.recipe.datasets)
    return replace(changed(run, datasets=datasets, **changes), trainer=trainer)


@pytest.mark.parametrize(
    ("run", "host", "severity"),
    [
        (training(), DOCKER, None),  # 2 workers with 2 pictures each, and one: 63 MB
        (training(batch_size=2), DOCKER, "warning"),
        (training(batch_size=2), Host(shared_memory=8 * GIB), None),
        (training(batch_size=2, cached=True), DOCKER, None),
        (training("musubi-tuner", cached=True), DOCKER, "warning"),
        (training("SimpleTuner", batch_size=8), DOCKER, None),
        (training(RUNNER, batch_size=8), DOCKER, None),
        (NO_RUN, DOCKER, "note"),
        (replace(NO_RUN, trainer="sd-scripts"), DOCKER, "warning"),
        (replace(NO_RUN, trainer="SimpleTuner"), DOCKER, None),
        (NO_RUN, Host(shared_memory=8 * GIB), None),
    ],
)
def test_shared_memory(run: Run, host: Host, severity: str | None) -> None:
    seen = list(rules.shared_memory_too_small(run, host, LINUX))
    assert [finding.severity or "warning" for finding in seen] == ([severity] if severity else [])
    for finding in seen:
        assert "67.1 MB (measured)" in finding.text() and finding.consequence()


def test_where_there_is_no_shared_memory_nothing_is_said_of_it() -> None:
    with pytest.raises(NotApplicable):
        list(rules.shared_memory_too_small(training(), Host(), LINUX))


def test_without_workers_nothing_lies_in_shared_memory() -> None:
    run = training(batch_size=4)
    (finding,) = rules.shared_memory_too_small(run, DOCKER, LINUX)
    cure, shown = load_in_the_training_itself(finding, run)
    (step,) = cure.steps
    assert isinstance(step, SetValue) and step.pointer.endswith("/datasets/0/num_workers") and step.value == 0
    assert cure.training_effect == "equivalent" and shown.safety == "show"


LOADER = """
import resource, sys
import torch
from torch.utils.data import DataLoader
limit = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
if __name__ == "__main__":
    print(len(list(DataLoader([torch.ones(1)] * 40, num_workers=8))))
"""


@pytest.mark.thorough
def test_a_loader_with_eight_workers_needs_more_files_than_48(tmp_path: Path) -> None:
    script = tmp_path / "loader.py"
    script.write_text(LOADER)
    few, enough = (python(script, limit) for limit in (48, rules.FEW_FILES))
    assert few.returncode and "Too many open files" in few.stderr
    assert enough.stdout == "40\n"
    assert list(rules.few_open_files(Host(open_files=48), LINUX))
    assert not list(rules.few_open_files(Host(open_files=rules.FEW_FILES), LINUX))
    assert not list(rules.few_open_files(Host(open_files=48), replace(LINUX, os="darwin")))


MAPPED = """
import resource, sys
import torch
from safetensors.torch import load_file
limit = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
print(len(load_file(sys.argv[1])))
"""


@pytest.fixture
def weights(tmp_path: Path) -> Iterator[Path]:
    """A file of weights of 3 GiB, hardly any of which takes room."""
    file = tmp_path / "big.safetensors"
    save_file({"a": np.zeros(8, np.uint8)}, file)
    header = b'{"a":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}' % ((3 * GIB,) * 2)
    file.write_bytes(len(header).to_bytes(8, "little") + header)
    os.truncate(file, 8 + len(header) + 3 * GIB)
    yield file
    file.unlink()


def test_a_file_is_mapped_within_the_address_space(tmp_path: Path, weights: Path) -> None:
    script = tmp_path / "mapped.py"
    script.write_text(MAPPED)
    part = Component("transformer", str(tmp_path), weights=(WeightFile("w", str(weights), weights.stat().st_size),))
    model = ModelFolder("m", "diffusers", str(tmp_path), {"transformer": part})

    def said(limit: int | None) -> bool:
        return bool(list(rules.weights_above_address_space(training(), model, Host(address_space=limit))))

    small, large = (python(script, weights, limit) for limit in (5 * GIB // 2, 16 * GIB))
    assert small.returncode and "Cannot allocate memory" in small.stderr and said(5 * GIB // 2)
    assert large.stdout == "1\n" and not said(16 * GIB) and not said(None)


@pytest.mark.parametrize(
    ("limit", "gpus", "severity"),
    [
        (None, (CARD,), None),
        (GIB // 2, (), "error"),
        (GIB // 2, (CARD,), "error"),
        (8 * GIB, (), None),
        (8 * GIB, (CARD,), "warning"),
        (200 * GIB, (CARD,), None),
    ],
)
def test_address_space(limit: int | None, gpus: tuple[Gpu, ...], severity: str | None) -> None:
    seen = list(rules.address_space_limited(Host(address_space=limit), LINUX, gpus))
    assert [finding.severity or "warning" for finding in seen] == ([severity] if severity else [])


def test_torch_is_not_imported_in_half_a_gigabyte(tmp_path: Path) -> None:
    script = tmp_path / "imported.py"
    limited = "import resource, sys\nresource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]),) * 2)\n"
    script.write_text(limited + "import torch\nprint('imported')\n")
    assert python(script, GIB // 2).returncode
    assert python(script, 8 * GIB).stdout == "imported\n"


def test_limits_are_those_that_children_get(tmp_path: Path) -> None:
    script = tmp_path / "limits.py"
    script.write_text(
        "import resource, sys\n"
        "from zdoctor.doctor.probe.host import limits\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))\n"
        "resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]),) * 2)\n"
        "print(limits({}).open_files, limits({}).address_space)\n"
    )
    assert python(script, 3 * GIB).stdout == f"100 {3 * GIB}\n"
    assert limits({}).shared_memory


WSL = replace(LINUX, release="Linux 5.15.167.4-microsoft-standard-WSL2")


@pytest.mark.parametrize(
    ("trainer", "settings", "system", "says"),
    [
        ("musubi-tuner", {"use_pinned_memory_for_block_swap": True}, WSL, True),
        ("musubi-tuner", {"use_pinned_memory_for_block_swap": True}, LINUX, False),
        ("musubi-tuner", {"use_pinned_memory_for_block_swap": False}, WSL, False),
        ("musubi-tuner", {}, WSL, False),
        ("SimpleTuner", {"ramtorch": "true"}, WSL, True),
        ("ai-toolkit", {"layer_offloading": True}, WSL, False),
    ],
)
def test_pinned_memory(trainer: str, settings: dict[str, Any], system: System, says: bool) -> None:
    values = {name: Value(value, Where("c", 1, 1, f"/{name}"), 0, 1) for name, value in settings.items()}
    run = replace(training(trainer), settings=values)
    seen = list(rules.pinned_memory_of_wsl(run, system))
    assert bool(seen) is says
    for finding in seen:
        (fix,) = pin_nothing(finding, run)
        assert isinstance(fix.steps[0], SetValue) and fix.steps[0].value is False


@pytest.mark.parametrize(
    ("free", "files", "severity"),
    [
        (None, (12, 12), None),
        (10, (12,), "error"),
        (10, (6, 6), "warning"),
        (10, (4, 4), None),
    ],
)
def test_what_the_system_promises(free: int | None, files: tuple[int, ...], severity: str | None) -> None:
    bound = None if free is None else free * GIB
    part = Component("transformer", "/m", weights=tuple(WeightFile("w", "/m/w", size * GIB) for size in files))
    model = ModelFolder("m", "diffusers", "/m", {"transformer": part})
    seen = list(rules.memory_not_promised(training(), model, Host(commit_limit=bound, commit_free=bound)))
    assert [finding.severity for finding in seen] == ([severity] if severity else [])
    for finding in seen:
        assert "12.9 GB, which the system must promise" in finding.text()
        fixes = [fix for os in ("linux", "windows") for fix in promise_more(finding, replace(LINUX, os=os))]
        assert [fix.command for fix in fixes] == ["sysctl vm.overcommit_memory=0", "SystemPropertiesPerformance.exe"]


WINDOWS = System("windows", "11", "3.11", "C:\\t", "C:\\Users\\mei", 8, 64 * GIB, 60 * GIB)
ONEDRIVE = Host(synced=("C:\\Users\\mei\\OneDrive",))


@pytest.mark.parametrize(
    ("output", "variables", "severities"),
    [
        ("D:\\out", {}, []),
        ("C:\\Users\\mei\\OneDrives\\out", {}, []),
        ("c:/users/Mei/OneDrive/out", {}, ["note"]),
        ("D:\\out", {"HF_HOME": "C:\\Users\\mei\\OneDrive\\hf"}, ["warning"]),
    ],
)
def test_what_is_copied_into_a_cloud(output: str, variables: dict[str, str], severities: list[str]) -> None:
    system, run = replace(WINDOWS, environment=variables), replace(training(), output_folder=output)
    seen = list(rules.synced_folder(run, ONEDRIVE, system))
    assert [finding.severity or "warning" for finding in seen] == severities
    fixes = [fix for finding in seen for fix in keep_the_cache_elsewhere(finding, system)]
    assert [fix.command for fix in fixes] == ['$env:HF_HOME = "C:\\huggingface"'] * severities.count("warning")
    assert not list(rules.synced_folder(NO_RUN, ONEDRIVE, WINDOWS))
    with pytest.raises(NotApplicable):
        list(rules.synced_folder(run, Host(), system))


@pytest.mark.parametrize(
    ("trainer", "length", "long_paths", "says"),
    [
        ("ai-toolkit", 243, False, True),  # and \\t.safetensors
        ("ai-toolkit", 242, False, True),
        ("ai-toolkit", 245, True, False),
        ("ai-toolkit", 200, False, False),
        ("SimpleTuner", 220, False, True),  # and \\checkpoint-1\\pytorch_lora_weights.safetensors
    ],
)
def test_paths_of_windows(trainer: str, length: int, long_paths: bool, says: bool) -> None:
    run = replace(training(trainer), name="longname", output_folder="D:\\" + "o" * (length - 3))
    seen = list(rules.path_too_long_for_windows(run, Host(long_paths=long_paths), WINDOWS))
    assert bool(seen) is says
    for finding in seen:
        assert finding.evidence["length"] > 259 and allow_long_paths(finding)
    with pytest.raises(NotApplicable):
        list(rules.path_too_long_for_windows(run, Host(), LINUX))


def test_the_clock() -> None:
    now = limits({}).clock
    assert now and not list(rules.clock_behind(Host(clock=now)))
    (finding,) = rules.clock_behind(Host(clock=0))
    assert "1970-01-01 00:00 UTC" in finding.text()
    assert [fix.command for fix in set_the_clock(finding, WINDOWS)] == ["w32tm /resync"]
    with pytest.raises(NotApplicable):
        list(rules.clock_behind(Host()))


def python(script: Path, *words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(script), *map(str, words)], capture_output=True, text=True)
