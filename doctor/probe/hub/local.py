"""A folder that `hf download --local-dir` filled: its files against the notes that the client keeps beside them.

`<folder>/.cache/huggingface/download/<name>.metadata` holds commit, content address and time of each file,
`trees/<commit>.json` (newer clients) the list of all files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from ...model import Component, Hub, HubFile, HubRepo, ModelFolder, Run
from ...model.record import dataclass, replace
from ..world import Stat, World
from .caches import COMMIT, Use, model_folders, named_models, repo_of
from .content import Expected, digest_of_blob, examine, is_json, manifest, structure
from .listings import needed, shards_of, walk
from .repos import Look, from_elsewhere, partials_of
from .search import Search

# Where no cache knows the commit, the folder's name may. A wrong guess does no harm: what is fetched is asked for by
# commit, and is held against the content address.
KNOWN = (
    "Tongyi-MAI/Z-Image-Turbo",
    "Tongyi-MAI/Z-Image",
    "ostris/Z-Image-De-Turbo",
    "black-forest-labs/FLUX.1-Kontext-dev",
    "black-forest-labs/FLUX.1-schnell",
    "black-forest-labs/FLUX.1-dev",
)
NOTES = (".cache", "huggingface")
HIGHEST = 3  # a component's folder, or a file in it, may be named in place of the folder that was downloaded
CLOCK_NS = 10**9  # what the client allows a file to be newer than its note


@dataclass(frozen=True)
class Note:
    """What the client wrote down about one file when it had downloaded it. `at` is in ns since 1970."""

    commit: str
    digest: str | None
    at: int


def local_uses(world: World, run: Run) -> Iterator[Use]:
    """The downloaded folders that the run names, or names something inside of: no `cache`, `repo` is the folder."""
    for key, value in named_models(run):
        place, inside = world.absolute(value), ""
        for _ in range(HIGHEST):
            if any(isinstance(world.stat(world.join(place, *NOTES, kept)), Stat) for kept in ("download", "trees")):
                yield Use(place, "", None, key, inside)
                break
            inside = f"{world.name(place)}/{inside}" if inside else world.name(place)
            place = world.parent(place)


def look_local(look: Look, uses: Sequence[Use]) -> HubRepo:
    """The downloaded folder that `uses` name. Raises Unreadable."""
    world, folder = look.world, uses[0].repo
    notes = dict(_notes(world, world.join(folder, *NOTES, "download")))
    commits = Counter(note.commit for note in notes.values())
    lists = dict(_lists(world, world.join(folder, *NOTES, "trees")))
    commit = max(commits, key=lambda c: commits[c], default=next(iter(lists)) if len(lists) == 1 else None)
    listed = manifest(world, world.join(folder, *NOTES, "trees", f"{commit}.json")) if commit else None
    # A copy that zdoctor made has the list alone, written after the files.
    all_at = Note(commit, None, lists[commit]) if commit in lists and not notes else None
    has_list = isinstance(listed, Mapping)
    expected: dict[str, Expected | None] = dict(listed) if isinstance(listed, Mapping) else {}
    for name, note in notes.items():
        if note.commit != commit or name not in expected:
            expected[name] = Expected(None, note.digest)
    present = frozenset(n for n in expected if world.stat(world.below(folder, n)) is not None)
    used_by = tuple(dict.fromkeys(use.key for use in uses))
    insides = tuple(dict.fromkeys(use.inside for use in uses))
    shards = frozenset(shards_of(world, folder, present))
    expected |= {} if has_list else dict.fromkeys(shards - expected.keys())
    wanted = needed(list(expected), present, shards, insides, from_elsewhere(used_by, look.run))
    download = world.join(folder, *NOTES, "download")
    partials = partials_of(world, download, _below(world, download))
    search = Search(world, look.caches, folder, look.folders, look.hashed is not None, partials)

    def seen(name: str) -> HubFile:
        wants = expected[name]
        file = examine(world, folder, folder, name, wants, needed=name in wanted, hashed=look.hashed or {})
        if file.state in ("wrong-size", "wrong-content") and _is_edited(world, file, notes.get(name, all_at)):
            # People edit a config.json; weights that others wrote are worth a word.
            file = replace(file, changed=True, state=file.state if name.endswith(".safetensors") else "ok")
        return search.remedied(file)

    return HubRepo(
        repo=folder,
        cache="",
        folder=folder,
        ref_state="pinned",
        ref_path="",
        ref_content="",
        commit=commit,
        snapshot=folder,
        has_manifest=has_list,
        files=tuple(seen(name) for name in sorted(expected) if name in wanted or name in present),
        partials=partials,
        snapshots=(commit,) if commit else (),
        used_by=used_by,
        origin=_origin(world, look.caches, folder, commit) if commit else None,
    )


def claimed(model: ModelFolder, hub: Hub) -> ModelFolder:
    """The model with each part that holds a bad file of a downloaded folder marked as that folder's.

    One rule speaks of one defect: here the list of files knows more than the structure does.
    """
    bad = {f.path: r.repo for r in hub.repos if r.is_folder for f in r.files if f.needed and f.state != "ok"}

    def owner(part: Component) -> str | None:
        return next(
            (repo for path, repo in bad.items() if path.startswith((part.folder + "/", part.folder + "\\"))),
            part.repo,
        )

    parts = {name: replace(part, repo=owner(part)) for name, part in model.components.items()}
    return replace(model, components=parts) if bad else model


def _notes(world: World, folder: str) -> Iterator[tuple[str, Note]]:
    """The client's notes by file name. One that is torn or unsafe says nothing, as the client takes it."""
    for name in _below(world, folder):
        if not name.endswith(".metadata"):
            continue
        text = world.read(world.below(folder, name), 0, 4096)
        lines = text.decode("utf-8", "replace").split("\n") if isinstance(text, bytes) else []
        try:
            commit, etag, at = lines[0].strip(), lines[1].strip(), int(float(lines[2]) * 10**9)
        except (IndexError, ValueError, OverflowError):
            continue
        if COMMIT.fullmatch(commit):
            yield name.removesuffix(".metadata"), Note(commit, digest_of_blob(etag), at)


