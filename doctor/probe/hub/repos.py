"""One repository of a hub cache: its ref, its snapshots, the files of the one that serves."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal

from ...model import HubFile, HubRepo, Run, Unknown
from ...model.record import dataclass, replace
from ..world import Stat, World
from .caches import COMMIT, Use, repo_folder
from .content import digest_of, examine, known
from .listings import Listing, listings_of, walk
from .needs import needed
from .search import Partials, Search
from .updates import begun, taken_over

RefState = Literal["ok", "dangling", "malformed", "absent", "pinned"]
ALIVE_NS = 600 * 10**9


def look(
    world: World,
    run: Run,
    caches: Sequence[str],
    uses: Sequence[Use],
    plain: Sequence[str],
    hashed: Mapping[str, str | Unknown] | None,
) -> HubRepo:
    """The repository that `uses` (all of one repository, cache and commit) name. Raises Unreadable.

    `hashed` are the digests of large files by path, None in a check that reads none.
    """
    use = uses[0]
    folder = repo_folder(world, use.cache, use.repo)
    used_by = tuple(dict.fromkeys(u.key for u in uses))
    insides = tuple(dict.fromkeys(u.inside for u in uses))
    found = _choose(world, folder, use.commit, insides, from_elsewhere(used_by, run))
    listing = found.listing
    partials = partials_of(world, world.join(folder, "blobs"))
    files: tuple[HubFile, ...] = ()
    if listing is not None:
        seen = files_of(world, use.cache, folder, listing, found.wanted, hashed or {}, found.rest)
        others = {x.folder: x.expected for x in found.by_age if x.commit != listing.commit}
        homes = [repo_folder(world, cache, use.repo) for cache in caches if cache != use.cache]
        twins = [world.join(home, "snapshots", listing.commit) for home in homes]
        elsewhere = (*others, *twins, *plain)
        search = Search(world, caches, folder, elsewhere, hashed is not None, partials, others, found.rest)
        files = tuple(map(search.remedied, seen))
        if listing.broken_manifest is not None:
            files = (*files, _bad_manifest(world, folder, listing))
    return HubRepo(
        repo=use.repo,
        cache=use.cache,
        folder=folder,
        ref="main" if use.commit is None else use.commit,
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
        update = begun(world, folder, asked, listings.get(asked), [listings[commit] for commit in complete])
    if update is not None:
        new, older = update
        rest, state, listings[new.commit] = taken_over(new, older), "ok", new
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


def _manifest(world: World, folder: str, listing: Listing) -> tuple[str, int, str] | None:
    path = world.join(folder, "trees", f"{listing.commit}.json")
    stat = known(world.stat(path))
    return (path, stat.size, digest_of(world, path, stat.size, "sha256:")) if isinstance(stat, Stat) else None


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
    return ""


def _missing(world: World, listing: Listing, wanted: Collection[str]) -> int:
    """How many of the wanted files lead to nothing."""
    count = 0
    for name in wanted:
        path = world.join(listing.folder, *name.split("/"))
        count += name not in listing.present or not isinstance(world.resolve(path)[1], Stat)
    return count


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
        if (file.state == "wrong-link" or (file.state == "missing" and linked)) and file.digest is not None:
            yield replace(file, blob=world.join(folder, "blobs", file.digest.partition(":")[2]))
        else:
            yield file


def _bad_manifest(world: World, folder: str, listing: Listing) -> HubFile:
    name = f"trees/{listing.commit}.json"
    path = world.join(folder, *name.split("/"))
    detail = listing.broken_manifest or ""
    return HubFile(name, path, None, "broken-structure", None, None, detail=detail, needed=False)


def partials_of(world: World, folder: str, names: Iterable[str] | None = None) -> Partials:
    """The left-over downloads among the names in a folder; alive are those of a download that is running.

    Such a one grew lately, or some process has it open. What a repair of ours left behind does not grow.
    """
    found = []
    for name in world.names_in(folder) if names is None else names:
        path = world.join(folder, *name.split("/"))
        stat = world.stat(path) if name.endswith(".incomplete") else None
        if isinstance(stat, Stat) and stat.kind == "file":
            grew = world.now_ns() - stat.modified_ns < ALIVE_NS and not name.endswith(".zdoctor.incomplete")
            found.append((path, stat.size, grew or world.is_open(path)))
    return tuple(found)
