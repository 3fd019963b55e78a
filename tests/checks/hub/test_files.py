"""Every defect of a hub cache is named by its rule and file; suspicious but healthy caches stay silent."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from huggingface_hub import _CACHED_NO_EXIST, try_to_load_from_cache

from zdoctor.doctor.cli import main
from zdoctor.doctor.model import ModelFolder, Unknown
from zdoctor.doctor.model.trainer import RUNNER
from zdoctor.doctor.probe.hub import probe_hub
from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.doctor.probe.model import probe_model
from zdoctor.tests.configs_on_disk import write_config
from zdoctor.tests.hub_cache import BIG, LAYOUTS, MODEL, REPO, SHARD, VAE, Cache, load, share
from zdoctor.tests.hub_cases import CASES, IDS, Sickness, check, run_with, said


@pytest.mark.parametrize(("sickness", "layout"), CASES, ids=IDS)
def test_defect_is_named(caches: dict[str, Cache], tmp_path: Path, sickness: Sickness, layout: str) -> None:
    cache = caches[layout].copy(tmp_path / "hub")
    sickness.spoil(cache)
    if sickness.raises is None:
        assert load(cache) != MODEL  # nothing complains, and the weights are others
    else:
        with pytest.raises(Exception, match=sickness.raises):
            load(cache)

    for environment in ({}, {"HF_HUB_OFFLINE": "1"}):
        report = check(cache.world(**environment), run_with(), deep=sickness.deep)
        assert (said(report), report.crashed, report.unknown) == ([(sickness.rule, sickness.file)], (), ())
        finding = report.findings[0]
        heals = not environment and sickness.rule in ("HUB002", "HUB003")  # online the client puts that right itself
        assert finding.severity == ("warning" if heals else "error")
        assert finding.where is not None and finding.where.line == 7
        assert "{" not in finding.text() + finding.consequence()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_healthy_cache_is_silent(caches: dict[str, Cache], tmp_path: Path, layout: str) -> None:
    cache = caches[layout].copy(tmp_path / "hub")
    for environment in ({}, {"HF_HUB_OFFLINE": "1"}):
        assert said(check(cache.world(**environment), run_with(), deep=True)) == []
    assert load(cache) == MODEL


def _orphan_blob(cache: Cache) -> None:
    (cache.repo / "blobs").mkdir(exist_ok=True)
    (cache.repo / "blobs" / ("e" * 64)).write_bytes(b"nobody links here")


def _extra_file(cache: Cache) -> None:
    cache.file("notes.safetensors").write_bytes(b"not a model")
    cache.file("transformer/notes.txt").write_text("mine")


def _shared_store(cache: Cache) -> None:
    if cache.blob(SHARD).exists() and not cache.blob(SHARD).is_symlink():
        share(cache)


def _no_exist(cache: Cache) -> None:
    """The client's usual notes of files that it asked for and that the repository does not have."""
    marks = cache.repo / ".no_exist" / cache.commit
    for name in ("transformer/adapter_config.json", "tokenizer/chat_template.jinja"):
        (marks / name).parent.mkdir(parents=True, exist_ok=True)
        (marks / name).touch()


def _without_what_nobody_loads(cache: Cache) -> None:
    """As after loading component by component: no README, no model_index.json, no scheduler."""
    for name in ("README.md", ".gitattributes", "assets/sample.png", "model_index.json"):
        cache.file(name).unlink()
    shutil.rmtree(cache.file("scheduler"))


def _damaged_readme(cache: Cache) -> None:
    cache.file("README.md").resolve().write_bytes(b"cut")


def _other_precision(cache: Cache) -> None:
    """Weights in another precision are listed and were never asked for."""
    listing = json.loads(cache.manifest.read_text())
    listing["files"]["vae/diffusion_pytorch_model.fp16.safetensors"] = {"size": 9, "blob_id": "1" * 40}
    listing["files"]["text_encoder/pytorch_model.bin"] = {"size": 9, "blob_id": "2" * 40}
    listing["files"]["tiny-image-single-file.safetensors"] = {"size": 9, "blob_id": "3" * 40}
    cache.manifest.write_text(json.dumps(listing))


