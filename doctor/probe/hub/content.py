"""What one file should hold and whether it does: manifest, link chain, size, structure, digest."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ...files import fingerprints
from ...model import HubFile, Unknown, WeightFile
from ...model.record import dataclass, replace
from ..world import Stat, World
from ..world.safetensors import read_header
from .caches import is_safe

SMALL = 1 << 20  # files up to this size are hashed on every look
MANIFEST_LIMIT = 8 << 20
_DIGEST = {40: "git-sha1", 64: "sha256"}


class Unreadable(Exception):
    """The system would not let us look; the whole fact is unknown then."""


@dataclass(frozen=True)
class Expected:
    """What a file should be; None where nothing on this machine says so."""

    size: int | None
    digest: str | None


def known(value: Any) -> Any:
    """`value`, unless the system refused to tell."""
    if isinstance(value, Unknown):
        raise Unreadable(value.reason)
    return value


def manifest(world: World, path: str) -> Mapping[str, Expected] | str | None:
    """Files of `trees/<commit>.json` by name; None when there is none, else why it cannot be used.

    The client writes it for its user alone (mode 0600): in a cache that people share it counts as absent for others.
    """
    stat = known(world.stat(path))
    if stat is None:
        return None
    if stat.kind != "file" or stat.size > MANIFEST_LIMIT:
        return "not a file list that the hub client wrote"
    text = world.read(path, 0, MANIFEST_LIMIT)
    if isinstance(text, Unknown):
        return None
    try:
        data = json.loads(text)
        if data["format_version"] != 1:
            return None  # of a newer client: its meaning is not known, and the client ignores it as well
        files = {name: _expected(entry) for name, entry in data["files"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return f"not a file list: {type(error).__name__}"
    unsafe = [name for name in files if not is_safe(name)]
    return f"names {unsafe[0]!r}, which lies outside the snapshot" if unsafe else files


def _expected(entry: Mapping[str, Any]) -> Expected:
    size, blob, sha256 = entry["size"], entry["blob_id"], entry.get("lfs_sha256")
    digest = digest_of_blob(sha256 if sha256 is not None else blob)
    if type(size) is not int or size < 0 or digest is None:
        raise ValueError("a file without size or content address")
    return Expected(size, digest)


def digest_of_blob(name: str) -> str | None:
    """The digest that a blob's name promises: 40 hex digits are a git sha1, 64 a sha256."""
    return f"{_DIGEST[len(name)]}:{name}" if re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", name) else None


def examine(
    world: World,
    cache: str,
    snapshot: str,
    name: str,
    expected: Expected | None,
    *,
    needed: bool,
    hashed: Mapping[str, str | Unknown],
) -> HubFile:
    """Look at one file of a snapshot; `hashed` are the digests of large files, by their path in the snapshot.

    Raises Unreadable where the system does not let us.
    """
    path = world.below(snapshot, name)
    first = known(world.stat(path))
    is_link = isinstance(first, Stat) and first.kind == "link"
    target = world.flavour.normpath((first.target or "").replace("\\", world.flavour.sep)) if is_link else ""
    named = digest_of_blob(world.name(target))
    size = expected.size if expected else None
    digest = expected.digest if expected and expected.digest else named
    final, stat = world.resolve(path)
    if isinstance(stat, Unknown) and "loop" not in stat.reason:
        raise Unreadable(stat.reason)
    blob = final if is_link and final.startswith(cache + world.flavour.sep) else None
    file = HubFile(name, path, blob, "ok", size, digest, needed=needed)
    if not isinstance(stat, Stat):
        loop = "the links lead in a circle" if isinstance(stat, Unknown) else ""
        return replace(file, state="dangling" if is_link else "missing", detail=loop)
    if stat.kind != "file":
        return replace(file, state="missing", detail="a folder lies in its place")
    file = replace(file, actual_size=stat.size)
    if is_link and named is not None and digest is not None and named != digest:
        return replace(file, state="wrong-link", detail=f"its link leads to {named}")
    if not needed:
        return file if size is None or stat.size == size else replace(file, state="wrong-size")
    seen = structure(world, final, stat) if name.endswith(".safetensors") else None
    if size is not None and stat.size != size:
        disguised = seen is not None and seen.problem == "not-safetensors"
        return replace(file, state="wrong-size", detail=seen.detail if seen and disguised else "")
    if seen is not None and seen.problem is not None:
        return replace(file, state="broken-structure", detail=seen.detail or seen.problem)
    if digest is not None and (stat.size <= SMALL or path in hashed):
        actual = hashed[path] if path in hashed else digest_of(world, final, digest)
        if isinstance(actual, Unknown):
            return replace(file, unread=actual.reason)
        if actual != digest:
            return replace(file, state="wrong-content", detail=f"its content is {actual}")
        return replace(file, verified=True)
    if digest is None and name.endswith(".json") and stat.size <= SMALL and not is_json(world, final):
        return replace(file, state="broken-structure", detail="not JSON")
    return file


def is_json(world: World, path: str) -> bool:
    """Whether a small file is a JSON text. Raises Unreadable."""
    try:
        json.loads(known(world.read(path, 0, SMALL)))
    except (ValueError, RecursionError):
        return False
    return True


def kind_of(digest: str) -> str:
    return digest.partition(":")[0]


def digest_of(world: World, path: str, like: str) -> str:
    """The digest of a small file, of the same kind as `like`."""
    kind = kind_of(like)
    return f"{kind}:{fingerprints.of_bytes(known(world.read(path)), kind)}"


def structure(world: World, path: str, stat: Stat) -> WeightFile:
    """A safetensors file by its header alone; its `problem` is None when the header and the size agree."""
    seen = read_header(world, path, path, stat)
    if seen.problem == "unreadable":
        raise Unreadable(seen.detail)
    return seen
