"""Where else on this machine the content of a file lies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ...model import HubFile, Unknown
from ...model.record import dataclass, field, replace
from ..world import Stat, World
from .caches import model_folders
from .content import SMALL, Expected, digest_of, digest_of_blob, kind_of, structure


@dataclass(frozen=True)
class Search:
    """Looks for another copy of a file's content: blobs of every cache, then files of that name in `folders`.

    `listed` says what some of these folders should hold: a file that should be another is no copy, whatever its size.
    """

    world: World
    caches: Sequence[str]
    repo: str
    folders: Sequence[str]
    deep: bool
    listed: Mapping[str, Mapping[str, Expected | None]] = field(default_factory=dict)

    def with_copy(self, file: HubFile) -> HubFile:
        if file.digest is None:
            return file
        own = None if file.state in ("missing", "dangling") else self.world.resolve(file.path)
        for path in self._places(file):
            if self._is_good(path, file, own):
                stat = self.world.resolve(path)[1]
                size = file.size if file.size is not None or not isinstance(stat, Stat) else stat.size
                return replace(file, good_copy=path, size=size)
        return file

    def _places(self, file: HubFile) -> Iterator[str]:
        join, address = self.world.join, (file.digest or "").partition(":")[2]
        yield join(self.repo, "blobs", address)
        for cache in self.caches:
            yield from (join(cache, name, "blobs", address) for name in model_folders(self.world, cache))
        for folder in self.folders:
            should = self.listed.get(folder, {}).get(file.name)
            if should is None or should.digest in (None, file.digest):
                yield join(folder, *file.name.split("/"))

    def _link_name(self, path: str) -> str | None:
        """What a snapshot's link promises. The first hop counts: names in the shared store are of another kind."""
        stat = self.world.stat(path)
        promised = self.world.name(stat.target or "") if isinstance(stat, Stat) and stat.kind == "link" else ""
        in_blobs = self.world.name(self.world.parent(path)) == "blobs"
        return None if in_blobs else digest_of_blob(promised)

    def _is_good(self, path: str, file: HubFile, own: tuple[str, Stat | Unknown | None] | None) -> bool:
        """Right size, not the bad file itself, and the right digest where that is cheap to say."""
        final, stat = self.world.resolve(path)
        if not isinstance(stat, Stat) or stat.kind != "file" or (stat.size == 0 and file.size != 0):
            return False
        if file.size is not None and stat.size != file.size:
            return False
        if self._link_name(path) not in (None, file.digest):
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