def _manifest_of_a_newer_client(cache: Cache) -> None:
    cache.manifest.write_text('{"format_version": 2, "files": ["new"]}')


def _second_snapshot(cache: Cache) -> None:
    """An older commit, of which only a part was kept."""
    old = cache.repo / "snapshots" / ("a" * 40)
    (old / "vae").mkdir(parents=True)
    (old / "vae" / "config.json").symlink_to("../../../blobs/" + "b" * 40)


def _moved_aside(cache: Cache) -> None:
    quarantine = cache.repo / ".zdoctor-quarantine" / "1" / "blobs"
    quarantine.mkdir(parents=True)
    (quarantine / ("c" * 64)).write_bytes(b"broken")


def _running_download(cache: Cache) -> None:
    (cache.repo / "blobs").mkdir(exist_ok=True)
    (cache.repo / "blobs" / ("d" * 64 + ".0123abcd.incomplete")).write_bytes(b"it grows")


HEALTHY = (
    *(_orphan_blob, _extra_file, _shared_store, _no_exist, _without_what_nobody_loads, _damaged_readme),
    *(_other_precision, _manifest_of_a_newer_client, _second_snapshot, _moved_aside, _running_download),
)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("change", HEALTHY, ids=lambda change: change.__name__.strip("_"))
def test_suspicious_but_healthy(
    caches: dict[str, Cache], tmp_path: Path, change: Callable[[Cache], None], layout: str
) -> None:
    cache = caches[layout].copy(tmp_path / "hub")
    change(cache)
    for environment in ({}, {"HF_HUB_OFFLINE": "1"}):
        report = check(cache.world(**environment), run_with(), deep=True)
        assert (said(report), report.unknown, report.crashed) == ([], (), ())


def test_what_was_never_downloaded_is_no_damage(caches: dict[str, Cache], tmp_path: Path) -> None:
    """An interrupted first download: online the client goes on with it, offline the run would stop."""
    cache = caches["linked"].copy(tmp_path / "hub")
    shutil.rmtree(cache.file("vae"))
    assert said(check(cache.world(), run_with())) == []
    assert said(check(cache.world(HF_HUB_OFFLINE="1"), run_with())) == [("HUB002", VAE), ("HUB002", BIG)]
    assert said(check(cache.world(HF_HUB_OFFLINE="1"), run_with(extras="acme/parts")))[-2:] == [("HUB002", "")]


def test_nothing_cached_is_an_error_only_offline(tmp_path: Path) -> None:
    world = LiveWorld({"HF_HUB_CACHE": str(tmp_path / "none")}, cwd=str(tmp_path), home=str(tmp_path))
    assert said(check(world, run_with())) == []
    world = LiveWorld({"HF_HUB_CACHE": str(tmp_path), "HF_HUB_OFFLINE": "1"}, cwd=str(tmp_path), home=str(tmp_path))
    report = check(world, run_with())
    assert [(f.rule, f.severity, f.fixes) for f in report.findings] == [("HUB002", "error", ())]


def test_hidden_file(caches: dict[str, Cache], tmp_path: Path) -> None:
    cache = caches["linked"].copy(tmp_path / "hub")
    mark = cache.repo / ".no_exist" / cache.commit / VAE
    mark.parent.mkdir(parents=True)
    mark.touch()
    assert try_to_load_from_cache(REPO, VAE, cache_dir=cache.root) is _CACHED_NO_EXIST
    assert said(check(cache.world(), run_with())) == [("HUB002", VAE)]


def test_unusable_manifest_is_a_warning(caches: dict[str, Cache], tmp_path: Path) -> None:
    cache = caches["linked"].copy(tmp_path / "hub")
    cache.manifest.write_text("{")
    report = check(cache.world(), run_with())
    assert [(f.rule, f.severity) for f in report.findings] == [("HUB001", "warning")]
    assert load(cache) == MODEL  # the client ignores it


