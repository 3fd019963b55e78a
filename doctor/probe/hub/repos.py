"""One repository of a hub cache: its ref, its snapshots, the files of the one that serves."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from ...model import HubFile, HubRepo, Run, Unknown
from ...model.record import dataclass, replace
from ..world import Stat, World
from .caches import COMMIT, Use, apart, offline, repo_folder
from .content import SMALL, digest_of, examine, known, manifest
from .listings import Listing, listings_of, needed, walk
from .search import Partials, Search

RefState = Literal["ok", "dangling", "malformed", "absent", "pinned"]
ALIVE_NS = 600 * 10**9


class Look(NamedTuple):
    """What a look at a repository goes by. `folders` are plain ones that may hold good copies of its files.

    `hashed` are the digests of large files by path, None in a check that reads none.
    """

    world: World
    run: Run
    caches: Sequence[str]
    folders: Sequence[str]
    hashed: Mapping[str, str | Unknown] | None


def look_cached(look: Look, uses: Sequence[Use]) -> HubRepo:
    """The repository that `uses` (all of one repository, cache and commit) name. Raises Unreadable."""
    world, use = look.world, uses[0]
    folder = repo_folder(world, use.cache, use.repo)
    used_by = tuple(dict.fromkeys(u.key for u in uses))
    insides = tuple(dict.fromkeys(u.inside for u in uses))
    found = _choose(world, folder, use.commit, insides, from_elsewhere(used_by, look.run))
    listing = found.listing
    partials = partials_of(world, world.join(folder, "blobs"))
    files: tuple[HubFile, ...] = ()
    if listing is not None:
        seen = files_of(world, use.cache, folder, listing, found.wanted, look.hashed or {}, found.rest)
        others = {x.folder: x.expected for x in found.by_age if x.commit != listing.commit}
        homes = [repo_folder(world, cache, use.repo) for cache in look.caches if cache != use.cache]
        twins = [world.join(home, "snapshots", listing.commit) for home in homes]
        elsewhere = (*others, *twins, *look.folders)
        search = Search(world, look.caches, folder, elsewhere, look.hashed is not None, partials, others, found.rest)
        files = tuple(map(search.remedied, seen))
        if listing.broken_manifest is not None:
            name = f"trees/{listing.commit}.json"
            bad = HubFile(name, world.below(folder, name), None, "broken-structure", None, None, needed=False)
            files = (*files, replace(bad, detail=listing.broken_manifest))
    return HubRepo(
        repo=use.repo,
        cache=use.cache,
        folder=folder,
        ref_state=found.state,
        ref_path=world.join(folder, "refs", "main"),
        ref_content=found.content,
        commit=listing.commit if listing else None,
        snapshot=listing.folder if listing else None,
        has_manifest=listing is not None and listing.has_manifest,
        manifest=_manifest(world, folder, listing) if listing is not None and listing.has_manifest else None,
        files=files,
        partials=partials,
        snapshots=tuple(x.commit for x in found.by_age),
        used_by=used_by,
        complete=found.complete,
        update_of=found.update_of,
    )


@dataclass(frozen=True)
class _Chosen:
    """The snapshot that serves a run: its files that are `wanted`, and the `rest` that belongs to it as well.

    `by_age` are the snapshots that lie there, the newest first; `complete` those with all that is wanted.
    """

    state: RefState
    content: str
    listing: Listing | None
    wanted: Collection[str]
    rest: Collection[str]
    by_age: tuple[Listing, ...]
    complete: tuple[str, ...]
    update_of: str | None


def _choose(world: World, folder: str, pinned: str | None, insides: Sequence[str], skip: str) -> _Chosen:
    state, content, asked = _ref(world, world.join(folder, "refs", "main"), pinned)
    listings = dict(listings_of(world, folder))
    if state == "ok" and asked not in listings:
        state = "dangling"
    by_age = tuple(sorted(listings.values(), key=lambda listing: listing.modified_ns, reverse=True))
    wanted = {x.commit: needed(list(x.expected), x.present, x.shards, insides, skip) for x in by_age}
    missing = {x.commit: _missing(world, x, wanted[x.commit]) for x in by_age}
    complete = tuple(commit for commit in missing if wanted[commit] and not missing[commit])
    update, rest = None, frozenset[str]()
    if asked is not None and state in ("ok", "dangling") and missing.get(asked, 1):
        update = _begun(world, folder, asked, listings.get(asked), [listings[commit] for commit in complete])
    if update is not None:
        new, older = update
        rest, state, listings[new.commit] = _taken_over(new, older), "ok", new
        present = new.present | (older.present & new.expected.keys())
        wanted[new.commit] = needed(list(new.expected), present, new.shards, insides, skip)
    serving = asked
    if serving not in listings and state == "pinned":
        serving = None
    elif serving not in listings:
        serving = next(iter(complete), min(missing, key=lambda commit: missing[commit], default=None))
    listing = listings.get(serving) if serving is not None else None
    if listing is not None and listing.is_lost:
        rest |= frozenset(listing.expected)
    chosen = wanted[listing.commit] if listing is not None else ()
    older_commit = update[1].commit if update is not None else None
    return _Chosen(state, content, listing, chosen, rest, by_age, complete, older_commit)


def _begun(
    world: World, folder: str, asked: str, own: Listing | None, complete: Sequence[Listing]
) -> tuple[Listing, Listing] | None:
    """An update that was begun where every file of a commit is another file: its listing, and the older snapshot's.

    `own` is what lies of the new one, None where the client wrote down no more than its list of files; offline
    nobody waits for the rest of that. None where the file names are not known, and where there are links: a snapshot
    of links costs the client nothing.
    """
    older = next((listing for listing in complete if listing.commit != asked), None)
    if older is None or any(_is_link(world, x) for x in (older, own) if x is not None):
        return None
    if own is not None:
        new = own
    else:
        found = manifest(world, world.join(folder, "trees", f"{asked}.json"))
        if not isinstance(found, Mapping) or offline(world.system):
            return None
        place = world.join(folder, "snapshots", asked)
        new = replace(older, commit=asked, folder=place, expected=found, present=frozenset(), has_manifest=True)
    if not new.has_manifest:
        return None
    return replace(new, shards=new.shards | (older.shards & new.expected.keys())), older


def _taken_over(new: Listing, older: Listing) -> frozenset[str]:
    """What the older snapshot has and the new one lacks. A large file that changed is left to those who load it."""

    def is_cheap(name: str) -> bool:
        wants, had = new.expected[name], older.expected.get(name)
        is_same = had is not None and had.digest is not None and wants is not None and had.digest == wants.digest
        return is_same or (wants is not None and (wants.size or 0) <= SMALL)

    return frozenset(n for n in new.expected if n in older.present and n not in new.present and is_cheap(n))


def _is_link(world: World, listing: Listing) -> bool:
    stats = (world.stat(world.below(listing.folder, name)) for name in listing.present)
    return any(isinstance(stat, Stat) and stat.kind == "link" for stat in stats)


def _manifest(world: World, folder: str, listing: Listing) -> tuple[str, int, str] | None:
    path = world.join(folder, "trees", f"{listing.commit}.json")
    stat = known(world.stat(path))
    return (path, stat.size, digest_of(world, path, "sha256:")) if isinstance(stat, Stat) else None


def _ref(world: World, path: str, pinned: str | None) -> tuple[RefState, str, str | None]:
    """What the ref file says: its state, its text (shortened), and the commit it means."""
    if pinned is not None:
        return "pinned", "", pinned
    stat = known(world.stat(path))
    if stat is None:
        return "absent", "", None
    if stat.kind == "folder":
        return "malformed", "", None
    text = known(world.read(path, 0, 4096)).decode("utf-8", "replace")
    if COMMIT.fullmatch(text):
        return "ok", text, text
    return "malformed", text[:80], text.strip() if COMMIT.fullmatch(text.strip()) else None


def from_elsewhere(used_by: Collection[str], run: Run) -> str:
    """Components the run takes from another repository, so that nobody misses them here."""
    recipe = run.recipe
    if set(used_by) == {"extras_model"}:
        return "transformer.*|unet"
    if recipe.extras_model is not None and recipe.extras_model != recipe.base_model:
        return "text_encoder.*|tokenizer.*|vae"
    return "|".join(apart(run))


def _missing(world: World, listing: Listing, wanted: Collection[str]) -> int:
    """How many of the wanted files lead to nothing."""
    there = [world.resolve(world.below(listing.folder, name))[1] for name in wanted if name in listing.present]
    return len(wanted) - sum(isinstance(stat, Stat) for stat in there)


def files_of(
    world: World,
    cache: str,
    folder: str,
    listing: Listing,
    wanted: Collection[str],
    hashed: Mapping[str, str | Unknown],
    rest: Collection[str] = (),
) -> Iterator[HubFile]:
    """The files that are there, are wanted, or are among the `rest` that nobody loads but that belongs here."""
    files = [
        examine(world, cache, listing.folder, name, expected, needed=name in wanted, hashed=hashed)
        for name, expected in sorted(listing.expected.items())
        if name in wanted or name in listing.present or name in rest
    ]
    linked = listing.is_lost or any(file.blob is not None for file in files)
    denied = world.join(folder, ".no_exist", listing.commit)
    if known(world.stat(denied)) is not None:
        marks = set(walk(world, denied))
        files = [replace(file, hidden=file.name in marks) for file in files]
    for file in files:
        is_unlinked = file.state == "wrong-link" or (file.state == "missing" and linked)
        address = file.digest.partition(":")[2] if is_unlinked and file.digest is not None else ""
        yield replace(file, blob=world.join(folder, "blobs", address)) if address else file


def partials_of(world: World, folder: str, names: Iterable[str] | None = None) -> Partials:
    """The left-over downloads among the names in a folder; alive are those of a download that is running.

    Such a one grew lately, or some process has it open. What a repair of ours left behind does not grow.
    """
    found = []
    for name in world.names_in(folder) if names is None else names:
        path = world.below(folder, name)
        stat = world.stat(path) if name.endswith(".incomplete") else None
        if isinstance(stat, Stat) and stat.kind == "file":
            grew = world.now_ns() - stat.modified_ns < ALIVE_NS and not name.endswith(".zdoctor.incomplete")
            found.append((path, stat.size, grew or world.is_open(path)))
    return tuple(found)
