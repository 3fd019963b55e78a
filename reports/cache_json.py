"""An inventory of the hub caches as one JSON object, schema zdoctor.cache/1. Changes are additive only."""

from __future__ import annotations

from typing import Any

from ..doctor.model import HubFile
from ..doctor.model.caches import Cache, CachedRepo, Duplicate, Inventory, Revision, Waste
from .json import dumps
from .waste import advice, twins

SCHEMA = "zdoctor.cache/1"


def render(inventory: Inventory) -> str:
    """One JSON object, one trailing newline."""
    return dumps(as_data(inventory))


def as_data(inventory: Inventory) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "ok": inventory.exit_code == 0,
        "repo": inventory.repo,
        "deep": inventory.deep,
        "caches": [_cache(cache, active=number == 0) for number, cache in enumerate(inventory.caches)],
        "duplicates": [_duplicate(duplicate) for duplicate in inventory.duplicates],
        "twins": [
            {"repo": repo.repo, "cache": cache.path, "size": repo.size, "command": command}
            for repo, cache, command in twins(inventory)
        ],
    }


def _cache(cache: Cache, *, active: bool) -> dict[str, Any]:
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


def _repo(repo: CachedRepo, cache: Cache, active: bool) -> dict[str, Any]:
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


def _revision(revision: Revision) -> dict[str, Any]:
    return {
        "commit": revision.commit,
        "refs": list(revision.refs),
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


def _fault(fault: HubFile) -> dict[str, Any]:
    return {
        "name": fault.name,
        "path": fault.path,
        "state": fault.state,
        "detail": fault.detail,
        "size": fault.size,
        "actual_size": fault.actual_size,
        "digest": fault.digest,
    }


def _waste(waste: Waste, cache: Cache, repo: CachedRepo | None, active: bool) -> dict[str, Any]:
    said = advice(waste, cache, repo, active)
    return {
        "kind": waste.kind,
        "paths": list(waste.paths),
        "size": waste.size,
        "id": waste.id or None,
        "keep": said.keep,
        "advice": said.text,
        "command": said.command or None,
    }


def _duplicate(duplicate: Duplicate) -> dict[str, Any]:
    return {
        "digest": duplicate.digest,
        "size": duplicate.size,
        "waste": duplicate.waste,
        "paths": list(duplicate.paths),
    }