def test_path_into_the_cache(caches: dict[str, Cache], tmp_path: Path) -> None:
    """The ref does not matter to a path; nothing heals a missing file."""
    cache = caches["linked"].copy(tmp_path / "hub")
    cache.ref.write_text("f" * 40)
    cache.blob(SHARD).unlink()
    for path in (cache.file(""), cache.file("transformer")):
        report = check(LiveWorld({}, cwd="/", home=str(tmp_path)), run_with(str(path)))
        assert said(report) == [("HUB002", SHARD)]
        assert "loads the model" in report.findings[0].consequence()
    report = check(LiveWorld({}, cwd="/", home=str(tmp_path)), run_with(str(cache.file("vae"))))
    assert said(report) == []


@pytest.mark.skipif(sys.platform != "linux", reason="receipts are for file systems of Linux")
def test_deep_check_from_the_command_line(
    caches: dict[str, Cache],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A flipped byte with its old modification time: found even after a receipt; plain checks miss it."""
    cache = caches["linked"].copy(tmp_path / "hub")
    monkeypatch.setenv("HF_HUB_CACHE", str(cache.root))
    monkeypatch.setenv("ZDOCTOR_STATE", str(tmp_path / "state"))
    monkeypatch.setattr("zdoctor.doctor.state.receipts.SETTLED_NS", 0)
    config = str(write_config(tmp_path, name_or_path=REPO))
    words = ["check", config, "--deep", "--select", "HUB001"]

    assert main(["check", config, "--select", "HUB001"]) == 0
    assert not (tmp_path / "state" / "receipts.jsonl").exists()
    capsys.readouterr()
    for _ in range(2):
        assert main(words) == 0
        seen = capsys.readouterr()
        assert f"zdoctor check {config} --deep" in seen.out
        needed = re.search(r"zdoctor: (\d+) of (\d+) cached files .* hold exactly what was published", seen.err)
        assert needed is not None and needed[1] == needed[2]
        assert len((tmp_path / "state" / "receipts.jsonl").read_text().splitlines()) == 2  # a heading, the large file

    file = cache.file(BIG).resolve()
    before = file.stat()
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert main(["check", config, "--select", "HUB001"]) == 0
    capsys.readouterr()
    assert main(words) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert f"{BIG} of {REPO} is damaged: by its sha256 (measured) its content is not what was published" in out
    assert f"next: zdoctor fix {config} --deep" in out


def test_contents_that_could_not_be_verified_are_named(caches: dict[str, Cache], tmp_path: Path) -> None:
    cache = caches["linked"].copy(tmp_path / "hub")

    class Busy(LiveWorld):
        def digests(self, wanted: Mapping[str, str]) -> Mapping[str, str | Unknown]:
            return dict.fromkeys(wanted, Unknown("it changed while it was read"))

    seen = cache.world()
    report = check(Busy(seen.variables, seen.system.cwd, seen.system.home), run_with(), deep=True)
    assert said(report) == [("HUB001", BIG)]
    (finding,) = report.findings
    assert finding.severity == "warning" and "could not be verified: it changed while it was read." in finding.text()


@pytest.mark.parametrize("offline", [False, True])
def test_the_runner_opens_the_snapshot_by_its_path(caches: dict[str, Cache], tmp_path: Path, offline: bool) -> None:
    """zdoctor's own trainer asks neither refs nor the client's notes, and downloads nothing that is missing."""
    environment = {"HF_HUB_OFFLINE": "1"} if offline else {}
    run = replace(run_with(), trainer=RUNNER)
    misled = caches["linked"].copy(tmp_path / "misled")
    mark = misled.repo / ".no_exist" / misled.commit / VAE
    mark.parent.mkdir(parents=True)
    mark.touch()
    misled.ref.write_text("f" * 40)
    assert said(check(misled.world(**environment), run)) == []
    world = misled.world(**environment)
    model = probe_model(world, run, probe_hub(world, run))
    assert isinstance(model, ModelFolder) and model.folder is not None and (Path(model.folder) / VAE).is_file()

    lacking = caches["linked"].copy(tmp_path / "lacking")
    lacking.file(SHARD).unlink()
    lacking.blob(SHARD).unlink(missing_ok=True)
    report = check(lacking.world(**environment), run)
    assert [(finding.rule, finding.severity) for finding in report.findings] == [("HUB002", "error")]
    assert "download" not in report.findings[0].consequence()
