"""Without symbolic links an interrupted update costs what has changed, in bytes downloaded and on the disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from huggingface_hub import constants, snapshot_download

from zdoctor.doctor.apply import ApplyError, apply, undo
from zdoctor.doctor.examine.engine import prescribe
from zdoctor.doctor.model import MakeLink, PlaceCopy, Report
from zdoctor.tests.hub_cache import BIG, MODEL, REPO, SHARD, VAE, Cache, download, load, picture
from zdoctor.tests.hub_cases import check, run_with, said
from zdoctor.tests.hub_server import Files, HubServer

NEW_README: Files = {**MODEL, "README.md": b"# A tiny image model, described anew\n"}
NEW_SHARD: Files = {**NEW_README, SHARD: MODEL[SHARD][:-4] + b"\0\0\0\1"}  # of the same size and structure
LARGE_UNUSED = "vae/diffusion_pytorch_model.fp16.safetensors"


def begin(server: HubServer, root: Path, model: Files, layout: str, done: tuple[str, ...]) -> tuple[Cache, Cache]:
    """What the client leaves when it is interrupted after the files `done` of the new commit: (old, new)."""
    old = download(server, root, layout)
    commit = server.push(REPO, model)
    online(server, old, layout, list(done) or ["none of them"])
    return old, Cache(root, commit)


def online(server: HubServer, cache: Cache, layout: str, patterns: list[str] | None = None) -> int:
    """The bytes that the client downloads for the newest commit."""
    before = server.served
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(constants, "HF_HUB_DISABLE_SYMLINKS", layout == "plain")
        snapshot_download(REPO, endpoint=server.url, cache_dir=cache.root, allow_patterns=patterns)
    return server.served - before


@pytest.fixture
def server() -> HubServer:
    return HubServer({REPO: MODEL})


@pytest.mark.parametrize("done", [(), ("vae/*",), ("model_index.json", f"{SHARD[:11]}*")], ids=len)
@pytest.mark.parametrize(("model", "changed"), [(NEW_README, ["README.md"]), (NEW_SHARD, ["README.md", SHARD])])
def test_update(
    server: HubServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    model: Files,
    changed: list[str],
    done: tuple[str, ...],
) -> None:
    with server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        old, cache = begin(server, tmp_path / "hub", model, "plain", done)
        before, there = picture(cache.root), {name for name in model if cache.file(name).exists()}
        report = check(cache.world(), run_with())
        assert [(f.rule, f.severity) for f in report.findings] == [("HUB002", "warning")]
        missing = [name for name in changed if name not in there]
        fetched = sum(len(model[name]) for name in missing)
        (fix,) = (plan := prescribe(report)).fixes
        assert f"({len(model) - len(there) - len(missing)} of {len(model) - len(there)} files)" in fix.title
        assert picture(cache.root) == before

        served = server.served
        applied = apply(plan, state=tmp_path / "state")
        assert server.served - served == fetched
        for name in model.keys() - there - set(changed):
            assert os.path.samefile(cache.file(name), old.file(name))  # no byte of the disk
        assert said(check(cache.world(), run_with(), deep=True)) == []
        assert load(cache) == model and online(server, cache, "plain") == 0
        assert {name: old.file(name).read_bytes() for name in MODEL} == MODEL
        undo(applied.id, state=tmp_path / "state")
        assert picture(cache.root) == before


def offline(cache: Cache) -> Report:
    return check(cache.world(HF_HUB_OFFLINE="1"), run_with())


def test_offline_only_what_needs_no_download_is_done(server: HubServer, tmp_path: Path) -> None:
    """A README is not waited for. With changed weights the choice is the user's: wait, or go back."""
    with server:
        _, cache = begin(server, tmp_path / "hub", NEW_README, "plain", ("vae/*",))
    report = offline(cache)
    assert [(f.rule, f.severity) for f in report.findings] == [("HUB002", "error")]
    apply(prescribe(report), state=tmp_path / "state")
    assert said(offline(cache)) == []

    with HubServer({REPO: MODEL}) as other:
        old, cache = begin(other, tmp_path / "other", NEW_SHARD, "plain", ("vae/*",))
    plan = prescribe(offline(cache))
    assert plan.fixes == () and [fix.safety for fix in plan.shown] == ["ask"]
    assert f"back at {old.commit[:8]}, which is complete" in plan.shown[0].title


