"""What is left of a file on this machine: a whole copy elsewhere, else a piece, so that only the rest is fetched."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence, Set

from ...model import HubFile, Unknown
from ...model.record import dataclass, field, replace
from ..world import Stat, World
from .caches import model_folders
from .content import SMALL, Expected, digest_of, digest_of_blob, kind_of, structure

Partials = tuple[tuple[str, int, bool], ...]  # as in HubRepo
_DISGUISES = (b"<", b"version https://git-lfs")


@dataclass(frozen=True)
class Search:
    """Looks for another copy of a file's content: blobs of every cache, then files of that name in `folders`.

    `listed` says what some of these folders should hold: a file that should be another is no copy, whatever its size.
    `rest` are files that are sought although nobody loads them.
    """

    world: World
    caches: Sequence[str]
    repo: str
    folders: Sequence[str]
    deep: bool
    partials: Partials
    listed: Mapping[str, Mapping[str, Expected | None]] = field(default_factory=dict)
    rest: Collection[str] = ()

    def remedied(self, file: HubFile) -> HubFile:
        """A file that is not as it should be, with where its content lies or was begun to be fetched.

        Only the digest can tell whether a copy or a piece is right, so a file without one gets none.
        """
        if file.state == "ok" or file.digest is None or not (file.needed or file.name in self.rest):
            return file
        final, stat = self.world.resolve(file.path)
        own = {final, stat.identity} - {None} if isinstance(stat, Stat) else set()
        for path in self._places(file):
            if self._is_good(path, file, own):
                stat = self.world.resolve(path)[1]
                size = file.size if file.size is not None or not isinstance(stat, Stat) else stat.size
                return replace(file, good_copy=path, size=size)
        pieces = self._pieces(file) if file.needed else ()
        return replace(file, prefix=max(pieces, key=lambda piece: piece[1], default=None))

    def _places(self, file: HubFile) -> Iterator[str]:
        join, address = self.world.join, (file.digest or "").partition(":")[2]
        yield join(self.repo, "blobs", address)
        for cache in self.caches:
            yield from (join(cache, name, "blobs", address) for name in model_folders(self.world, cache))
        for folder in self.folders:
            should = self.listed.get(folder, {}).get(file.name)
            if should is None or should.digest in (None, file.digest):
                yield self.world.below(folder, file.name)

    def _link_name(self, path: str) -> str | None:
        """What a snapshot's link promises. The first hop counts: names in the shared store are of another kind."""
        stat = self.world.stat(path)
        promised = self.world.name(stat.target or "") if isinstance(stat, Stat) and stat.kind == "link" else ""
        in_blobs = self.world.name(self.world.parent(path)) == "blobs"
        return None if in_blobs else digest_of_blob(promised)

    def _is_good(self, path: str, file: HubFile, own: Set[object]) -> bool:
        """Right size, not the bad file itself, and the right digest where that is cheap to say."""
        final, stat = self.world.resolve(path)
        if not isinstance(stat, Stat) or stat.kind != "file" or (stat.size == 0 and file.size != 0):
            return False
        if file.size is not None and stat.size != file.size:
            return False
        if self._link_name(path) not in (None, file.digest):
            return False  # a link to the content of another version
        if {final, stat.identity} & own:
            return False
        if isinstance(self.world.read(final, 0, 1), Unknown):
            return False
        if self.deep and stat.size > SMALL:
            return self.world.digests({final: kind_of(file.digest or "")})[final] == file.digest
        if stat.size <= SMALL:
            return digest_of(self.world, final, file.digest or "") == file.digest
        return not file.name.endswith(".safetensors") or structure(self.world, final, stat).problem is None

    def _pieces(self, file: HubFile) -> Iterator[tuple[str, int]]:
        """Left-over downloads of the file; itself, where it is too short and nothing else under its name."""
        address = (file.digest or "").partition(":")[2]
        for path, size, alive in self.partials:
            if not alive and address in self.world.name(path).split(".") and 0 < size <= (file.size or size):
                yield path, size
        final, stat = self.world.resolve(file.path)
        if file.state not in ("wrong-size", "broken-structure") or not isinstance(stat, Stat):
            return
        if not 0 < stat.size < (file.size or stat.size + 1):
            return
        if file.name.endswith(".safetensors"):
            if structure(self.world, final, stat).problem == "truncated":
                yield final, stat.size
            return
        start = self.world.read(final, 0, 64)
        if not isinstance(start, Unknown) and not start.lstrip().startswith(_DISGUISES) and file.size is not None:
            yield final, stat.size
