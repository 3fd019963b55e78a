"""The hub caches of a machine and the repositories in them that a run will load from. Looks, never writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import product

from ...model import Hub, HubRepo, Run, Unknown
from ...model.record import replace
from ..world import World
from .caches import Use, apart, caches, model_folders, named_models, offline, uses
from .content import Unreadable, kind_of
from .local import claimed, local_uses, look_local
from .repos import Look, look_cached
from .token import token_of

__all__ = ["claimed", "probe_hub"]


def probe_hub(world: World, run: Run, *, deep: bool = False) -> Hub | Unknown:
    """The state of every cached file the run needs.

    Always: layout, sizes, content addresses of files up to 1 MiB, and the headers of safetensors files.
    `deep` also reads the needed files that are larger, and compares their digests. Never raises: what cannot be
    looked at makes the answer Unknown.
    A repository of which nothing is in the run's cache is looked for in the other caches too.
    """
    hub = _look_around(world, run, None)
    if not deep or isinstance(hub, Unknown):
        return hub
    unread = [
        (file.path, file.digest)
        for repo in hub.repos
        for file in repo.files
        if repo.used_by and file.needed and file.state == "ok" and file.digest is not None and not file.verified
    ]
    hashed = world.digests({path: kind_of(digest) for path, digest in unread})
    return _look_around(world, run, hashed)  # what is wrong is looked for elsewhere, and verified there


def _look_around(world: World, run: Run, hashed: Mapping[str, str | Unknown] | None) -> Hub | Unknown:
    found = caches(world)
    groups: dict[tuple[str, str, str | None], list[Use]] = {}
    for use in (*uses(world, run, found[0]), *local_uses(world, run)):
        groups.setdefault((use.repo, use.cache, use.commit), []).append(use)
    named = [cache for _, cache, _ in groups if cache]
    everywhere = tuple(dict.fromkeys((*found, *named)))
    # plain folders that the run names may hold a good copy of a cached file
    plain = [world.absolute(value) for key, value in named_models(run) if key != "adapter"]
    plain = [folder for folder in plain if world.is_folder(folder)]
    look = Look(world, run, everywhere, plain, hashed)

    def at(uses: Sequence[Use]) -> HubRepo:
        return look_cached(look, uses) if uses[0].cache else look_local(look, uses)

    def spare(uses: Sequence[Use]) -> Iterator[HubRepo]:
        """A repository that the run does not load from; none where nothing of it is there."""
        with suppress(Unreadable):
            repo = at(uses)
            if repo.snapshots:
                yield replace(repo, used_by=())

    try:
        repos = [at(group) for group in groups.values()]
    except Unreadable as error:
        return Unknown(str(error))
    for repo, group in zip(tuple(repos), groups.values(), strict=True):
        if not repo.snapshots and repo.ref_state != "pinned":
            repos += [other for cache in found[1:] for other in spare([replace(use, cache=cache) for use in group])]
    known = {(repo.repo, repo.cache) for repo in repos}
    for name, cache in _named_alike(world, plain, found):
        if (name, cache) not in known:
            repos += spare([Use(name, cache, None, "base_model", "")])
    for name in sorted({*apart(run).values()} - {repo.repo for repo in repos}):
        repos += (other for cache in found for other in spare([Use(name, cache, None, "base_model", "")]))
    return Hub(everywhere, tuple(repos), offline(world.system), world.packages().get("hf_xet"), token_of(world, run))


def _named_alike(world: World, folders: Sequence[str], caches: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Cached repositories whose name occurs in that of a plain model folder: it may be a copy of theirs."""
    for folder, cache in product(folders, caches):
        name = world.name(folder.rstrip("/\\")).lower()
        for entry in model_folders(world, cache):
            owner, _, repo = entry.removeprefix("models--").partition("--")
            if repo and repo.lower() in name:
                yield f"{owner}/{repo}", cache
