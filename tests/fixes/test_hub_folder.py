"""A folder filled by `hf download --local-dir`: every defect is found, cured by that one file, and taken back."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from huggingface_hub import hf_hub_download, snapshot_download
from huggingface_hub.utils import WeakFileLock  # type: ignore[attr-defined]
from safetensors import safe_open

from zdoctor.doctor.apply import ApplyError, apply, undo
from zdoctor.doctor.commands.extract import plan_extraction
from zdoctor.doctor.examine.engine import prescribe
from zdoctor.doctor.model import Hub, Report
from zdoctor.doctor.probe.hub import probe_hub
from zdoctor.tests.hub_cache import BIG, MODEL, REPO, SHARD, VAE, Cache, picture
from zdoctor.tests.hub_cases import SICK, Sickness, check, run_with, said
from zdoctor.tests.hub_server import HubServer, etag

NAMES = (
    "truncated",
    "truncated-early",
    "truncated-flipped",
    "tail",
    "flipped",
    "flipped-big",
    "empty",
    "page",
    "page-json",
    "missing",
)
CASES = [sickness for sickness in SICK if sickness.name in NAMES]
LATER = 60 * 10**9


@dataclass(frozen=True)
class Folder(Cache):
    """REPO in a folder of its own; `root` is a hub cache that once saw the same commit."""

    @property
    def model(self) -> Path:
        return self.root.parent / "model"

    def file(self, name: str) -> Path:
        return self.model / name

    def copy(self, target: Path) -> Folder:
        shutil.copytree(self.root.parent, target)
        return Folder(target / "hub", self.commit, self.environment)

    @property
    def manifest(self) -> Path:
        return self.model / ".cache" / "huggingface" / "trees" / f"{self.commit}.json"

    def without_lists(self) -> Folder:
        """As older clients left it: no list of files, neither here nor in the cache."""
        self.manifest.unlink()
        shutil.rmtree(self.repo / "trees", ignore_errors=True)
        return self


@pytest.fixture(scope="module")
def healthy(server: HubServer, tmp_path_factory: pytest.TempPathFactory) -> Folder:
    root = tmp_path_factory.mktemp("folder")
    snapshot_download(REPO, endpoint=server.url, local_dir=root / "model", cache_dir=root / "hub")
    hf_hub_download(REPO, "README.md", endpoint=server.url, cache_dir=root / "hub")
    return Folder(root / "hub", server.head(REPO))


def look(folder: Folder, *, deep: bool = True, inside: str = "") -> Report:
    report = check(folder.world(), run_with(str(folder.file(inside))), deep=deep)
    assert (report.unknown, report.crashed) == ((), ())
    return report


def spoil(folder: Folder, sickness: Sickness, seconds_later: int = 0) -> None:
    """Break a file; its time stays that of the download, or is that much later."""
    path = folder.file(sickness.file)
    at = path.stat().st_mtime_ns
    sickness.spoil(folder)
    if path.exists():
        os.utime(path, ns=(at, at + seconds_later * 10**9))


def load(folder: Folder) -> dict[str, bytes]:
    """What a run gets that names the folder: the real libraries read every file of it."""
    for name in MODEL:
        if name.endswith(".safetensors"):
            with safe_open(folder.file(name), "np") as file:
                for tensor in file.keys():  # noqa: SIM118 - the file is no mapping
                    file.get_tensor(tensor)
        if name.endswith(".json"):
            json.loads(folder.file(name).read_bytes())
    return {name: folder.file(name).read_bytes() for name in MODEL}


@pytest.mark.parametrize("listed", [True, False], ids=["listed", "unlisted"])
@pytest.mark.parametrize("sickness", CASES, ids=lambda sickness: sickness.name)
def test_cure(
    healthy: Folder,
    server: HubServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sickness: Sickness,
    listed: bool,
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    folder = healthy.copy(tmp_path / "here")
    if not listed:
        folder.without_lists()
    spoil(folder, sickness)
    before = picture(tmp_path / "here")
    if sickness.raises is None:
        assert load(folder) != MODEL
    else:
        with pytest.raises(Exception, match="No such file" if sickness.name == "missing" else sickness.raises):
            load(folder)

    report = look(folder, deep=sickness.deep)
    assert said(report) == [(sickness.rule, sickness.file)]
    assert report.findings[0].severity == "error"
    plan = prescribe(report)
    assert [fix.rule for fix in plan.fixes] == [sickness.rule]
    assert picture(tmp_path / "here") == before
    served = server.served
    applied = apply(plan, state=tmp_path / "state")
    assert server.served - served == sickness.bytes

    assert said(look(folder)) == []
    assert load(folder) == MODEL
    undo(applied.id, state=tmp_path / "state")
    assert picture(tmp_path / "here") == before


def test_left_over_download_is_gone_on_with(
    healthy: Folder, server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    folder = healthy.copy(tmp_path / "here")
    folder.file(SHARD).unlink()
    notes = folder.model / ".cache" / "huggingface" / "download" / "transformer"
    partial = notes / f"Zm9v.{etag(SHARD, MODEL[SHARD])}.0123abcd.incomplete"
    partial.write_bytes(MODEL[SHARD][:20_000])
    os.utime(partial, (1e9, 1e9))
    served = server.served
    apply(prescribe(look(folder)), state=tmp_path / "state")
    assert server.served - served == len(MODEL[SHARD]) - 20_000
    assert said(look(folder)) == [] and load(folder) == MODEL and not partial.exists()


def test_a_running_download_to_the_folder_is_left_alone(
    healthy: Folder, server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    folder = healthy.copy(tmp_path / "here")
    spoil(folder, next(s for s in SICK if s.name == "truncated"))
    lock = folder.model / ".cache" / "huggingface" / "download" / f"{SHARD}.lock"
    with WeakFileLock(lock), pytest.raises(ApplyError, match="downloading this content right now"):
        apply(prescribe(look(folder)), state=tmp_path / "state")


def test_the_client_trusts_its_notes(healthy: Folder, server: HubServer, tmp_path: Path) -> None:
    """Downloading again neither notices nor repairs a damaged file; after our cure it has nothing to do."""
    folder = healthy.copy(tmp_path / "here")
    spoil(folder, next(s for s in SICK if s.name == "flipped"))
    served = server.served
    snapshot_download(REPO, endpoint=server.url, local_dir=folder.model, cache_dir=folder.root)
    assert server.served == served and load(folder) != MODEL


@pytest.mark.parametrize("inside", ["", "transformer", SHARD])
def test_what_the_config_names(healthy: Folder, tmp_path: Path, inside: str) -> None:
    """The folder, a component in it, or one file: what lies outside of that does not matter."""
    folder = healthy.copy(tmp_path / "here")
    for name in ("truncated", "page-json"):
        spoil(folder, next(s for s in SICK if s.name == name))
    expected = {("HUB001", SHARD)} | ({("HUB001", VAE)} if not inside else set())
    assert set(said(look(folder, inside=inside))) == expected


def test_healthy_folder_is_silent(healthy: Folder, tmp_path: Path) -> None:
    folder = healthy.copy(tmp_path / "here")
    assert said(look(folder)) == []
    assert said(look(folder.without_lists())) == []
    for name in ("README.md", "assets/sample.png"):  # nobody loads them
        folder.file(name).unlink()
    folder.file("notes.safetensors").write_bytes(b"mine")
    (folder.model / ".cache" / "huggingface" / "download" / "x.metadata").write_text("torn")
    assert said(look(folder)) == []


def test_what_its_owner_changed_is_no_damage(healthy: Folder, tmp_path: Path) -> None:
    """Written after the download and whole: a config is the user's business, weights are worth a note."""
    folder = healthy.copy(tmp_path / "here")
    path = folder.file(VAE)
    path.write_text('{"latent_channels": 4}')
    os.utime(path, ns=(0, healthy.file(VAE).stat().st_mtime_ns + LATER))
    assert said(look(folder)) == []
    spoil(folder, next(s for s in SICK if s.name == "flipped-big"), seconds_later=60)
    (finding,) = look(folder).findings
    assert (finding.rule, finding.severity, finding.fixes) == ("HUB001", "note", ())
    spoil(folder, next(s for s in SICK if s.name == "truncated"), seconds_later=60)
    found = {finding.args["file"]: finding.severity for finding in look(folder).findings}
    assert found == {BIG: "note", SHARD: "error"}


