"""What the snapshots of a repository should hold, what lies in them, and which of their files a trainer loads."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterator, Mapping
from itertools import islice

from ...model.pattern import pattern
from ...model.record import dataclass
from ..world import Stat, World
from .caches import COMMIT, is_safe
from .content import SMALL, Expected, known, manifest

MOST_FILES = 20_000
DEEPEST = 12
MARK = ".zdoctor-"  # what a repair put aside is no partial download


@dataclass(frozen=True)
class Listing:
    """The files a snapshot should hold. `present` are those with something at their path, dangling links included.

    `is_lost` is true where only the list of files and the blobs are left of it.
    """

    commit: str
    folder: str
    expected: Mapping[str, Expected | None]
    present: frozenset[str]
    shards: frozenset[str]
    has_manifest: bool
    broken_manifest: str | None
    modified_ns: int
    is_lost: bool = False


def listings_of(world: World, folder: str) -> dict[str, Listing]:
    """The listing of every snapshot, by commit. Where none is left, of those whose list of files and blobs are."""
    found = {commit: listing_of(world, folder, commit) for commit in _commits(world, folder)}
    return {commit: listing for commit, listing in found.items() if listing.expected} or dict(_lost(world, folder))


def _lost(world: World, folder: str) -> Iterator[tuple[str, Listing]]:
    trees = world.join(folder, "trees")
    names = known(world.names(trees)) if known(world.stat(trees)) is not None else ()
    for name in names:
        commit = name.removesuffix(".json")
        found = manifest(world, world.join(trees, name)) if COMMIT.fullmatch(commit) else None
        if not isinstance(found, Mapping):
            continue
        addresses = [wants.digest.partition(":")[2] for wants in found.values() if wants.digest]
        if any(world.stat(world.join(folder, "blobs", address)) is not None for address in addresses):
            place = world.join(folder, "snapshots", commit)
            yield commit, Listing(commit, place, found, frozenset(), frozenset(), True, None, 0, True)


def _commits(world: World, folder: str) -> Iterator[str]:
    snapshots = world.join(folder, "snapshots")
    if known(world.stat(snapshots)) is not None:
        yield from (name for name in known(world.names(snapshots)) if COMMIT.fullmatch(name))


def listing_of(world: World, folder: str, commit: str) -> Listing:
    snapshot = world.join(folder, "snapshots", commit)
    present = frozenset(walk(world, snapshot))
    found = manifest(world, world.join(folder, "trees", f"{commit}.json")) if present else None
    expected: dict[str, Expected | None] = dict(found if isinstance(found, Mapping) else dict.fromkeys(present))
    shards: set[str] = set()
    for full in shards_of(world, snapshot, present):
        if full in expected or not isinstance(found, Mapping):
            expected.setdefault(full, None)
            shards.add(full)
    stat = world.stat(snapshot)
    age = stat.modified_ns if isinstance(stat, Stat) else 0
    problem = found if isinstance(found, str) else None
    return Listing(commit, snapshot, expected, present, frozenset(shards), isinstance(found, Mapping), problem, age)


def walk(world: World, snapshot: str) -> Iterator[str]:
    """Names of the files and links below a folder, other folders not followed through links."""
    for name, stat in islice(world.walk(snapshot, DEEPEST), MOST_FILES):
        if known(stat).kind != "folder" and is_safe(name) and MARK not in name:
            yield name


def shards_of(world: World, folder: str, names: Collection[str]) -> Iterator[str]:
    """The weight files that the index files among `names` speak of, as names relative to `folder`."""
    for name in sorted(names):
        if name.endswith(".safetensors.index.json"):
            for shard in _shards(world, world.below(folder, name)):
                full = posixpath.join(posixpath.dirname(name), shard)
                if is_safe(full):
                    yield full


def _shards(world: World, index: str) -> tuple[str, ...]:
    data = world.json(index, SMALL)
    weights = data.get("weight_map") if isinstance(data, dict) else None
    named = weights.values() if isinstance(weights, dict) else ()
    return tuple(dict.fromkeys(shard for shard in named if isinstance(shard, str)))


COMPONENTS = (
    *("transformer", "transformer_2", "unet", "vae", "scheduler"),
    *("text_encoder", "text_encoder_2", "text_encoder_3", "tokenizer", "tokenizer_2", "tokenizer_3"),
)
_WEIGHTS = pattern(r"(model|diffusion_pytorch_model)(-\d{5}-of-\d{5})?\.safetensors(\.index\.json)?")
_OTHER_FORMATS = (".bin", ".ckpt", ".pt", ".pth", ".h5", ".msgpack", ".onnx", ".onnx_data", ".ot", ".gguf", ".xml")
_NO_DATA = (
    *(".md", ".png", ".jpg", ".jpeg", ".webp", ".gif", ".mp4", ".pdf", ".gitattributes", ".gitignore", "LICENSE"),
)


def needed(
    listing: Collection[str],
    present: Collection[str],
    shards: Collection[str],
    insides: Collection[str],
    skip: str = "",
) -> set[str]:
    """The names of `listing` that the run loads.

    `present` are the names with something at their path, `shards` those that an index file names, `insides` the
    files or folders of the repository that the config asks for ("" for all), `skip` a pattern of components that
    come from elsewhere. What is missing counts only where a loader is certain to ask for it.
    """
    folders: dict[str, set[str]] = {}
    for name in listing:
        folder, _, base = name.rpartition("/")
        folders.setdefault(folder, set()).add(base)
    standard = {
        folder: {base for base in bases if _WEIGHTS.fullmatch(base) and _at(folder, base) in present}
        for folder, bases in folders.items()
    }
    pipeline = "model_index.json" in listing or any(folder in COMPONENTS for folder in folders)
    wanted = set()
    for name in listing:
        folder, _, base = name.rpartition("/")
        if name in insides:
            wanted.add(name)
            continue
        if not any(inside == "" or name.startswith(inside.rstrip("/") + "/") for inside in insides):
            continue
        if base.endswith(_NO_DATA) or ("" in insides and pipeline and folder and folder not in COMPONENTS):
            continue
        if name in present:
            if _loads(base, standard[folder]) and (folder or not pipeline or base.endswith(".json")):
                wanted.add(name)
        elif not (skip and re.fullmatch(skip, folder)) and (
            name in shards or ((folder or not pipeline) and _asked_for(base, folders[folder], present, folder))
        ):
            wanted.add(name)
    return wanted


def _at(folder: str, base: str) -> str:
    return f"{folder}/{base}" if folder else base


def _loads(base: str, standard: Collection[str]) -> bool:
    """Whether a file that is there is loaded: not where a standard safetensors file, of those, stands beside it."""
    if base.endswith(_OTHER_FORMATS):
        return not standard
    return not base.endswith(".safetensors") or not standard or base in standard


def _asked_for(base: str, siblings: Collection[str], present: Collection[str], folder: str) -> bool:
    """Whether a loader fails, or goes to the network, when this file is not there."""
    if weights := _WEIGHTS.fullmatch(base):
        alike = [found for found in map(_WEIGHTS.fullmatch, siblings) if found]
        here = [found for found in alike if _at(folder, found[0]) in present]
        sharded = _is_sharded(weights)
        if not here:
            return not sharded or all(map(_is_sharded, alike))
        return any(_is_sharded(found) == sharded for found in here)
    if folder == "scheduler":
        return False
    if folder.startswith("tokenizer"):
        if base in ("tokenizer.json", "tokenizer_config.json"):
            return True
        return base in ("vocab.json", "merges.txt", "spiece.model") and "tokenizer.json" not in siblings
    return base == "config.json"


def _is_sharded(weights: re.Match[str]) -> bool:
    return weights[2] is not None or weights[3] is not None
