"""How a run uses a hub cache: what would be asked of the hub without need, and a cache that lies elsewhere."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from zdoctor.checks.hub.use import hf_xet_missing
from zdoctor.doctor.model import Hub, Report, SetValue
from zdoctor.doctor.probe.disks import MountLine, folders_below
from zdoctor.doctor.probe.hub import probe_hub
from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.tests.hub_cache import BIG, REPO, SHARD, Cache
from zdoctor.tests.hub_cases import check, run_with, said


@pytest.mark.parametrize(
    ("version", "cached", "environment", "expected"),
    [
        (None, False, {}, True),
        ("1.1.0", False, {}, True),
        ("1.5.1", False, {}, True),
        ("1.5.2", False, {}, False),
        ("1.0.9", False, {}, False),
        ("1.8.0", False, {}, False),
        (None, True, {}, False),
        (None, False, {"HF_HUB_OFFLINE": "1"}, False),
        (None, False, {"HF_HUB_DISABLE_XET": "1"}, False),
    ],
)
def test_hf_xet(
    caches: dict[str, Cache], version: str | None, cached: bool, environment: dict[str, str], expected: bool
) -> None:
    world = caches["linked"].world(**environment)
    run = run_with(REPO if cached else "acme/other")
    hub = probe_hub(world, run)
    assert isinstance(hub, Hub)
    found = list(hf_xet_missing(run, replace(hub, xet_version=version), world.system))
    assert bool(found) == expected


def test_online_model_source(caches: dict[str, Cache], tmp_path: Path) -> None:
    cache = caches["linked"].copy(tmp_path / "hub")

    def names(model: str = REPO, **environment: str) -> list[str]:
        return [
            f.name for f in check(cache.world(**environment), run_with(model), ignore=("HUB005", "HUB007")).findings
        ]

    assert names() == ["online-model-source"]
    assert names(HF_HUB_OFFLINE="1") == names(str(cache.file(""))) == names("acme/other") == []
    cache.manifest.unlink()
    assert names() == ["online-model-source"]
    shutil.rmtree(cache.file("vae"))  # nothing tells that it is missing, but every pipeline has one
    assert names() == []


def test_model_in_another_cache(caches: dict[str, Cache], tmp_path: Path) -> None:
    """HF_HOME was set when the model was downloaded, and another cache is in use now."""
    home = tmp_path / "hf"
    cache = caches["linked"].copy(home / "hub")

    def report(model: str = REPO, adapter: str | None = None) -> Report:
        variables = {"HF_HOME": str(home), "HF_HUB_CACHE": str(tmp_path / "new")}
        world = LiveWorld(variables, cwd=str(tmp_path), home=str(tmp_path))
        return check(world, run_with(model, adapter=adapter), ignore=("HUB005",))

    (finding,) = report().findings
    assert (finding.rule, finding.severity) == ("HUB008", "warning")
    assert "1.65 MB" in finding.consequence()
    (fix,) = finding.fixes
    assert fix.steps == (SetValue("job.yaml", "/model/base_model", str(cache.file(""))),)
    assert said(report(str(cache.file("")))) == []  # cured
    (finding,) = report("acme/other", f"{REPO}/{BIG}").findings
    assert finding.args["path"] == str(cache.file(BIG))
    cache.file(SHARD).unlink()
    cache.blob(SHARD).unlink()
    assert said(report()) == []


def test_model_in_a_cache_on_another_disk(caches: dict[str, Cache], tmp_path: Path) -> None:
    """No variable leads to it: somebody copied the cache to the data disk, where people put such things."""

    class SecondDisk(LiveWorld):
        def elsewhere(self, places: Sequence[str]) -> tuple[str, ...]:
            mounts = [MountLine(str(tmp_path / "disk"), "ext4"), MountLine("/", "tmpfs")]
            return tuple(folders_below(mounts, places))

    cache = caches["linked"].copy(tmp_path / "disk" / "huggingface" / "hub")
    world = SecondDisk({}, cwd=str(tmp_path), home=str(tmp_path / "home"))
    (finding,) = check(world, run_with(REPO)).findings
    assert (finding.rule, finding.args["other"]) == ("HUB008", str(cache.root))
    assert finding.fixes[0].steps == (SetValue("job.yaml", "/model/base_model", str(cache.file(""))),)
    cache.blob(SHARD).unlink()
    assert not check(world, run_with(REPO)).findings


def test_what_trainers_load(tmp_path: Path) -> None:
    """Loaded part by part by the real libraries, a cache lacks much of the repository and is healthy.

    A sharded transformer, though, cannot be loaded by its id offline; from the snapshot's path it can.
    """
    command = [sys.executable, "-m", "zdoctor.tests.hub_scenario", str(tmp_path)]
    seen = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    result = json.loads(seen.stdout.splitlines()[-1])
    assert (result["online"], result["offline from the path"]) == ("", "")
    assert result["offline"].startswith("OfflineModeIsEnabled: Cannot reach")

    def names(model: str = REPO, **environment: str) -> list[str]:
        variables = {"HF_HUB_CACHE": str(tmp_path / "hub"), **environment}
        world = LiveWorld(variables, cwd=str(tmp_path), home=str(tmp_path))
        report = check(world, run_with(model), deep=True, ignore=())
        assert not report.unknown and not report.crashed
        return [f.name for f in report.findings]

    (snapshot,) = (tmp_path / "hub" / "models--acme--tiny-image" / "snapshots").iterdir()
    assert names() == ["online-model-source"]
    assert names(HF_HUB_OFFLINE="1") == ["offline-sharded-model"]
    assert names(str(snapshot), HF_HUB_OFFLINE="1") == []
