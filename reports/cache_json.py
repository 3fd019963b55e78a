"""An inventory of the hub caches as one JSON object, schema zdoctor.cache/1. Changes are additive only."""

from __future__ import annotations

from typing import Any

from ..doctor.model.caches import Cache, CachedRepo, Inventory, Revision, Waste
from .json import dumps, picked
from .waste import advice, twins

SCHEMA = "zdoctor.cache/1"


def render(inventory: Inventory) -> str:
    """One JSON object, one trailing newline."""
    return dumps(as_data(inventory))


def as_data(inventory: Inventory) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "ok": inventory.exit_code == 0,
        **picked(inventory, "repo", "deep"),
        "caches": [_cache(cache, active=number == 0) for number, cache in enumerate(inventory.caches)],
        "duplicates": [picked(found, "digest", "size", "waste", "paths") for found in inventory.duplicates],
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
        **picked(cache, "size", "free"),
        "repos": [_repo(repo, cache, active) for repo in cache.repos],
        "waste": [_waste(waste, cache, None, active) for waste in cache.waste],
    }


def _repo(repo: CachedRepo, cache: Cache, active: bool) -> dict[str, Any]:
    return {
        **picked(repo, "kind", "repo", "folder", "health"),
        "problem": repo.problem or None,
        **picked(repo, "size", "partly"),
        "bad_refs": [{"ref": name, "content": content} for name, content in repo.bad_refs],
        "revisions": [_revision(revision) for revision in repo.revisions],
        "waste": [_waste(waste, cache, repo, active) for waste in repo.waste],
    }


def _revision(revision: Revision) -> dict[str, Any]:
    faults = [
        picked(fault, "name", "path", "state", "detail", "size", "actual_size", "digest") for fault in revision.faults
    ]
    return {
        **picked(revision, "commit", "refs", "health"),
        "reason": revision.reason or None,
        **picked(revision, "files", "size", "own", "absent", "unread", "unread_bytes"),
        "faults": faults,
    }


def _waste(waste: Waste, cache: Cache, repo: CachedRepo | None, active: bool) -> dict[str, Any]:
    said = advice(waste, cache, repo, active)
    return {
        **picked(waste, "kind", "paths", "size"),
        "id": waste.id or None,
        "keep": said.keep,
        "advice": said.text,
        "command": said.command or None,
    }
