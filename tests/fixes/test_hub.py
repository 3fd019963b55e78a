"""Every defect of a hub cache is cured, at the cost of the broken file at most, and the cure can be taken back."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from huggingface_hub import snapshot_download, try_to_load_from_cache

from zdoctor.doctor.apply import ApplyError, apply, undo
from zdoctor.doctor.examine.engine import prescribe
from zdoctor.doctor.model import Plan, Report
from zdoctor.tests.hub_cache import BIG, MODEL, REPO, SHARD, VAE, Cache, download, load, picture, share
from zdoctor.tests.hub_cases import SICK, Sickness, check, in_one_layout, run_with, said
from zdoctor.tests.hub_server import HubServer


@pytest.mark.parametrize(("sickness", "layout"), in_one_layout(SICK))
def test_cure(
    caches: dict[str, Cache],
    server: HubServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sickness: Sickness,
    layout: str,
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    cache = caches[layout].copy(tmp_path / "hub")
    sickness.spoil(cache)
    before = picture(cache.root)

    def look() -> Report:
        return check(cache.world(), run_with(), deep=sickness.deep)

    plan = prescribe(look())
    assert picture(cache.root) == before  # looking changes nothing
    assert [fix.rule for fix in plan.fixes] == [sickness.rule]
    served = server.served
    applied = apply(plan, state=tmp_path / "state")
    assert server.served - served == sickness.bytes

    after = look()
    assert (said(after), prescribe(after).fixes) == ([], ())
    assert load(cache) == MODEL
    undo(applied.id, state=tmp_path / "state")
    assert picture(cache.root) == before


@pytest.mark.parametrize("offline", [False, True])
def test_snapshots_that_are_gone_are_linked_again(
    caches: dict[str, Cache], server: HubServer, tmp_path: Path, offline: bool
) -> None:
    """The list of files and the blobs tell all of it."""
    cache = caches["linked"].copy(tmp_path / "hub")
    whole = picture(cache.root)
    shutil.rmtree(cache.repo / "snapshots")
    environment = {"HF_HUB_OFFLINE": "1"} if offline else {}
    report = check(cache.world(**environment), run_with())
    assert [(f.rule, f.severity) for f in report.findings] == [("HUB002", "error" if offline else "warning")]
    served = server.served
    applied = apply(prescribe(report), state=tmp_path / "state")
    assert (server.served, load(cache), picture(cache.root)) == (served, MODEL, whole)
    assert said(check(cache.world(**environment), run_with(), deep=True)) == []
    undo(applied.id, state=tmp_path / "state")
    assert not (cache.repo / "snapshots").exists()


@pytest.mark.parametrize("place", ["repository", "folder"])
@pytest.mark.parametrize(
    ("sickness", "layout"),
    in_one_layout(one for one in SICK if one.download and one.name != "missing-unlisted"),
)
def test_copy_on_this_machine_spares_the_download(
    caches: dict[str, Cache], tmp_path: Path, sickness: Sickness, layout: str, place: str
) -> None:
    cache = caches[layout].copy(tmp_path / "hub")
    healthy = caches["linked"].copy(tmp_path / "healthy")
    extras = None
    if place == "repository":
        healthy.repo.rename(cache.root / "models--acme--mirror")
    else:
        extras = str(tmp_path / "model")
        shutil.copytree(healthy.file(""), extras)
    sickness.spoil(cache)
    for environment in ({}, {"HF_HUB_OFFLINE": "1"}):
        report = check(cache.world(**environment), run_with(extras=extras), deep=sickness.deep)
        plan = prescribe(report)
        assert {fix.rule for fix in plan.fixes} - {"HUB004"} == {sickness.rule}  # a left-over is of no use then
        assert "0 bytes downloaded" in plan.fixes[0].title
    apply(plan, state=tmp_path / "state")  # no hub answers here
    assert said(check(cache.world(), run_with(), deep=True)) == []
    assert load(cache) == MODEL


def test_a_cache_without_links_elsewhere_spares_the_download(caches: dict[str, Cache], tmp_path: Path) -> None:
    cache = caches["linked"].copy(tmp_path / "hub")
    caches["plain"].copy(tmp_path / "hf" / "hub")
    cache.blob(SHARD).unlink()
    world = cache.world(HF_HOME=str(tmp_path / "hf"))
    apply(prescribe(check(world, run_with())), state=tmp_path / "state")  # no hub answers here
    assert said(check(world, run_with(), deep=True)) == []
    assert load(cache) == MODEL


def test_a_corrupt_file_is_no_good_copy_of_itself(caches: dict[str, Cache], tmp_path: Path) -> None:
    """The blob bears the right name and size; under another repository too, when both share it by a hard link."""
    cache = caches["linked"].copy(tmp_path / "hub")
    twin = cache.root / "models--acme--mirror" / "blobs"
    twin.mkdir(parents=True)
    (twin / cache.blob(BIG).name).hardlink_to(cache.blob(BIG))
    next(s for s in SICK if s.name == "flipped-big").spoil(cache)
    assert [fix.title for fix in prescribe(check(cache.world(), run_with(), deep=True)).fixes] == [
        f"download {BIG} of {REPO} again, and only that (1.6 MB)"
    ]


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("truncated", f"download the missing 100 bytes of {SHARD} of {REPO}, and only that"),
        ("truncated-unlisted", f"download the missing rest of {SHARD} of {REPO}, and only that"),
        ("left-over", f"download the missing 15.1 kB of {SHARD} of {REPO}, and only that"),
        (
            "left-over-whole",
            f"complete {SHARD} of {REPO} from the left-over download, 0 bytes downloaded if its content is right",
        ),
        ("empty", f"download {SHARD} of {REPO} again, and only that (24.1 kB)"),
    ],
)
def test_the_title_names_what_is_downloaded(caches: dict[str, Cache], tmp_path: Path, name: str, title: str) -> None:
    cache = caches["linked"].copy(tmp_path / "hub")
    next(s for s in SICK if s.name == name).spoil(cache)
    assert [fix.title for fix in prescribe(check(cache.world(), run_with())).fixes] == [title]


def test_two_names_of_one_content_are_fetched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both files were cut off, since they are one blob; eleven findings and more come as one fix too."""
    twin = "text_encoder/twin.json"
    with HubServer({REPO: {**MODEL, twin: MODEL[VAE]}}) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        cache = download(server, tmp_path / "hub", "linked")
        cache.blob(VAE).write_bytes(MODEL[VAE][:-5])
        served = server.served
        while fixes := prescribe(check(cache.world(), run_with())).fixes:
            apply(Plan("job.yaml", fixes), state=tmp_path / "state")
        assert server.served - served == 5
        assert cache.file(twin).read_bytes() == MODEL[VAE]


