"""What lies in a hub cache without being of use to anyone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ...model.caches import CachedRepo, Waste
from ..world import Stat, World
from .caches import Identity
from .content import digest_of_blob, known
from .repos import ALIVE_NS

MOST_ENTRIES = 300_000
DEEPEST = 16
QUARANTINE = ".zdoctor-quarantine"
STORE_MARK = ".huggingface-shared-blobs"

Tree = dict[str, Stat]


def tree_of(world: World, folder: str) -> tuple[Tree, bool]:
    """Everything below a folder by path, links not followed; whether there was more than is looked at."""
    tree: Tree = {}
    for name, stat in world.walk(folder, DEEPEST):
        if len(tree) >= MOST_ENTRIES or name.count("/") >= DEEPEST:
            return tree, True
        tree[world.below(folder, name)] = known(stat)
    return tree, False


def size_of(world: World, tree: Tree, files: Iterable[str]) -> int:
    """The bytes of all the files, hard links and repeated paths counted once."""
    contents: dict[Identity, int] = {}
    for path in files:
        stat = tree[path] if path in tree else world.stat(path)
        if isinstance(stat, Stat) and stat.kind == "file":
            contents[stat.identity or path] = stat.size
    return sum(contents.values())


def left_in(
    world: World, repo: CachedRepo, tree: Tree, awaited: set[str], partials: Sequence[tuple[str, int, bool]]
) -> Iterator[Waste]:
    """The waste in one repository. `awaited` are the content addresses that it lacks, `partials` as in HubRepo."""
    whole = [r for r in repo.live if r.health not in ("damaged", "incomplete")]
    for revision in repo.revisions:
        if revision not in repo.live:
            path = world.join(repo.folder, "snapshots", revision.commit)
            last = not whole and revision.health not in ("damaged", "incomplete")
            yield Waste("detached", repo.repo, (path,), revision.own, revision.commit, revision.health, last)
    orphans = tuple(_orphans(world, repo.folder, tree, awaited))
    if orphans:
        behind = [world.target(path, tree[path].target) if tree[path].kind == "link" else path for path in orphans]
        yield Waste("orphan", repo.repo, orphans, size_of(world, tree, behind))
    for alive in (False, True):
        found = [(path, size) for path, size, running in partials if running == alive]
        if found:
            size = sum(size for _, size in found)
            yield Waste("running" if alive else "left-over", repo.repo, tuple(path for path, _ in found), size)
    yield from _quarantine(world, repo.repo, repo.folder, tree)


def store_waste(world: World, store: str, tree: Tree, used: set[str]) -> Iterator[Waste]:
    """Payloads of a cache's shared store that no repository links to, and what repairs put aside there.

    The client deletes only those beside which it noted who uses them (.refs); the others are leaked.
    """
    if world.join(store, STORE_MARK) not in tree:
        return
    now = world.now_ns()
    free = [
        path
        for path, stat in tree.items()
        if stat.kind == "file"
        and len(world.name(path)) == 64
        and world.parent(world.parent(path)) == store
        and path not in used
        and now - stat.modified_ns >= ALIVE_NS
    ]
    noted = tuple(path for path in free if f"{path}.refs" in tree)
    leaked = tuple(path for path in free if f"{path}.refs" not in tree)
    yield from (Waste("unreferenced", "", noted, size_of(world, tree, noted)),) if noted else ()
    yield from (Waste("leaked", "", leaked, size_of(world, tree, leaked)),) if leaked else ()
    yield from _quarantine(world, "", store, tree)


def _orphans(world: World, folder: str, tree: Tree, awaited: set[str]) -> Iterator[str]:
    """Blobs that no snapshot links to; one that a broken file of a snapshot waits for is a cure and no waste."""
    blobs, snapshots = world.join(folder, "blobs"), world.join(folder, "snapshots") + world.flavour.sep
    used = {
        world.target(path, stat.target)
        for path, stat in tree.items()
        if stat.kind == "link" and path.startswith(snapshots)
    }
    now = world.now_ns()
    for path, stat in tree.items():
        name = world.name(path)
        is_blob = world.parent(path) == blobs and stat.kind in ("file", "link") and digest_of_blob(name) is not None
        settled = now - stat.modified_ns >= ALIVE_NS  # a client makes the link a moment later
        if is_blob and path not in used and name not in awaited and settled:
            yield path


def _quarantine(world: World, repo: str, folder: str, tree: Tree) -> Iterator[Waste]:
    """What repairs put aside, repair by repair."""
    top = world.join(folder, QUARANTINE) + world.flavour.sep
    repairs: dict[str, list[str]] = {}
    for path, stat in tree.items():
        if path.startswith(top):
            held = repairs.setdefault(path[len(top) :].partition(world.flavour.sep)[0], [])
            held += [path] if stat.kind == "file" else []
    for id, held in repairs.items():
        yield Waste("quarantine", repo, (top + id,), size_of(world, tree, held), id)
