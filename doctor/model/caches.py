"""The hub caches of a machine as `zdoctor cache` shows them: every repository, its health, and what is of no use.

Sizes are bytes as the system gives them (measured); a content that several names lead to is counted once.
"""

from __future__ import annotations

from typing import Literal

from .hub import HubFile
from .record import dataclass

# verified: nothing is missing and every content was held against its digest; plausible: sizes, links and headers
# agree with the list of files, but some contents were not read; unknown: not all of that could be told.
Health = Literal["verified", "plausible", "unknown", "incomplete", "damaged"]
HEALTHS: tuple[Health, ...] = ("verified", "plausible", "unknown", "incomplete", "damaged")  # the worst last
Kind = Literal["model", "dataset", "space", "kernel"]
WasteKind = Literal["orphan", "detached", "left-over", "running", "quarantine", "unreferenced", "leaked"]


@dataclass(frozen=True)
class Revision:
    """One snapshot of a cached repository.

    `refs` are the branches and tags that name it; none: it is detached. `own` are the bytes of `size` that no other
    revision of the repository uses. `faults` are the damaged and missing files. `absent` counts the files of the
    list that are not here and that no loader asks for; `unread` those whose content was not held against a digest,
    of `unread_bytes`. `reason` says why the health is unknown.
    """

    commit: str
    refs: tuple[str, ...]
    health: Health
    files: int
    size: int
    own: int
    faults: tuple[HubFile, ...] = ()
    absent: int = 0
    unread: int = 0
    unread_bytes: int = 0
    reason: str = ""


@dataclass(frozen=True)
class Waste:
    """What takes space without being of use, in one repository ("" in `repo`: in the store that all share).

    `id` is the commit of a detached revision, or the repair that a quarantine folder belongs to. `health` is that of
    a detached revision; `last` is true where it is the only whole one of its repository.
    """

    kind: WasteKind
    repo: str
    paths: tuple[str, ...]
    size: int
    id: str = ""
    health: Health = "unknown"
    last: bool = False


@dataclass(frozen=True)
class CachedRepo:
    """One repository of a cache. `bad_refs` are (name, what it reads) of refs that lead to no snapshot here.

    `size` counts all of its folder, and its payloads in the shared store. `problem` says why it could not be looked
    at, "" when it could; then nothing else is known of it. `partly` is true where it has more files than are counted.
    """

    kind: Kind
    repo: str
    folder: str
    size: int = 0
    revisions: tuple[Revision, ...] = ()
    bad_refs: tuple[tuple[str, str], ...] = ()
    waste: tuple[Waste, ...] = ()
    problem: str = ""
    partly: bool = False

    @property
    def live(self) -> tuple[Revision, ...]:
        """The revisions that a branch or tag names; where none does, the newest."""
        return tuple(r for r in self.revisions if r.refs) or self.revisions[:1]

    @property
    def health(self) -> Health:
        """The worst of the live revisions; a ref that leads nowhere makes the repository damaged."""
        if self.problem or not self.revisions:
            return "unknown"
        if self.bad_refs:
            return "damaged"
        return max(self.live, key=lambda revision: HEALTHS.index(revision.health)).health


@dataclass(frozen=True)
class Cache:
    """One hub cache. `why` is the variable that names it, "default", or "found"; `problem` as in CachedRepo.

    `size` counts its repositories and the shared store, `free` what its disk has left (None: not known).
    """

    path: str
    why: str
    repos: tuple[CachedRepo, ...] = ()
    waste: tuple[Waste, ...] = ()
    size: int = 0
    free: int | None = None
    problem: str = ""


@dataclass(frozen=True)
class Duplicate:
    """The same content (by content address and size) in several files on disk; (size x copies - 1) bytes too many."""

    digest: str
    size: int
    paths: tuple[str, ...]

    @property
    def waste(self) -> int:
        return self.size * (len(self.paths) - 1)


@dataclass(frozen=True)
class Inventory:
    """All hub caches, the active one first; with `repo` only what concerns this repository."""

    caches: tuple[Cache, ...]
    duplicates: tuple[Duplicate, ...] = ()
    repo: str | None = None
    deep: bool = False

    @property
    def repos(self) -> tuple[CachedRepo, ...]:
        return tuple(repo for cache in self.caches for repo in cache.repos)

    @property
    def exit_code(self) -> int:
        """1 when a repository is damaged or incomplete, 3 when something could not be looked at, else 0."""
        if any(repo.health in ("damaged", "incomplete") for repo in self.repos):
            return 1
        return 3 if any(cache.problem for cache in self.caches) or any(repo.problem for repo in self.repos) else 0