def test_a_first_download_that_was_interrupted_goes_on(
    caches: dict[str, Cache], server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a folder nothing was finished: what lies there is completed, and the client does the rest by itself."""
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    cache = caches["linked"].copy(tmp_path / "hub")
    for name in (VAE, BIG):
        cache.file(name).unlink()
        cache.blob(name).unlink()
    partial = cache.repo / "blobs" / f"{cache.blob(BIG).name}.0123abcd.incomplete"
    partial.write_bytes(MODEL[BIG][:1_000_000])
    os.utime(partial, (1e9, 1e9))
    report = check(cache.world(), run_with())
    assert [(f.rule, f.severity, f.args["file"]) for f in report.findings] == [("HUB002", "warning", BIG)]
    served = server.served
    apply(prescribe(report), state=tmp_path / "state")
    snapshot_download(REPO, endpoint=server.url, cache_dir=cache.root)
    assert server.served - served == len(MODEL[BIG]) - 1_000_000 + len(MODEL[VAE])
    assert load(cache) == MODEL and not partial.exists()


def test_a_repair_that_failed_is_gone_on_with(
    caches: dict[str, Cache], server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own left-over counts at once; it waits for nobody."""
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    monkeypatch.setattr("zdoctor.doctor.apply.steps.fetch_file.WORTH", 1000)
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 1000)
    monkeypatch.setattr("huggingface_hub.file_download.time.sleep", lambda seconds: None)
    cache = caches["plain"].copy(tmp_path / "hub")
    next(s for s in SICK if s.name == "left-over").spoil(cache)
    served = server.served
    server.cuts = [10_000] + [0] * 20
    with pytest.raises(ApplyError, match="is kept in"):
        apply(prescribe(check(cache.world(), run_with())), state=tmp_path / "state")
    server.cuts = []
    while fixes := prescribe(report := check(cache.world(), run_with())).fixes:
        apply(Plan("job.yaml", fixes), state=tmp_path / "state")
    assert said(report) == [] and load(cache) == MODEL
    assert server.served - served == len(MODEL[SHARD]) - 9000
    assert list((cache.repo / "blobs").iterdir()) == []  # the older left-over as well


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells who has a file open")
def test_a_download_that_stalls_is_alive_while_its_file_is_open(caches: dict[str, Cache], tmp_path: Path) -> None:
    cache = caches["linked"].copy(tmp_path / "hub")
    next(s for s in SICK if s.name == "left-over").spoil(cache)
    (partial,) = (cache.repo / "blobs").glob("*.incomplete")
    with partial.open("rb"):
        (finding,) = (report := check(cache.world(), run_with())).findings
        assert (finding.rule, prescribe(report).fixes) == ("HUB002", ())
    (fix,) = prescribe(check(cache.world(), run_with())).fixes
    assert "the missing" in fix.title


def test_offline_download_is_only_shown(caches: dict[str, Cache], tmp_path: Path) -> None:
    cache = caches["plain"].copy(tmp_path / "hub")
    cache.file(SHARD).unlink()
    plan = prescribe(check(cache.world(HF_HUB_OFFLINE="1"), run_with()))
    assert plan.fixes == ()
    assert [(fix.safety, fix.steps) for fix in plan.shown] == [("show", ())]