def _lists(world: World, folder: str) -> Iterator[tuple[str, int]]:
    """The commits whose list of files is there, and when it was written, in ns since 1970."""
    for name in world.names_in(folder):
        stat = world.stat(world.join(folder, name))
        if COMMIT.fullmatch(name.removesuffix(".json")) and isinstance(stat, Stat):
            yield name.removesuffix(".json"), stat.modified_ns


def _below(world: World, folder: str) -> Iterator[str]:
    return walk(world, folder) if isinstance(world.stat(folder), Stat) else iter(())


def _is_edited(world: World, file: HubFile, note: Note | None) -> bool:
    """Whether somebody wrote a whole file after the client noted it: the client then no longer trusts its note."""
    path, stat = world.resolve(file.path)
    if note is None or not isinstance(stat, Stat) or stat.modified_ns - CLOCK_NS <= note.at:
        return False
    if file.name.endswith(".safetensors"):
        return structure(world, path, stat).problem is None
    return file.name.endswith(".json") and is_json(world, path)


def _origin(world: World, caches: Sequence[str], folder: str, commit: str) -> str | None:
    """The repository that the commit is of, which the notes do not say: as a cache of this machine knows it, else
    one whose name is part of the folder's."""
    for cache in caches:
        for name in model_folders(world, cache):
            for trace in (("snapshots", commit), ("trees", f"{commit}.json")):
                if isinstance(world.stat(world.join(cache, name, *trace)), Stat):
                    return repo_of(name)
    named = world.name(folder).lower()
    return next((repo for repo in KNOWN if repo.partition("/")[2].lower() in named), None)
