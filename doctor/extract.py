"""A cached repository as a plain folder: which files, from where, verified by what. The writer does the copying."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from .errors import UserError
from .model import CopyItem, ExtractFiles, Fix, Hub, HubFile, HubRepo, Plan, Run, Unknown
from .probe.hub import probe_hub
from .probe.hub.caches import caches, repo_folder
from .probe.world import Paths, World

_SOURCE = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<commit>[0-9a-f]{40}))?")


def plan_extraction(world: World, source: str, target: str, *, model_only: bool = False) -> Plan:
    """The plan that copies `source` ("org/name" or "org/name@commit") from a hub cache of this machine to `target`.

    Every file with a sound copy here is taken, from wherever that lies; with `model_only` only what trainers load.
    Raises UserError when nothing is cached, or when a file of the model is damaged and has no other copy.
    """
    repo = _repository(world, source)
    bad = [file for file in repo.files if file.needed and _origin(file) is None]
    if bad:
        names = ", ".join(file.name for file in bad[:3])
        more = f" and {len(bad) - 3} more" if len(bad) > 3 else ""
        raise UserError(
            f"{repo.repo} is not whole in the cache {repo.cache}: {names}{more} ({bad[0].state}).",
            f"hf download {repo.repo} fetches what is missing.",
        )
    items = tuple(_items(repo, model_only))
    if not items:
        raise UserError(f"nothing of {repo.repo} is in the cache {repo.cache}.", f"hf download {repo.repo}")
    title = f"copy {repo.repo} at {(repo.commit or '')[:8]} to {target}"
    folder = str(Path(target).expanduser().absolute())
    return Plan(source, (Fix(title, (ExtractFiles(folder, items),), order=1),))


def _repository(world: World, source: str) -> HubRepo:
    match = _SOURCE.fullmatch(source)
    if match is None:
        raise UserError(
            f"{source} names no repository.", "zdoctor extract org/name DEST, or org/name@COMMIT with all 40 digits."
        )
    repo, commit = match["repo"], match["commit"]
    paths = Paths(world.system)
    found: Sequence[HubRepo] = ()
    for cache in caches(world):
        named = paths.join(repo_folder(paths, cache, repo), "snapshots", commit) if commit else repo
        hub = probe_hub(world, _run(named))
        if isinstance(hub, Unknown):
            raise UserError(f"the cache {cache} cannot be read: {hub.reason}.")
        found = _with_files(hub, repo, commit)
        if found:
            return found[0]
    raise UserError(f"{source} is in no hub cache of this machine.", f"hf download {repo}")


def _with_files(hub: Hub, repo: str, commit: str | None) -> list[HubRepo]:
    return [r for r in hub.repos if r.repo == repo and r.snapshot is not None and commit in (None, r.commit)]


def _run(base_model: str) -> Run:
    """What the hub probe needs to know of a run: only which model it names."""
    return Run("ai-toolkit", "", "", 0, "lora", "", "", "zimage", base_model=base_model)


def _origin(file: HubFile) -> str | None:
    return (file.blob or file.path) if file.state == "ok" else file.good_copy


def _items(repo: HubRepo, model_only: bool) -> list[CopyItem]:
    items = []
    for file in repo.files:
        origin = _origin(file)
        size = file.size if file.size is not None else file.actual_size
        if origin is None or size is None or (model_only and not file.needed):
            continue
        items.append(CopyItem(origin, file.name, size, file.digest))
    return items