def test_no_download_beside_a_running_one(caches: dict[str, Cache], tmp_path: Path) -> None:
    cache = caches["linked"].copy(tmp_path / "hub")
    cache.blob(SHARD).unlink()
    (cache.repo / "blobs" / f"{cache.blob(SHARD).name}.0123abcd.incomplete").write_bytes(b"it grows")
    plan = prescribe(check(cache.world(), run_with()))
    assert (plan.fixes, [fix.safety for fix in plan.shown]) == ((), ["show"])


def test_hidden_and_missing(caches: dict[str, Cache], tmp_path: Path) -> None:
    """The link comes back, and the note that the file does not exist goes."""
    cache = caches["linked"].copy(tmp_path / "hub")
    mark = cache.repo / ".no_exist" / cache.commit / VAE
    mark.parent.mkdir(parents=True)
    mark.touch()
    cache.file(VAE).unlink()
    apply(prescribe(check(cache.world(), run_with())), state=tmp_path / "state")
    assert said(check(cache.world(), run_with())) == []
    assert try_to_load_from_cache(REPO, VAE, cache_dir=cache.root) == str(cache.file(VAE))
    assert load(cache) == MODEL


def test_unusable_manifest_is_put_aside(caches: dict[str, Cache], server: HubServer, tmp_path: Path) -> None:
    cache = caches["linked"].copy(tmp_path / "hub")
    cache.manifest.write_text("{")
    apply(prescribe(check(cache.world(), run_with())), state=tmp_path / "state")
    assert said(check(cache.world(), run_with())) == []
    snapshot_download(REPO, endpoint=server.url, cache_dir=cache.root)
    assert cache.manifest.is_file()


def test_only_snapshot_is_the_choice_even_when_it_is_broken(caches: dict[str, Cache], tmp_path: Path) -> None:
    cache = caches["linked"].copy(tmp_path / "hub")
    cache.ref.write_text("f" * 40)
    cache.file(SHARD).unlink()
    apply(prescribe(check(cache.world(), run_with())), state=tmp_path / "state")
    assert said(check(cache.world(), run_with())) == []
    assert load(cache) == MODEL


@pytest.mark.parametrize("complete", [0, 1, 2])
def test_ref_is_moved_only_where_there_is_no_choice(caches: dict[str, Cache], tmp_path: Path, complete: int) -> None:
    cache = caches["linked"].copy(tmp_path / "hub")
    snapshots = cache.repo / "snapshots"
    shutil.copytree(snapshots / cache.commit, snapshots / ("a" * 40), symlinks=True)
    for commit in [cache.commit, "a" * 40][complete:]:
        (snapshots / commit / SHARD).unlink()
    cache.ref.write_text("f" * 40)
    report = check(cache.world(), run_with())
    offered = [fix for f in report.findings if f.rule == "HUB003" for fix in f.fixes]
    assert [fix.safety for fix in offered] == (["safe"] if complete == 1 else ["ask", "ask"])
    assert all(fix.command for fix in offered if fix.safety == "ask")


def test_many_broken_files_are_cured_at_once(
    caches: dict[str, Cache], server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twelve files are broken; ten are told one by one, the last finding stands for the rest."""
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    cache = caches["linked"].copy(tmp_path / "hub")
    needed = [name for name in MODEL if name not in (".gitattributes", "README.md", "assets/sample.png")]
    for name in needed:
        cache.blob(name).write_bytes(b"")
    report = check(cache.world(), run_with())
    assert len(needed) == 12 and len(report.findings) == 11
    apply(prescribe(report), state=tmp_path / "state")
    assert said(check(cache.world(), run_with(), deep=True)) == []
    assert load(cache) == MODEL


def test_leftover_downloads_go_into_quarantine(caches: dict[str, Cache], tmp_path: Path) -> None:
    cache = caches["linked"].copy(tmp_path / "hub")
    blobs = cache.repo / "blobs"
    old, alive = blobs / ("a" * 64 + ".0123abcd.incomplete"), blobs / ("b" * 64 + ".0123abcd.incomplete")
    old.write_bytes(b"x" * 5000)
    alive.write_bytes(b"y" * 5000)
    os.utime(old, (1e9, 1e9))
    report = check(cache.world(), run_with())
    assert [f.rule for f in report.findings] == ["HUB004"]
    assert "5 kB" in report.findings[0].text()
    apply(prescribe(report), state=tmp_path / "state")
    assert (old.exists(), alive.exists()) == (False, True)
    assert said(check(cache.world(), run_with())) == []
    assert load(cache) == MODEL


def test_shared_store_is_cured_for_every_repository(
    caches: dict[str, Cache], server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replacing only the repository's blob would leave the bad payload for the next repository that links to it."""
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    cache = share(caches["linked"].copy(tmp_path / "hub"))
    payload = cache.blob(SHARD).resolve()
    assert payload.parent.parent == cache.root / "blobs"
    payload.write_bytes(payload.read_bytes()[:-100])
    served = server.served
    apply(prescribe(check(cache.world(), run_with())), state=tmp_path / "state")
    assert server.served - served == 100
    assert cache.blob(SHARD).is_symlink() and payload.read_bytes() == MODEL[SHARD]
    assert load(cache) == MODEL
