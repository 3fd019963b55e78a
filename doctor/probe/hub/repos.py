"""One repository of a hub cache: its ref, its snapshots, the files of the one that serves."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from ...model import HubFile, HubRepo, Run, Unknown
from ..world import Paths, Stat, World, resolve
from .beginnings import with_beginning
from .caches import COMMIT, Use, is_safe, repo_folder
from .content import SMALL, Expected, digest_of, digest_of_blob, examine, kind_of, known, manifest, structure
from .needs import needed
from .updates import begun, taken_over

RefState = Literal["ok", "dangling", "malformed", "absent", "pinned"]
MOST_FILES = 20_000
ALIVE_NS = 600 * 10**9
MARK = ".zdoctor-"  # what a repair put aside is no partial download


@dataclass(frozen=True)
class Listing:
    """The files a snapshot should hold. `present` are those with something at their path, dangling links included."""

    commit: str
    folder: str
    expected: Mapping[str, Expected | None]
    present: frozenset[str]
    shards: frozenset[str]
    has_manifest: bool
    broken_manifest: str | None
    modified_ns: int


def look(
    world: World,
    paths: Paths,
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
    folder = repo_folder(paths, use.cache, use.repo)
    ref_path = paths.join(folder, "refs", "main")
    used_by = tuple(dict.fromkeys(u.key for u in uses))
    insides = tuple(dict.fromkeys(u.inside for u in uses))
    state, content, asked = _ref(world, ref_path, use.commit)
    listings = {commit: listing_of(world, paths, folder, commit) for commit in commits_of(world, paths, folder)}
    listings = {commit: listing for commit, listing in listings.items() if listing.expected}
    if state == "ok" and asked not in listings:
        state = "dangling"
    wanted = {
        commit: needed(list(x.expected), x.present, x.shards, insides, from_elsewhere(used_by, run))
        for commit, x in listings.items()
    }
    by_age = sorted(listings, key=lambda commit: listings[commit].modified_ns, reverse=True)
    missing = {commit: _missing(world, paths, listings[commit], wanted[commit]) for commit in by_age}
    complete = tuple(commit for commit in by_age if wanted[commit] and not missing[commit])
    update = None
    if asked is not None and state in ("ok", "dangling") and missing.get(asked, 1):
        update = begun(world, paths, folder, asked, listings.get(asked), [listings[commit] for commit in complete])
    rest: frozenset[str] = frozenset()
    if update is not None:
        new, older = update
        rest, state, listings = taken_over(new, older), "ok", {**listings, new.commit: new}
        present = new.present | (older.present & new.expected.keys())
        wanted[new.commit] = needed(list(new.expected), present, new.shards, insides, from_elsewhere(used_by, run))
    serving = asked
    if serving not in listings:
        serving = (
            None if state == "pinned" else next(iter(complete), min(by_age, key=lambda c: missing[c], default=None))
        )
    listing = listings.get(serving) if serving is not None else None
    files: tuple[HubFile, ...] = ()
    partials = tuple(partials_of(world, paths, paths.join(folder, "blobs")))
    if listing is not None:
        files = tuple(files_of(world, paths, use.cache, folder, listing, wanted[listing.commit], hashed or {}, rest))
        others = {listings[c].folder: listings[c].expected for c in by_age if c != serving}
        twins = [
            paths.join(repo_folder(paths, cache, use.repo), "snapshots", listing.commit)
            for cache in caches
            if cache != use.cache
        ]
        search = Search(world, paths, caches, folder, (*others, *twins, *plain), hashed is not None, others)
        files = tuple(search.with_copy(f) if f.state != "ok" and (f.needed or f.name in rest) else f for f in files)
        files = tuple(with_beginning(world, paths, f, partials) for f in files)
        if listing.broken_manifest is not None:
            files = (*files, _bad_manifest(paths, folder, listing))
    return HubRepo(
        repo=use.repo,
        cache=use.cache,
        folder=folder,
        ref="main" if use.commit is None else use.commit,
        ref_state=state,
        ref_path=ref_path,
        ref_content=content,
        commit=serving if listing else None,
        snapshot=listing.folder if listing else None,
        has_manifest=listing is not None and listing.has_manifest,
        files=files,
        partials=partials,
        snapshots=tuple(by_age),
        used_by=used_by,
        complete=complete,
        update_of=update[1].commit if update is not None else None,
    )


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
    if set(used_by) == {"extras_model"}:
        return "transformer.*|unet"
    if run.extras_model is not None and run.extras_model != run.base_model:
        return "text_encoder.*|tokenizer.*|vae"
    return ""


def commits_of(world: World, paths: Paths, folder: str) -> Iterator[str]:
    snapshots = paths.join(folder, "snapshots")
    if known(world.stat(snapshots)) is not None:
        yield from (name for name in known(world.names(snapshots)) if COMMIT.fullmatch(name))


def listing_of(world: World, paths: Paths, folder: str, commit: str) -> Listing:
    snapshot = paths.join(folder, "snapshots", commit)
    present = frozenset(_walk(world, paths, snapshot))
    found = manifest(world, paths.join(folder, "trees", f"{commit}.json")) if present else None
    expected: dict[str, Expected | None] = {}
    shards: set[str] = set()
    if isinstance(found, Mapping):
        expected.update(found)
    else:
        expected.update(dict.fromkeys(present))
    for full in shards_of(world, paths, snapshot, present):
        if full in expected or not isinstance(found, Mapping):
            expected.setdefault(full, None)
            shards.add(full)
    stat = world.stat(snapshot)
    age = stat.modified_ns if isinstance(stat, Stat) else 0
    problem = found if isinstance(found, str) else None
    return Listing(commit, snapshot, expected, present, frozenset(shards), isinstance(found, Mapping), problem, age)


def _walk(world: World, paths: Paths, snapshot: str) -> Iterator[str]:
    """Names of the files and links below a folder, other folders not followed through links."""
    waiting = [""]
    found = 0
    while waiting:
        inside = waiting.pop()
        for base in known(world.names(paths.join(snapshot, *inside.split("/")) if inside else snapshot)):
            name = f"{inside}/{base}" if inside else base
            if not is_safe(name) or MARK in base:
                continue
            found += 1
            if found > MOST_FILES:
                return
            stat = known(world.stat(paths.join(snapshot, *name.split("/"))))
            if isinstance(stat, Stat) and stat.kind == "folder":
                if name.count("/") < 12:
                    waiting.append(name)
            elif stat is not None:
                yield name


def shards_of(world: World, paths: Paths, folder: str, names: Collection[str]) -> Iterator[str]:
    """The weight files that the index files among `names` speak of, as names relative to `folder`."""
    for name in sorted(names):
        if name.endswith(".safetensors.index.json"):
            for shard in _shards(world, paths.join(folder, *name.split("/"))):
                full = posixpath.join(posixpath.dirname(name), shard)
                if is_safe(full):
                    yield full


def _shards(world: World, index: str) -> tuple[str, ...]:
    data = world.read(index, 0, SMALL)
    try:
        weights = json.loads(data)["weight_map"] if isinstance(data, bytes) else {}
        return tuple(dict.fromkeys(shard for shard in weights.values() if isinstance(shard, str)))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ()


def _missing(world: World, paths: Paths, listing: Listing, wanted: Collection[str]) -> int:
    """How many of the wanted files lead to nothing."""
    count = 0
    for name in wanted:
        path = paths.join(listing.folder, *name.split("/"))
        count += name not in listing.present or not isinstance(resolve(world, paths, path)[1], Stat)
    return count


def files_of(
    world: World,
    paths: Paths,
    cache: str,
    folder: str,
    listing: Listing,
    wanted: Collection[str],
    hashed: Mapping[str, str | Unknown],
    rest: Collection[str] = (),
) -> Iterator[HubFile]:
    """The files that are there, are wanted, or are among the `rest` that nobody loads but that belongs here."""
    files = [
        examine(world, paths, cache, listing.folder, name, expected, needed=name in wanted, hashed=hashed)
        for name, expected in sorted(listing.expected.items())
        if name in wanted or name in listing.present or name in rest
    ]
    linked = any(file.blob is not None for file in files)
    denied = paths.join(folder, ".no_exist", listing.commit)
    if known(world.stat(denied)) is not None:
        marks = set(_walk(world, paths, denied))
        files = [replace(file, hidden=file.name in marks) for file in files]
    for file in files:
        if (file.state == "wrong-link" or (file.state == "missing" and linked)) and file.digest is not None:
            yield replace(file, blob=paths.join(folder, "blobs", file.digest.partition(":")[2]))
        else:
            yield file


def _bad_manifest(paths: Paths, folder: str, listing: Listing) -> HubFile:
    name = f"trees/{listing.commit}.json"
    path = paths.join(folder, *name.split("/"))
    detail = listing.broken_manifest or ""
    return HubFile(name, path, None, "broken-structure", None, None, detail=detail, needed=False)


def partials_of(world: World, paths: Paths, blobs: str) -> Iterator[tuple[str, int, bool]]:
    """Left-over downloads: (path, bytes on disk, alive)."""
    names = world.names(blobs)
    for name in () if isinstance(names, Unknown) else names:
        if name.endswith(".incomplete"):
            path = paths.join(blobs, name)
            stat = world.stat(path)
            if isinstance(stat, Stat) and stat.kind == "file":
                yield path, stat.size, is_alive(world, path, stat)


def is_alive(world: World, path: str, stat: Stat) -> bool:
    """Whether a left-over download belongs to one that is running: it grew lately, or some process has it open."""
    return world.now_ns() - stat.modified_ns < ALIVE_NS or world.is_open(path)


@dataclass(frozen=True)
class Search:
    """Looks for another copy of a file's content: blobs of every cache, then files of that name in `folders`.

    `listed` says what some of these folders should hold: a file that should be another is no copy, whatever its size.
    """

    world: World
    paths: Paths
    caches: Sequence[str]
    repo: str
    folders: Sequence[str]
    deep: bool
    listed: Mapping[str, Mapping[str, Expected | None]] = field(default_factory=dict)

    def with_copy(self, file: HubFile) -> HubFile:
        if file.digest is None:
            return file
        own = None if file.state in ("missing", "dangling") else resolve(self.world, self.paths, file.path)
        for path in self._places(file):
            if self._is_good(path, file, own):
                stat = resolve(self.world, self.paths, path)[1]
                size = file.size if file.size is not None or not isinstance(stat, Stat) else stat.size
                return replace(file, good_copy=path, size=size)
        return file

    def _places(self, file: HubFile) -> Iterator[str]:
        join, address = self.paths.join, (file.digest or "").partition(":")[2]
        yield join(self.repo, "blobs", address)
        for cache in self.caches:
            names = self.world.names(cache)
            for name in () if isinstance(names, Unknown) else names:
                if name.startswith("models--"):
                    yield join(cache, name, "blobs", address)
        for folder in self.folders:
            should = self.listed.get(folder, {}).get(file.name)
            if should is None or should.digest in (None, file.digest):
                yield join(folder, *file.name.split("/"))

    def _is_good(self, path: str, file: HubFile, own: tuple[str, Stat | Unknown | None] | None) -> bool:
        """Right size, not the bad file itself, and the right digest where that is cheap to say."""
        final, stat = resolve(self.world, self.paths, path)
        if not isinstance(stat, Stat) or stat.kind != "file" or (stat.size == 0 and file.size != 0):
            return False
        if file.size is not None and stat.size != file.size:
            return False
        if digest_of_blob(self.paths.name(final)) not in (None, file.digest) and final != path:
            return False  # a link to the content of another version
        if own is not None and isinstance(own[1], Stat):
            same_inode = stat.inode != 0 and (stat.device, stat.inode) == (own[1].device, own[1].inode)
            if final == own[0] or same_inode:
                return False
        if isinstance(self.world.read(final, 0, 1), Unknown):
            return False
        if self.deep and stat.size > SMALL:
            return self.world.digests({final: kind_of(file.digest or "")})[final] == file.digest
        if stat.size <= SMALL:
            return digest_of(self.world, final, stat.size, file.digest or "") == file.digest
        return not file.name.endswith(".safetensors") or structure(self.world, final, stat).problem is None
