"""An inventory of the hub caches as one JSON object, schema zdoctor.cache/1. Changes are additive only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypedDict

from ..doctor.model.caches import Cache, CachedRepo, Health, Inventory, Kind, Revision, Waste, WasteKind
from ..doctor.model.hub import FileState
from .json import Head, dumps, head, shown
from .waste import advice, twins


class Fault(TypedDict):
    name: str
    path: str
    state: FileState
    detail: str
    size: int | None
    actual_size: int | None
    digest: str | None


class ShownRevision(TypedDict):
    commit: str
    refs: Sequence[str]
    health: Health
    reason: str | None
    files: int
    size: int
    own: int
    absent: int
    unread: int
    unread_bytes: int
    faults: list[Fault]


class ShownWaste(TypedDict):
    kind: WasteKind
    paths: Sequence[str]
    size: int
    id: str | None
    keep: bool
    advice: str
    command: str | None


class BadRef(TypedDict):
    ref: str
    content: str


class ShownRepo(TypedDict):
    kind: Kind
    repo: str
    folder: str
    health: Health
    problem: str | None
    size: int
    partly: bool
    bad_refs: list[BadRef]
    revisions: list[ShownRevision]
    waste: list[ShownWaste]


class ShownCache(TypedDict):
    path: str
    active: bool
    why: str
    problem: str | None
    size: int
    free: int | None
    repos: list[ShownRepo]
    waste: list[ShownWaste]


class ShownDuplicate(TypedDict):
    digest: str
    size: int
    waste: int
    paths: Sequence[str]


class Twin(TypedDict):
    repo: str
    cache: str
    size: int
    command: str


class CacheDocument(Head):
    """What the hub caches hold; all sizes in bytes, measured."""

    schema: Literal["zdoctor.cache/1"]
    repo: str | None
    deep: bool
    caches: list[ShownCache]
    duplicates: list[ShownDuplicate]
    twins: list[Twin]


def render(inventory: Inventory, version: str = "") -> str:
    """One JSON object, one trailing newline."""
    return dumps(as_data(inventory, version))


def as_data(inventory: Inventory, version: str) -> CacheDocument:
    return {
        "schema": "zdoctor.cache/1",
        **head(version, inventory.exit_code),
        "repo": inventory.repo,
        "deep": inventory.deep,
        "caches": [_cache(cache, active=number == 0) for number, cache in enumerate(inventory.caches)],
        "duplicates": [shown(ShownDuplicate, found) for found in inventory.duplicates],
        "twins": [shown(Twin, repo, cache=cache.path, command=command) for repo, cache, command in twins(inventory)],
    }


def _cache(cache: Cache, *, active: bool) -> ShownCache:
    return shown(
        ShownCache,
        cache,
        active=active,
        problem=cache.problem or None,
        repos=[_repo(repo, cache, active) for repo in cache.repos],
        waste=[_waste(waste, cache, None, active) for waste in cache.waste],
    )


def _repo(repo: CachedRepo, cache: Cache, active: bool) -> ShownRepo:
    return shown(
        ShownRepo,
        repo,
        problem=repo.problem or None,
        bad_refs=[{"ref": name, "content": content} for name, content in repo.bad_refs],
        revisions=[_revision(revision) for revision in repo.revisions],
        waste=[_waste(waste, cache, repo, active) for waste in repo.waste],
    )


def _revision(revision: Revision) -> ShownRevision:
    faults = [shown(Fault, fault) for fault in revision.faults]
    return shown(ShownRevision, revision, reason=revision.reason or None, faults=faults)


def _waste(waste: Waste, cache: Cache, repo: CachedRepo | None, active: bool) -> ShownWaste:
    said = advice(waste, cache, repo, active)
    command = said.command or None
    return shown(ShownWaste, waste, id=waste.id or None, keep=said.keep, advice=said.text, command=command)