def test_a_moved_copy_keeps_its_verdicts(healthy: Folder, tmp_path: Path) -> None:
    """`cp -r` makes every file newer than its note; content that is right is right all the same."""
    folder = healthy.copy(tmp_path / "here")
    for path in folder.model.rglob("*"):
        if path.is_file():
            os.utime(path, ns=(0, path.stat().st_mtime_ns + LATER))
    report = look(folder)
    assert said(report) == []


def test_copy_in_a_cache_spares_the_download(healthy: Folder, server: HubServer, tmp_path: Path) -> None:
    folder = healthy.copy(tmp_path / "here")
    snapshot_download(REPO, endpoint=server.url, cache_dir=folder.root)
    spoil(folder, next(s for s in SICK if s.name == "flipped"))
    plan = prescribe(look(folder))
    assert "0 bytes downloaded" in plan.fixes[0].title
    served = server.served
    apply(plan, state=tmp_path / "state")
    assert (server.served, load(folder)) == (served, MODEL)


def test_unknown_repository_is_asked_for(healthy: Folder, tmp_path: Path) -> None:
    """Nothing tells which repository the folder is of, unless its name does."""
    folder = healthy.copy(tmp_path / "here")
    shutil.rmtree(folder.repo)
    spoil(folder, next(s for s in SICK if s.name == "missing"))
    (fix,) = look(folder).findings[0].fixes
    assert (fix.safety, fix.steps) == ("show", ())
    assert f'"{SHARD}" --revision {folder.commit} --local-dir "{folder.model}" --force-download' in fix.command
    named = folder.model.with_name("Z-Image-Turbo")
    folder.model.rename(named)
    (fix,) = check(folder.world(), run_with(str(named))).findings[0].fixes
    assert [step.repo for step in fix.steps] == ["Tongyi-MAI/Z-Image-Turbo"]  # type: ignore[union-attr]


