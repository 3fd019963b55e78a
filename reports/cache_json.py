"""An inventory of the hub caches as one JSON object, schema zdoctor.cache/1. Changes are additive only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypedDict

from ..doctor.model import HubFile
from ..doctor.model.caches import Cache, CachedRepo, Health, Inventory, Kind, Revision, Waste, WasteKind
from ..doctor.model.hub import FileState
from .json import Head, dumps, head
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
        "duplicates": [
            {"digest": found.digest, "size": found.size, "waste": found.waste, "paths": found.paths}
            for found in inventory.duplicates
        ],
        "twins": [
            {"repo": repo.repo, "cache": cache.path, "size": repo.size, "command": command}
            for repo, cache, command in twins(inventory)
        ],
    }


def _cache(cache: Cache, *, active: bool) -> ShownCache:
    return {
        "path": cache.path,
        "active": active,
        "why": cache.why,
        "problem": cache.problem or None,
        "size": cache.size,
        "free": cache.free,
        "repos": [_repo(repo, cache, active) for repo in cache.repos],
        "waste": [_waste(waste, cache, None, active) for waste in cache.waste],
    }


def _repo(repo: CachedRepo, cache: Cache, active: bool) -> ShownRepo:
    return {
        "kind": repo.kind,
        "repo": repo.repo,
        "folder": repo.folder,
        "health": repo.health,
        "problem": repo.problem or None,
        "size": repo.size,
        "partly": repo.partly,
        "bad_refs": [{"ref": name, "content": content} for name, content in repo.bad_refs],
        "revisions": [_revision(revision) for revision in repo.revisions],
        "waste": [_waste(waste, cache, repo, active) for waste in repo.waste],
    }


def _revision(revision: Revision) -> ShownRevision:
    return {
        "commit": revision.commit,
        "refs": revision.refs,
        "health": revision.health,
        "reason": revision.reason or None,
        "files": revision.files,
        "size": revision.size,
        "own": revision.own,
        "absent": revision.absent,
        "unread": revision.unread,
        "unread_bytes": revision.unread_bytes,
        "faults": [_fault(fault) for fault in revision.faults],
    }


def _fault(file: HubFile) -> Fault:
    return {
        "name": file.name,
        "path": file.path,
        "state": file.state,
        "detail": file.detail,
        "size": file.size,
        "actual_size": file.actual_size,
        "digest": file.digest,
    }


def _waste(waste: Waste, cache: Cache, repo: CachedRepo | None, active: bool) -> ShownWaste:
    said = advice(waste, cache, repo, active)
    return {
        "kind": waste.kind,
        "paths": waste.paths,
        "size": waste.size,
        "id": waste.id or None,
        "keep": said.keep,
        "advice": said.text,
        "command": said.command or None,
    }
