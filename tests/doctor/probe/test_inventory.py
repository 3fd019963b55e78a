"""What `zdoctor cache` sees: every defect, every kind of waste, and nothing wrong with what only looks odd."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from huggingface_hub import scan_cache_dir, snapshot_download

from zdoctor.doctor.model.caches import CachedRepo, Inventory, Waste
from zdoctor.doctor.probe.hub.inventory import names, probe_inventory
from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.reports.waste import Advice, advice, twins
from zdoctor.tests.doctor.probe.test_hub import COMMIT, POSIX, cached, machine
from zdoctor.tests.doctor.probe.test_hub import MODEL as SMALL
from zdoctor.tests.hub_cache import BIG, MODEL, REPO, SHARD, Cache, download, share
from zdoctor.tests.hub_cases import CASES, IDS, Sickness
from zdoctor.tests.hub_server import HubServer, etag

OTHER = {"config.json": b"{}", "model.safetensors": MODEL[BIG]}
REVISED = {**MODEL, "README.md": b"# A newer image model\n"}


@pytest.fixture(scope="module")
def server() -> Iterator[HubServer]:
    with HubServer({REPO: MODEL, "acme/other": OTHER}) as hub:
        yield hub


def look(cache: Cache, *, deep: bool = False, repo: str | None = None) -> Inventory:
    return probe_inventory(cache.world(), repo, deep=deep)


def only(inventory: Inventory) -> CachedRepo:
    (repo,) = inventory.repos
    return repo


def said(cache: Cache) -> list[tuple[Waste, Advice]]:
    (found,) = look(cache).caches
    owned = [(waste, repo) for repo in found.repos for waste in repo.waste]
    return [
        *((waste, advice(waste, found, repo, True)) for waste, repo in owned),
        *((waste, advice(waste, found, None, True)) for waste in found.waste),
    ]


@pytest.mark.parametrize(("sickness", "layout"), CASES, ids=IDS)
def test_every_defect_is_seen(sickness: Sickness, layout: str, caches: dict[str, Cache], tmp_path: Path) -> None:
    cache = caches[layout].copy(tmp_path / "hub")
    sickness.spoil(cache)
    found = look(cache, deep=sickness.deep)
    repo = only(found)
    assert repo.health == ("incomplete" if sickness.rule == "HUB002" else "damaged")
    assert found.exit_code == 1
    if sickness.rule == "HUB003":
        assert [name for name, _ in repo.bad_refs] == ["main"]
    else:
        assert [fault.name for fault in repo.live[0].faults] == [sickness.file]
    assert not [waste for waste in repo.waste if waste.kind == "orphan"]


@pytest.mark.parametrize("layout", ["linked", "plain", "shared"])
def test_a_whole_repository_is_verified_only_when_all_was_read(
    layout: str, caches: dict[str, Cache], tmp_path: Path
) -> None:
    cache = caches["linked" if layout == "shared" else layout].copy(tmp_path / "hub")
    if layout == "shared":
        share(cache)
    for deep, health, unread in ((False, "plausible", 1), (True, "verified", 0)):
        found = look(cache, deep=deep)
        (revision,) = only(found).revisions
        assert (only(found).health, revision.refs, revision.unread) == (health, ("main",), unread)
        assert revision.size == revision.own == sum(len(data) for data in MODEL.values())
        assert found.exit_code == 0 and not only(found).waste and not found.caches[0].waste and not found.duplicates
    files = {(s.st_dev, s.st_ino): s.st_size for s in (p.stat() for p in cache.root.rglob("*")) if _is_file(s)}
    known = [f for f in cache.root.iterdir() if f.is_file()]
    assert found.caches[0].size == sum(files.values()) - sum(f.stat().st_size for f in known if f.name != "blobs")


def _is_file(stat: os.stat_result) -> bool:
    return stat.st_mode & 0o170000 == 0o100000


def test_what_cannot_be_told_is_not_green(caches: dict[str, Cache], tmp_path: Path) -> None:
    """Without the list of files nobody knows what is missing; contents that are there may be right all the same."""
    cache = caches["linked"].copy(tmp_path / "hub")
    cache.manifest.unlink()
    for deep in (False, True):
        found = look(cache, deep=deep)
        assert (only(found).health, found.exit_code) == ("unknown", 0)
        assert "no list of its files" in only(found).revisions[0].reason
    assert only(found).revisions[0].unread == 0


def test_a_download_of_a_part_is_no_fault(server: HubServer, tmp_path: Path) -> None:
    """As diffusers downloads: what no loader asks for stays away, and the client's list names it all the same."""
    root = tmp_path / "hub"
    snapshot_download(REPO, endpoint=server.url, cache_dir=root, ignore_patterns=["*.md", "assets/*"])
    cache = Cache(root, server.head(REPO))
    found = look(cache, deep=True)
    assert (only(found).health, found.exit_code) == ("verified", 0)
    assert only(found).revisions[0].absent == 2