def test_left_over_download(healthy: Folder, tmp_path: Path) -> None:
    folder = healthy.copy(tmp_path / "here")
    left = folder.model / ".cache" / "huggingface" / "download" / "vae" / f"abc.{'0' * 64}.12345678.incomplete"
    left.write_bytes(b"half")
    os.utime(left, ns=(0, 0))
    report = look(folder)
    assert said(report) == [("HUB004", "")]
    apply(prescribe(report), state=tmp_path / "state")
    assert not left.exists() and said(look(folder)) == []


def test_nothing_is_claimed_without_notes(healthy: Folder, tmp_path: Path) -> None:
    """A plain folder may be another model with the same names and sizes."""
    folder = healthy.copy(tmp_path / "here")
    shutil.rmtree(folder.model / ".cache")
    spoil(folder, next(s for s in SICK if s.name == "flipped-big"))
    assert said(look(folder)) == []


def test_an_extracted_folder_can_be_verified_for_ever(healthy: Folder, server: HubServer, tmp_path: Path) -> None:
    """The list of files goes along, so the copy needs the cache no more; the hub client takes it for its own."""
    cache = tmp_path / "cache"
    snapshot_download(REPO, endpoint=server.url, cache_dir=cache)
    folder = Folder(tmp_path / "hub", healthy.commit)
    world = Cache(cache, healthy.commit).world()
    apply(plan_extraction(world, REPO, str(folder.model)), state=tmp_path / "state")
    shutil.rmtree(cache)
    assert folder.manifest.is_file() and load(folder) == MODEL
    report = look(folder)
    assert said(report) == []
    hub = probe_hub(folder.world(), run_with(str(folder.model)), deep=True)
    assert isinstance(hub, Hub)
    assert all(file.verified for file in hub.repos[0].files if file.needed)

    spoil(folder, next(s for s in SICK if s.name == "flipped-big"))
    folder.file(SHARD).unlink()
    assert sorted(said(look(folder))) == [("HUB001", BIG), ("HUB002", SHARD)]
    later = folder.file(VAE)
    later.write_text('{"latent_channels": 4}')
    os.utime(later, ns=(0, folder.manifest.stat().st_mtime_ns + LATER))
    assert sorted(said(look(folder))) == [("HUB001", BIG), ("HUB002", SHARD)]
    served = server.served
    snapshot_download(REPO, endpoint=server.url, local_dir=folder.model, cache_dir=cache)
    small = sum(len(data) for name, data in MODEL.items() if not name.endswith(".safetensors"))
    assert server.served - served <= small + len(MODEL[SHARD]) + len(MODEL[BIG])