def test_offline_a_list_alone_is_no_update(server: HubServer, tmp_path: Path) -> None:
    """The ref goes back to the snapshot that is there."""
    with server:
        old, cache = begin(server, tmp_path / "hub", NEW_SHARD, "plain", ())
    assert said(offline(cache)) == [("HUB003", "")]
    apply(prescribe(offline(cache)), state=tmp_path / "state")
    assert load(old) == MODEL


def test_an_old_file_that_is_bad_is_not_linked(
    server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plain check does not read large files, so the repair finds it out and does nothing; a deep one fetches."""
    with server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        old, cache = begin(server, tmp_path / "hub", NEW_README, "plain", (VAE,))
        content = bytearray(MODEL[BIG])
        content[-100] ^= 1
        old.file(BIG).write_bytes(content)
        before = picture(cache.root)
        with pytest.raises(ApplyError, match=r"is corrupt: .* with --deep, such a copy is read before it is chosen"):
            apply(prescribe(check(cache.world(), run_with())), state=tmp_path / "state")
        assert picture(cache.root) == before
        served = server.served
        apply(prescribe(check(cache.world(), run_with(), deep=True)), state=tmp_path / "state")
        assert server.served - served == len(MODEL[BIG]) + len(NEW_README["README.md"])
        assert load(cache) == NEW_README


def test_large_files_that_nobody_loads_are_left_to_those_who_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first: Files = {**MODEL, LARGE_UNUSED: MODEL[BIG]}
    with HubServer({REPO: first}) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        _, cache = begin(server, tmp_path / "hub", {**first, LARGE_UNUSED: MODEL[BIG][:-1] + b"!"}, "plain", (VAE,))
        served = server.served
        apply(prescribe(check(cache.world(), run_with())), state=tmp_path / "state")
        assert server.served == served and not cache.file(LARGE_UNUSED).exists()
        assert said(check(cache.world(), run_with())) == []


def test_an_update_that_is_running_is_left_alone(server: HubServer, tmp_path: Path) -> None:
    with server:
        _, cache = begin(server, tmp_path / "hub", NEW_SHARD, "plain", ("vae/*",))
    (cache.repo / "blobs").mkdir(exist_ok=True)
    (cache.repo / "blobs" / f"{'d' * 64}.0123abcd.incomplete").write_bytes(b"it grows")
    assert said(check(cache.world(), run_with())) == []


def test_with_links_another_version_is_no_copy(
    server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The older shard has the same size and structure; its blob's name says that it is another."""
    with server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        _, cache = begin(server, tmp_path / "hub", NEW_SHARD, "linked", ("transformer/*",))
        cache.file(SHARD).resolve().unlink()
        (fix,) = prescribe(check(cache.world(), run_with())).fixes
        assert fix.title == f"download {SHARD} of {REPO} again, and only that (24.1 kB)"
        served = server.served
        apply(prescribe(check(cache.world(), run_with())), state=tmp_path / "state")
        assert server.served - served == len(NEW_SHARD[SHARD])
        assert online(server, cache, "linked") == len(NEW_SHARD["README.md"])
        assert load(cache) == NEW_SHARD


def test_a_file_missing_from_the_only_snapshot_is_no_update(
    server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        cache = download(server, tmp_path / "hub", "plain")
        cache.file(SHARD).unlink()
        (finding,) = check(cache.world(), run_with()).findings
        assert "is missing from the cached snapshot" in finding.text()
        assert not any(isinstance(step, PlaceCopy | MakeLink) for fix in finding.fixes for step in fix.steps)
