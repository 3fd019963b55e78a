"""What an inventory found broken, as the rules and repairs of the hub look at it: without a config."""

from __future__ import annotations

from collections.abc import Iterator

from ...model import Hub, HubRepo, Run, Unknown
from ...model.caches import CachedRepo, Inventory, Revision
from ...model.recipe import Recipe
from ..world import World
from .caches import Use, offline
from .content import Unreadable, kind_of
from .repos import Look, look_cached


def run_of(repo: str) -> Run:
    """The least of a run that the rules of the hub need: which model it names."""
    return Run("", repo, "", 0, "lora", "", "", recipe=Recipe(base_model=repo))


def probe_faults(world: World, inventory: Inventory) -> Hub | Unknown:
    """The model `inventory.repo` in every cache that holds it. Each fault is of a file that is asked for by name."""
    run = run_of(inventory.repo or "")
    caches = tuple(cache.path for cache in inventory.caches)
    copies = [world.join(repo.folder, "snapshots", r.commit) for repo in inventory.repos for r in repo.revisions]
    try:
        found = [
            look_cached(Look(world, run, caches, copies, hashed), uses)
            for cache in inventory.caches
            for repo in cache.repos
            if repo.kind == "model" and not repo.problem
            for uses, hashed in _looks(world, cache.path, repo, inventory.deep)
        ]
    except Unreadable as error:
        return Unknown(str(error))
    return Hub(caches, tuple(_once(found)), offline(world.system))


def _looks(
    world: World, cache: str, repo: CachedRepo, deep: bool
) -> Iterator[tuple[list[Use], dict[str, str | Unknown] | None]]:
    """What is looked at: the revision that the branch main leads to, and the others in use that are broken."""
    served = next((r for r in repo.live if "main" in r.refs), None)
    first = served or next(iter(repo.live), None)
    yield _uses(cache, repo, None, first), _hashed(world, first) if deep else None
    for revision in repo.live:
        if revision is not served and revision.faults:
            yield _uses(cache, repo, revision.commit, revision), _hashed(world, revision) if deep else None


def _uses(cache: str, repo: CachedRepo, commit: str | None, revision: Revision | None) -> list[Use]:
    insides = ["", *(fault.name for fault in revision.faults)] if revision is not None else [""]
    return [Use(repo.repo, cache, commit, "base_model", inside) for inside in insides]


def _hashed(world: World, revision: Revision | None) -> dict[str, str | Unknown]:
    """The digests of the damaged files, which the inventory has read already."""
    bad = [f for f in revision.faults if f.state == "wrong-content" and f.digest] if revision is not None else []
    digests = world.digests({f.blob or f.path: kind_of(f.digest or "") for f in bad})
    return {f.path: digests[f.blob or f.path] for f in bad}


def _once(repos: list[HubRepo]) -> Iterator[HubRepo]:
    """A revision that two looks led to is looked at once."""
    seen: set[tuple[str, str | None]] = set()
    for repo in repos:
        if (repo.folder, repo.commit) not in seen:
            seen.add((repo.folder, repo.commit))
            yield repo