def test_single_components_are_no_fault(server: HubServer, tmp_path: Path) -> None:
    """Somebody took the VAE from another model: whether the rest is wanted, nobody here can know."""
    root = tmp_path / "hub"
    snapshot_download(REPO, endpoint=server.url, cache_dir=root, allow_patterns=["vae/*", "model_index.json"])
    found = look(Cache(root, server.head(REPO)), deep=True)
    (revision,) = only(found).revisions
    assert (revision.health, found.exit_code, revision.absent) == ("unknown", 0, len(MODEL) - 3)
    assert "Nothing of text_encoder/, tokenizer/, transformer/ is here" in revision.reason


def test_a_repository_that_was_only_asked_about_is_empty(caches: dict[str, Cache], tmp_path: Path) -> None:
    """Loaders ask for files that do not exist; the client notes that, and moves the ref."""
    cache = caches["linked"].copy(tmp_path / "hub")
    for name, commit in (("models--acme--asked", COMMIT), ("datasets--acme--asked", COMMIT)):
        (cache.root / name / ".no_exist" / commit).mkdir(parents=True)
        (cache.root / name / ".no_exist" / commit / "adapter_config.json").touch()
        (cache.root / name / "refs").mkdir()
        (cache.root / name / "refs" / "main").write_text(commit)
    found = look(cache)
    assert found.exit_code == 0
    assert [(r.kind, r.health, r.bad_refs) for r in found.repos if not r.revisions] == [
        ("dataset", "unknown", ()),
        ("model", "unknown", ()),
    ]


def aged(path: Path, seconds: float = 3600) -> Path:
    path.touch()
    then = time.time() - seconds
    os.utime(path, (then, then))
    return path


def orphan(cache: Cache, server: HubServer) -> None:
    (cache.repo / "blobs" / ("c" * 64)).write_bytes(b"x" * 1000)
    aged(cache.repo / "blobs" / ("c" * 64))


def left_over(cache: Cache, server: HubServer) -> None:
    (cache.repo / "blobs" / ("c" * 64 + ".0a1b2c3d.incomplete")).write_bytes(b"x" * 1000)
    aged(cache.repo / "blobs" / ("c" * 64 + ".0a1b2c3d.incomplete"))


def running(cache: Cache, server: HubServer) -> None:
    (cache.repo / "blobs" / ("c" * 64 + ".0a1b2c3d.incomplete")).write_bytes(b"x" * 1000)


def quarantine(cache: Cache, server: HubServer) -> None:
    place = cache.repo / ".zdoctor-quarantine" / "20260102-000000-000000-aa" / "quarantine" / "blobs"
    place.mkdir(parents=True)
    (place / "x").write_bytes(b"x" * 1000)


def unreferenced(cache: Cache, server: HubServer) -> None:
    leaked(cache, server)
    payload = cache.root / "blobs" / "cc" / ("c" * 64)
    payload.with_name(f"{payload.name}.refs").write_text("models--acme--gone/blobs/x\n")


def leaked(cache: Cache, server: HubServer) -> None:
    """As after a crash of the client between the payload and its note of who uses it."""
    share(cache)
    payload = cache.root / "blobs" / "cc" / ("c" * 64)
    payload.parent.mkdir(exist_ok=True)
    payload.write_bytes(b"x" * 1000)
    aged(payload)


def update(cache: Cache, server: HubServer, files: dict[str, bytes]) -> Cache:
    """A newer commit, downloaded beside the old one; the branch moves to it."""
    with HubServer({REPO: MODEL}) as hub:
        hub.push(REPO, files)
        return download(hub, cache.root, "linked")


def detached(cache: Cache, server: HubServer) -> None:
    update(cache, server, {**REVISED, "vae/config.json": b'{"latent_channels": 4}' + b" " * 978})
    (cache.repo / "blobs" / "keep").mkdir()  # a stray folder is nobody's blob


def interrupted_update(cache: Cache, server: HubServer) -> None:
    newer = update(cache, server, {**REVISED, SHARD: MODEL[SHARD] + b"more"})
    newer.file(SHARD).resolve().unlink()
    newer.file(SHARD).unlink()


