"""`zdoctor extract`: a cached repository copied to a plain folder, each file verified.

Which files, from where, verified by what is decided here; the writer does the copying.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .. import apply as writer
from ..errors import UserError, not_cached
from ..model import CopyItem, ExtractFiles, Fix, HubFile, HubRepo, Plan, Unknown
from ..model.amounts import amount
from ..model.plans import note_of
from ..model.said import joined
from ..probe.hub import inventory, probe_hub
from ..probe.hub.caches import COMMIT, caches, repo_folder
from ..probe.hub.faults import run_of
from ..probe.live import LiveWorld
from ..probe.world import Stat, World
from ..progress import open_progress
from ..state import state_folder
from . import console
from .config_argument import comma_separated
from .repair import recover

_SOURCE = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w./+-]+))?")
_PREFIX = re.compile(r"[0-9a-f]{7,40}")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source", metavar="REPO[@REVISION]", help="org/name, as it is cached; @ a branch, tag, commit"
    )
    parser.add_argument("target", metavar="DEST", help="a folder that does not exist yet")
    parser.add_argument(
        "--only",
        metavar="PARTS",
        type=lambda text: [part.rstrip("/") for part in comma_separated(text)],
        default=[],
        help="only these folders or files of the repository (transformer,vae)",
    )
    parser.add_argument("--model-only", action="store_true", help="leave out what no trainer loads")
    parser.add_argument(
        "--hardlink",
        action="store_true",
        help="no copies: second names for the cache's own files; whoever writes into one changes the cache as well",
    )


def run(options: argparse.Namespace) -> int:
    recover()
    with open_progress() as progress:
        progress.doing(f"looking for {options.source}")
        done = extract(
            options.source,
            options.target,
            only=options.only,
            model_only=options.model_only,
            hardlink=options.hardlink,
            progress=progress.bytes_done,
        )
    lies = f"{options.source} lies in {options.target}{'' if done.unverified else ', every file verified'}."
    lines = [joined(" ", [lies, f"Take it back: zdoctor undo {done.id}"])]
    if done.unverified:
        files, they = ("1 file", "it") if done.unverified == 1 else (f"{done.unverified} files", "they")
        lines.append(f"{files} could not be verified: nothing on this machine says what {they} should hold.")
    if done.adopted:
        lines.append(
            f"{amount(done.adopted)} of it lay finished there from an earlier run; {amount(done.copied)} were added."
        )
    if options.hardlink:
        lines.append("These are the cache's own files under second names: copy one before anything writes into it.")
    for line in lines:
        console.say(line)
    return 0


def extract(source: str, target: str, *, progress: Any = None, **how: Any) -> writer.Applied:
    """Copy a cached repository to a new folder, as `plan_extraction` says, each file verified.

    What an earlier extraction to `target` had finished is taken as it is.
    """
    plan = plan_extraction(LiveWorld(), source, target, **how)
    return writer.apply(plan, binding=writer.bind(plan), state=state_folder(), progress=progress)


def plan_extraction(
    world: World,
    source: str,
    target: str,
    *,
    only: Sequence[str] = (),
    model_only: bool = False,
    hardlink: bool = False,
) -> Plan:
    """The plan that copies `source` from a hub cache of this machine to `target`.

    `source` is "org/name" or "org/name@revision": a branch or tag, a commit or its first 7 digits or more. Every file
    with a sound copy here is taken, from wherever that lies; of `only` these folders and files at the top of the
    repository; with `model_only` only what trainers load. `hardlink`: no copies, but second names.
    Raises UserError when nothing is cached, or when a file of the model is damaged and has no other copy.
    """
    repo = _repository(world, source)
    files = _chosen(repo, only)
    bad = [file for file in files if file.needed and _origin(file) is None]
    if bad:
        names = ", ".join(file.name for file in bad[:3])
        more = f" and {len(bad) - 3} more" if len(bad) > 3 else ""
        raise UserError(
            f"{repo.repo} is not whole in the cache {repo.cache}: {names}{more} ({bad[0].state}).",
            f"zdoctor cache {repo.repo} --fix --apply repairs it, file by file.",
        )
    items = tuple(_items(files, model_only))
    if not items:
        raise UserError(f"nothing of {repo.repo} is in the cache {repo.cache}.", f"hf download {repo.repo}")
    items += () if hardlink else note_of(repo)  # linked files are older than they look
    verb = "hard-link" if hardlink else "copy"
    title = f"{verb} {repo.repo} at {(repo.commit or '')[:8]} to {target}"
    try:
        folder = str(Path(target).expanduser().absolute())
    except RuntimeError:
        raise UserError(f"{target}: there is no such user.") from None
    return Plan(source, (Fix(title, (ExtractFiles(folder, items, hardlink),), order=1),))


def _chosen(repo: HubRepo, only: Sequence[str]) -> tuple[HubFile, ...]:
    tops = {file.name.partition("/")[0] for file in repo.files}
    unknown = [name for name in only if name not in tops]
    if unknown:
        raise UserError(f"{repo.repo} has no {unknown[0]}.", f"It has {', '.join(sorted(tops))}.")
    return tuple(file for file in repo.files if not only or file.name.partition("/")[0] in only)


def _repository(world: World, source: str) -> HubRepo:
    match = _SOURCE.fullmatch(source)
    if match is None:
        raise UserError(f"{source} names no repository.", "zdoctor extract org/name DEST, or org/name@REVISION.")
    repo, revision = match["repo"], match["revision"]
    known: list[str] = []
    for cache in caches(world):
        folder = repo_folder(world, cache, repo)
        commits = _commits(world, folder, revision, known) if revision else [None]
        if len(commits) > 1:
            raise UserError(f"{revision} stands for {len(commits)} commits in {cache}.", "Give more of its digits.")
        for commit in commits:
            hub = probe_hub(world, run_of(world.join(folder, "snapshots", commit) if commit else repo))
            if isinstance(hub, Unknown):
                raise UserError(f"the cache {cache} cannot be read: {hub.reason}.")
            for found in hub.repos:
                if found.repo == repo and found.snapshot is not None and commit in (None, found.commit):
                    return found
    if known:
        raise UserError(
            f"{repo} is in a hub cache of this machine, but not at {revision}.",
            f"What is there: {', '.join(dict.fromkeys(known))}.",
        )
    raise not_cached(repo, inventory.names(world), f"hf download {repo}")


def _commits(world: World, folder: str, revision: str, known: list[str]) -> list[str]:
    """The cached commits that `revision` may stand for: what a ref says comes before what digits may mean.

    Adds to `known` what a user could have named instead.
    """
    cached = [name for name in world.names_in(world.join(folder, "snapshots")) if COMMIT.fullmatch(name)]
    refs = dict(_refs(world, world.join(folder, "refs")))
    known += [ref for ref, commit in refs.items() if commit in cached]
    known += [commit[:12] for commit in cached]
    if refs.get(revision) in cached:
        return [refs[revision]]
    return [commit for commit in cached if _PREFIX.fullmatch(revision) and commit.startswith(revision)]


def _refs(world: World, folder: str) -> Iterator[tuple[str, str]]:
    """Branches, tags and pull requests ("refs/pr/1") with the commits that they name."""
    for name, stat in world.walk(folder, 8):
        text = world.read(world.below(folder, name), 0, 64) if isinstance(stat, Stat) else stat
        if isinstance(text, bytes) and COMMIT.fullmatch(text.decode("latin-1").strip()):
            yield name, text.decode("latin-1").strip()


def _origin(file: HubFile) -> str | None:
    return (file.blob or file.path) if file.state == "ok" else file.good_copy


def _items(files: Sequence[HubFile], model_only: bool) -> list[CopyItem]:
    items = []
    for file in files:
        origin = _origin(file)
        size = file.size if file.size is not None else file.actual_size
        if origin is not None and size is not None and (file.needed or not model_only):
            items.append(CopyItem(origin, file.name, size, file.digest))
    return items
