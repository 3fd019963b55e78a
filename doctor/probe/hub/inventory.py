"""Every hub cache of a machine: what is in it, whether it is whole, and what takes space without being of use.

Linear in the number of files; at most `MOST_ENTRIES` are looked at in one repository, links to folders not followed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import cast

from ...model import HubFile, Unknown
from ...model.caches import Cache, CachedRepo, Duplicate, Inventory, Kind, Revision, Waste
from ...model.record import dataclass, field, replace
from ..world import Mount, World
from .caches import Identity, identity, origins
from .content import Unreadable, digest_of_blob, kind_of, known, manifest
from .listings import MARK, MOST_FILES, Listing, listings_of, needed
from .repos import files_of, partials_of
from .waste import Tree, left_in, size_of, store_waste, tree_of

MOST_READ = 2000  # more small files are hashed only in a deep look, or in one at this repository
WORTH = 1 << 20  # smaller duplicates are not worth a line
_FOLDER = re.compile(r"(model|dataset|space|kernel)s--(.+)", re.S)
_BAD = ("wrong-link", "wrong-size", "wrong-content", "broken-structure")

Hashed = Mapping[str, str | Unknown]


@dataclass(frozen=True)
class RepoLook:
    """One repository with all that was seen of it."""

    summary: CachedRepo
    tree: Tree = field(default_factory=dict)
    files: Mapping[str, tuple[HubFile, ...]] = field(default_factory=dict)  # by commit
    payloads: frozenset[str] = frozenset()  # the files of the shared store that its blobs lead to


def names(world: World) -> list[str]:
    """The repositories in all caches of this machine, as `zdoctor cache REPO` takes them."""
    return list(dict.fromkeys(r.repo for cache in origins(world) for r in _repositories(world, cache, None)))


def probe_inventory(world: World, repo: str | None = None, *, deep: bool = False) -> Inventory:
    """All hub caches, or what they hold of the repository `repo` ("org/name").

    Always: layout, sizes, content addresses of small files, headers of safetensors files. Small files of datasets
    and of very large repositories are read only when asked for by name. `deep` also reads the large files whose
    digest is known. Never raises: what cannot be looked at is said in `problem`.
    """
    caches = origins(world)
    looks = _look(world, caches, repo, deep, {})
    if deep:
        files = [file for look in _all(looks) for found in look.files.values() for file in found]
        unread = [f for f in files if f.state == "ok" and f.digest is not None and not f.verified]
        digests = world.digests({f.blob or f.path: kind_of(f.digest or "") for f in unread})
        looks = _look(world, caches, repo, deep, {f.path: digests[f.blob or f.path] for f in unread})
    return Inventory(
        tuple(_cache(world, path, why, looks[path], repo) for path, why in caches.items()),
        tuple(_duplicates(world, _all(looks))),
        repo,
        deep,
    )


def _all(looks: Mapping[str, list[RepoLook]]) -> list[RepoLook]:
    return [look for group in looks.values() for look in group]


def _look(
    world: World, caches: Iterable[str], repo: str | None, deep: bool, hashed: Hashed
) -> dict[str, list[RepoLook]]:
    asked = deep or repo is not None
    return {
        cache: [_look_at(world, cache, one, asked, hashed) for one in _repositories(world, cache, repo)]
        for cache in caches
    }


def _repositories(world: World, cache: str, repo: str | None) -> Iterator[CachedRepo]:
    for entry in world.names_in(cache):
        match = _FOLDER.fullmatch(entry)
        name = match[2].replace("--", "/") if match is not None else ""
        if match is not None and (repo is None or name == repo):
            yield CachedRepo(cast(Kind, match[1]), name, world.join(cache, entry))


def _look_at(world: World, cache: str, repo: CachedRepo, asked: bool, hashed: Hashed) -> RepoLook:
    """Everything about one repository; one that the system does not let us look at says so in its `problem`."""
    try:
        return _seen(world, cache, repo, asked, hashed)
    except Unreadable as error:
        return RepoLook(replace(repo, problem=str(error)))


def _seen(world: World, cache: str, repo: CachedRepo, asked: bool, hashed: Hashed) -> RepoLook:
    tree, partly = tree_of(world, repo.folder)
    listings = sorted(listings_of(world, repo.folder).values(), key=lambda x: x.modified_ns, reverse=True)
    refs, bad_refs = _refs(world, repo.folder, tree, {x.commit for x in listings})
    read = asked or (repo.kind == "model" and sum(len(x.present) for x in listings) <= MOST_READ)
    files: dict[str, tuple[HubFile, ...]] = {}
    revisions = []
    for listing in listings:
        named = tuple(sorted(ref for ref, commit in refs.items() if commit == listing.commit))
        revision = Revision(listing.commit, named, "unknown", len(listing.present), 0, 0)
        try:
            files[listing.commit] = _files(world, cache, repo, listing, hashed, read)
            revisions.append(_judged(revision, repo, listing, files[listing.commit]))
        except Unreadable as error:
            revisions.append(replace(revision, reason=f"It cannot be looked at: {error}."))
    blobs = world.join(repo.folder, "blobs")
    payloads = frozenset(_payloads(world, tree, blobs))
    size = size_of(world, tree, [path for path, stat in tree.items() if stat.kind == "file"] + [*payloads])
    sized = tuple(_with_sizes(world, tree, revisions, files))
    summary = replace(repo, size=size, revisions=sized, bad_refs=bad_refs, partly=partly)
    broken = {_address(f.digest) for found in files.values() for f in found if f.state != "ok"}
    unlinked = _without_snapshot(world, repo.folder, tree, {x.commit for x in listings if x.present})
    partials = partials_of(world, blobs)
    waste = tuple(left_in(world, summary, tree, broken | unlinked, partials))
    return RepoLook(replace(summary, waste=waste), tree, files, payloads)


def _address(digest: str | None) -> str:
    return (digest or "").partition(":")[2]


def _without_snapshot(world: World, folder: str, tree: Tree, commits: set[str]) -> set[str]:
    """The content addresses in lists of files whose snapshot is gone: the client links such blobs again."""
    found = set()
    for path in [p for p in tree if world.parent(p) == world.join(folder, "trees")]:
        if world.name(path).partition(".")[0] not in commits:
            listed = manifest(world, path)
            if isinstance(listed, Mapping):
                found |= {_address(expected.digest) for expected in listed.values()}
    return found


def _refs(
    world: World, folder: str, tree: Tree, commits: set[str]
) -> tuple[dict[str, str], tuple[tuple[str, str], ...]]:
    """The commit behind each ref, and the refs that lead to no snapshot although there are some."""
    top = world.join(folder, "refs") + world.flavour.sep
    good, bad = {}, []
    for path, stat in tree.items():
        if stat.kind == "file" and path.startswith(top) and MARK not in path:
            name = path[len(top) :].replace("\\", "/")
            text = known(world.read(path, 0, 4096)).decode("utf-8", "replace")
            if text in commits:
                good[name] = text
            elif commits:
                bad.append((name, text[:80]))
    return good, tuple(bad)


def _files(
    world: World, cache: str, repo: CachedRepo, listing: Listing, hashed: Hashed, read: bool
) -> tuple[HubFile, ...]:
    """The files of a snapshot that are there, and those that a loader would miss. `read`: contents are looked at."""
    asked = needed(list(listing.expected), listing.present, listing.shards, ("",)) if repo.kind == "model" else set()
    wanted = (listing.present if read else frozenset()) | (asked - listing.present)
    return tuple(files_of(world, cache, repo.folder, listing, wanted, hashed))


def _judged(revision: Revision, repo: CachedRepo, listing: Listing, files: tuple[HubFile, ...]) -> Revision:
    damaged = [f for f in files if f.state in _BAD]
    gaps = [f for f in files if f.state in ("missing", "dangling") or (f.hidden and f.needed)]
    begun = {_inside(f) for f in files if f.state != "missing"}
    away = [f for f in gaps if f.state == "missing" and listing.present and _inside(f) not in begun]
    gaps = [f for f in gaps if f.state != "missing" or not listing.present or _inside(f) in begun]
    unread = [f for f in files if f.state == "ok" and not f.verified]
    absent = len(listing.expected.keys() - {f.name for f in files}) + len(away)
    reason = ""
    if listing.broken_manifest is not None:
        reason = f"The client's list of its files cannot be used: it {listing.broken_manifest}."
    elif len(listing.present) >= MOST_FILES:
        reason = "It has more files than are looked at."
    elif not listing.has_manifest:
        reason = "There is no list of its files that you may read, so what is missing cannot be told."
    elif away:
        folders = ", ".join(dict.fromkeys(f"{_inside(f)}/" for f in away))
        reason = f"Nothing of {folders} is here, which may be on purpose."
    elif absent and repo.kind != "model":
        reason = f"{absent} files of its list are not here, which may be on purpose."
    elif any(f.unread for f in files):
        reason = next(f"{f.name} could not be verified: {f.unread}." for f in files if f.unread)
    return replace(
        revision,
        health="damaged"
        if damaged
        else "incomplete"
        if gaps
        else "unknown"
        if reason
        else "plausible"
        if unread
        else "verified",
        faults=(*damaged, *(f for f in gaps if f.state not in _BAD)),
        absent=absent,
        unread=len(unread),
        unread_bytes=sum(f.actual_size or 0 for f in unread),
        reason=reason,
    )


def _inside(file: HubFile) -> str:
    return file.name.rpartition("/")[0]


def _with_sizes(
    world: World, tree: Tree, revisions: Iterable[Revision], files: Mapping[str, tuple[HubFile, ...]]
) -> Iterator[Revision]:
    contents = {
        commit: {
            identity(world, file.blob or file.path, tree): file.actual_size
            for file in found
            if file.actual_size is not None and file.state != "wrong-link"
        }
        for commit, found in files.items()
    }
    users = Counter(content for there in contents.values() for content in there)
    for revision in revisions:
        there = contents.get(revision.commit, {})
        own = sum(size for content, size in there.items() if users[content] == 1)
        yield replace(revision, size=sum(there.values()), own=own)


def _payloads(world: World, tree: Tree, blobs: str) -> Iterator[str]:
    """Where the blobs of a repository lead that are links: into the store that all repositories of a cache share."""
    for path, stat in tree.items():
        if stat.kind == "link" and world.parent(path) == blobs and digest_of_blob(world.name(path)):
            yield world.target(path, stat.target)


def _cache(world: World, path: str, why: str, looks: list[RepoLook], repo: str | None) -> Cache:
    entries = world.names(path)
    if isinstance(entries, Unknown):
        return Cache(path, why, problem=entries.reason if world.stat(path) is not None else "")
    store = world.join(path, "blobs")
    try:
        shared = tree_of(world, store)[0] if "blobs" in entries else {}
    except Unreadable:
        shared = {}
    waste: tuple[Waste, ...] = ()
    if repo is None and all(not look.summary.problem and not look.summary.partly for look in looks):
        used = {payload for look in looks for payload in look.payloads}
        waste = tuple(store_waste(world, store, shared, used))
    trees: Tree = dict(shared) if repo is None else {}
    for look in looks:
        trees |= look.tree
        trees |= {p: shared[p] for p in look.payloads if p in shared}
    files = [file for file, stat in trees.items() if stat.kind == "file"]
    mount = world.mount(path)
    return Cache(
        path,
        why,
        tuple(look.summary for look in looks),
        waste,
        size_of(world, trees, files),
        mount.free if isinstance(mount, Mount) else None,
    )


def _duplicates(world: World, looks: list[RepoLook]) -> Iterator[Duplicate]:
    """Contents that lie in several files, by content address; the largest waste first."""
    places: dict[tuple[str, int], dict[Identity, str]] = {}
    for look in looks:
        for file in (f for files in look.files.values() for f in files):
            if file.state == "ok" and file.digest is not None and (file.actual_size or 0) >= WORTH:
                path = file.blob or file.path
                there = places.setdefault((file.digest, file.actual_size or 0), {})
                there.setdefault(identity(world, path, look.tree), path)
    found = [
        Duplicate(digest, size, tuple(there.values())) for (digest, size), there in places.items() if len(there) > 1
    ]
    yield from sorted(found, key=lambda duplicate: -duplicate.waste)