@pytest.mark.parametrize(
    ("spoil", "kind", "size", "keep", "types"),
    [
        (orphan, "orphan", 1000, False, "rm "),
        (left_over, "left-over", 1000, False, f"zdoctor cache {REPO} --fix"),
        (running, "running", 1000, True, ""),
        (quarantine, "quarantine", 1000, True, "rm -r "),
        (unreferenced, "unreferenced", 1000, False, "hf cache prune"),
        (leaked, "leaked", 1000, False, "rm "),
        (detached, "detached", None, True, "hf cache rm "),
        (interrupted_update, "detached", None, True, ""),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_every_kind_of_waste(
    spoil: Callable[[Cache, HubServer], None],
    kind: str,
    size: int | None,
    keep: bool,
    types: str,
    caches: dict[str, Cache],
    server: HubServer,
    tmp_path: Path,
) -> None:
    cache = caches["linked"].copy(tmp_path / "hub")
    spoil(cache, server)
    ((waste, text),) = said(cache)
    assert (waste.kind, text.keep) == (kind, keep)
    assert size is None or waste.size == size
    assert text.command.startswith(types) and bool(text.command) == bool(types)


def test_prune_would_delete_the_only_whole_revision(
    caches: dict[str, Cache], server: HubServer, tmp_path: Path
) -> None:
    """What the advice says of `hf cache prune` is what the client itself calls detached."""
    cache = caches["linked"].copy(tmp_path / "hub")
    interrupted_update(cache, server)
    ((waste, text),) = said(cache)
    assert (waste.id, waste.last, waste.health) == (cache.commit, True, "plausible")
    assert only(look(cache)).health == "incomplete"
    assert "hf cache prune would delete it" in text.text
    (seen,) = scan_cache_dir(cache.root).repos
    assert {revision.commit_hash for revision in seen.revisions if not revision.refs} == {waste.id}


@pytest.mark.parametrize("spoil", [orphan, quarantine, unreferenced, leaked, detached])
def test_what_is_said_to_be_typed_frees_what_is_said(
    spoil: Callable[[Cache, HubServer], None], caches: dict[str, Cache], server: HubServer, tmp_path: Path
) -> None:
    """The commands that are shown, run by a shell and the real client, free the bytes and break nothing."""
    cache = caches["linked"].copy(tmp_path / "hub")
    spoil(cache, server)
    before = look(cache).caches[0].size
    ((waste, text),) = said(cache)
    words = text.command.split()
    if words[0] == "hf":
        words = [sys.executable, "-m", "huggingface_hub.cli.hf", *words[1:], "--yes", "--cache-dir", str(cache.root)]
    subprocess.run(words, check=True)
    found = look(cache, deep=True)
    assert not said(cache) and only(found).health == "verified"
    freed = before - found.caches[0].size
    assert waste.size <= freed <= waste.size + 10_000  # with the list of files of a revision


@pytest.mark.parametrize("spoil", [orphan, left_over])
def test_what_a_client_may_be_writing_is_no_waste(
    spoil: Callable[[Cache, HubServer], None], caches: dict[str, Cache], server: HubServer, tmp_path: Path
) -> None:
    cache = caches["linked"].copy(tmp_path / "hub")
    spoil(cache, server)
    for blob in (cache.repo / "blobs").iterdir():
        aged(blob, 60)
    assert [waste.kind for waste, _ in said(cache)] in ([], ["running"])


def test_a_blob_that_a_snapshot_waits_for_is_no_waste(caches: dict[str, Cache], tmp_path: Path) -> None:
    cache = caches["linked"].copy(tmp_path / "hub")
    aged(cache.blob(SHARD))
    cache.file(SHARD).unlink()
    assert only(look(cache)).health == "incomplete" and not said(cache)
    cache.file("README.md").unlink()  # nobody waits for it
    aged(cache.blob("README.md"))
    assert [waste.kind for waste, _ in said(cache)] == ["orphan"]


def test_blobs_whose_snapshot_is_gone_are_no_waste(
    caches: dict[str, Cache], server: HubServer, tmp_path: Path
) -> None:
    cache = caches["linked"].copy(tmp_path / "hub")
    shutil.rmtree(cache.repo / "snapshots")
    for blob in (cache.repo / "blobs").iterdir():
        aged(blob)
    found = look(cache)
    assert (only(found).health, found.exit_code, said(cache)) == ("incomplete", 1, [])
    served = server.served
    snapshot_download(REPO, endpoint=server.url, cache_dir=cache.root)  # as the report says
    assert server.served == served and look(cache, deep=True).exit_code == 0


def test_the_same_content_is_found_by_its_address(
    caches: dict[str, Cache], server: HubServer, tmp_path: Path
) -> None:
    """In another repository, another cache, and (without links) another revision; hard links are one file."""
    home = tmp_path / "home" / ".cache" / "huggingface" / "hub"
    cache = caches["linked"].copy(tmp_path / "hub")
    snapshot_download("acme/other", endpoint=server.url, cache_dir=cache.root)
    assert [(d.size, len(d.paths)) for d in look(cache).duplicates] == [(len(MODEL[BIG]), 2)]
    caches["plain"].copy(home)
    found = look(cache)
    assert [(d.waste, len(d.paths)) for d in found.duplicates] == [(2 * len(MODEL[BIG]), 3)]
    assert [c.path for c in found.caches] == [str(cache.root), str(home)]
    plain = Cache(home, cache.commit)
    for path in sorted(plain.repo.rglob("*.safetensors")):
        twin = cache.blob(path.relative_to(plain.file("")).as_posix())
        path.unlink()
        os.link(twin, path)
    assert [d.waste for d in look(cache).duplicates] == [len(MODEL[BIG])]


def test_a_copy_in_another_cache_may_go_once_this_one_is_whole(caches: dict[str, Cache], tmp_path: Path) -> None:
    """The command that is shown, given to the real client, leaves the cache in use as it was."""
    cache = caches["linked"].copy(tmp_path / "hub")
    other = caches["plain"].copy(tmp_path / "home" / ".cache" / "huggingface" / "hub")
    ((repo, where, command),) = twins(look(cache))
    assert (repo.repo, where.path) == (REPO, str(other.root))
    words = command.split()
    assert words[:4] == ["hf", "cache", "rm", f"model/{REPO}"]
    subprocess.run([sys.executable, "-m", "huggingface_hub.cli.hf", *words[1:], "--yes"], check=True)
    assert not other.repo.exists() and only(look(cache, deep=True)).health == "verified"
    caches["plain"].copy(tmp_path / "again").repo.rename(other.repo)
    cache.blob(SHARD).unlink()
    assert not list(twins(look(cache)))  # now the copy is the good one


def test_copies_in_two_snapshots_without_links(caches: dict[str, Cache], tmp_path: Path) -> None:
    cache = caches["plain"].copy(tmp_path / "hub")
    second = cache.repo / "snapshots" / COMMIT
    shutil.copytree(cache.file(""), second)
    shutil.copy(cache.manifest, cache.repo / "trees" / f"{COMMIT}.json")
    (duplicate,) = look(cache).duplicates
    assert duplicate.waste == len(MODEL[BIG])
    shutil.rmtree(second)
    shutil.copytree(cache.file(""), second, copy_function=os.link)
    found = look(cache)
    assert not found.duplicates and [r.own for r in only(found).revisions] == [0, 0]


def test_what_the_system_refuses_is_said_and_the_rest_shown() -> None:
    files = cached("linux", SMALL)
    other = f"{POSIX}/models--acme--locked"
    files[f"{other}/snapshots"] = {"unknown": "EACCES: Permission denied"}
    found = probe_inventory(machine("linux", files))
    assert [(r.repo, r.health, bool(r.problem)) for r in found.repos] == [
        ("acme/locked", "unknown", True),
        ("acme/tiny", "verified", False),
    ]
    assert found.exit_code == 3


@pytest.mark.parametrize("damaged", [False, True])
def test_a_shared_cache_of_another_user(damaged: bool) -> None:
    """The client writes its list of files with mode 0600; what blobs are named after is there for everybody."""
    files = cached("linux", SMALL)
    files[f"{POSIX}/models--acme--tiny/trees/{COMMIT}.json"] = {"size": 700, "ranges": []}
    name = "vae/config.json"
    if damaged:
        files[f"{POSIX}/models--acme--tiny/blobs/{etag(name, SMALL[name].encode())}"] = {"text": "[]"}
    found = probe_inventory(machine("linux", files))
    assert only(found).health == ("damaged" if damaged else "unknown")
    assert only(found).problem == "" and "that you may read" in only(found).live[0].reason


@pytest.mark.parametrize("os_name", ["linux", "windows"])
@pytest.mark.parametrize("links", [True, False])
def test_recorded_machines_of_both_kinds(os_name: str, links: bool) -> None:
    world = machine(os_name, cached(os_name, SMALL, links=links))
    found = probe_inventory(world, "acme/tiny")
    assert (only(found).health, found.caches[0].why) == ("verified", "default")
    assert names(world) == ["acme/tiny"]


def test_a_tree_that_misleads_is_looked_at_all_the_same(tmp_path: Path) -> None:
    root = tmp_path / "hub"
    snapshot = root / "models--loop--x" / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (snapshot / "self").symlink_to("self")
    (snapshot / "up").symlink_to("..")
    (root / "models--circle--x").symlink_to("models--circle--x")
    (root / "models--file--x").write_text("no folder")
    deep = root / "models--deep--x" / "snapshots" / COMMIT
    deep.joinpath(*["d"] * 40).mkdir(parents=True)
    (root / "models--evil--\x1b[2J\nname" / "refs").mkdir(parents=True)
    world = LiveWorld({"HF_HUB_CACHE": str(root)}, cwd=str(tmp_path), home=str(tmp_path / "home"))
    found = {repo.repo: repo for repo in probe_inventory(world, deep=True).repos}
    assert {fault.name for fault in found["loop/x"].live[0].faults} == {"self", "up"}
    assert found["circle/x"].problem and found["file/x"].problem
    assert found["deep/x"].partly and "evil/\x1b[2J\nname" in found
