"""What to do about each kind of waste in a hub cache: in a sentence, and as what to type. zdoctor deletes nothing."""

from __future__ import annotations

from collections.abc import Iterator

from ..doctor.model.amounts import plural
from ..doctor.model.caches import Cache, CachedRepo, Inventory, Waste
from ..doctor.model.record import dataclass
from ..doctor.model.shell import quoted

MANY = 3  # more paths than this are listed in the JSON report


@dataclass(frozen=True)
class Advice:
    """`keep` is true where deleting it loses something."""

    what: str
    text: str
    keep: bool
    command: str = ""


def advice(waste: Waste, cache: Cache, repo: CachedRepo | None, active: bool) -> Advice:
    """The advice for waste of `repo` (None: of the shared store) in `cache`; `active`: that is where `hf` looks."""
    count = len(waste.paths)
    where = "" if active else f" --cache-dir {quoted(cache.path)}"
    if waste.kind == "orphan":
        text = "Used by no snapshot, and not found by hf. Safe to delete."
        return Advice(plural(count, "orphan blob"), text, False, _delete(waste))
    if waste.kind == "unreferenced":
        text = "Used by no repository any more. Safe to delete, but see what else hf cache prune deletes."
        return Advice(
            plural(count, "unreferenced payload") + " of the shared store", text, False, f"hf cache prune{where}"
        )
    if waste.kind == "leaked":
        text = (
            "Used by no repository, and hf cache prune never deletes it: its note of users is gone. Safe to delete."
        )
        return Advice(f"{plural(count, 'leaked payload')} of the shared store", text, False, _delete(waste))
    if waste.kind == "running":
        text = "A process has it open, or wrote to it in the last ten minutes: leave it alone."
        return Advice(plural(count, "running download"), text, True)
    if waste.kind == "left-over":
        return _left_over(waste, repo, count)
    if waste.kind == "quarantine":
        text = f"zdoctor undo {waste.id} puts it back. Once it is deleted, that repair cannot be taken back."
        return Advice(f"quarantine of repair {waste.id}", text, True, _delete(waste))
    return _detached(waste, where)


def _left_over(waste: Waste, repo: CachedRepo | None, count: int) -> Advice:
    what = plural(count, "left-over download")
    if repo is None or repo.kind != "model":
        return Advice(what, "The hub client never resumes it. Safe to delete.", False, _delete(waste))
    command = f"zdoctor cache {repo.repo} --fix"
    if repo.health == "incomplete" and repo.revisions:
        text = "The hub client never resumes it, but it may hold most of what is missing. Repair first."
        return Advice(what, text, True, command)
    return Advice(what, "The hub client never resumes it. The repair moves it into quarantine.", False, command)


def _detached(waste: Waste, where: str) -> Advice:
    what = f"revision {waste.id[:8]}, which no branch names ({waste.health})"
    if waste.last:
        text = "Keep it: it is the only whole one of its repository here, and hf cache prune would delete it."
        return Advice(what, text, True)
    broken = waste.health in ("damaged", "incomplete")
    text = "Safe to delete" if broken else "Safe to delete unless a config names this commit"
    return Advice(what, f"{text}.", not broken, f"hf cache rm {waste.id}{where}")


def twins(inventory: Inventory) -> Iterator[tuple[CachedRepo, Cache, str]]:
    """Repositories that the active cache holds as well, whole: with the cache they lie in and how to delete them."""
    active, others = inventory.caches[:1], inventory.caches[1:]
    good = {
        (repo.kind, repo.repo, revision.commit)
        for cache in active
        for repo in cache.repos
        for revision in repo.revisions
        if revision.health in ("verified", "plausible")
    }
    for cache in others:
        for repo in cache.repos:
            if repo.revisions and all((repo.kind, repo.repo, revision.commit) in good for revision in repo.revisions):
                yield repo, cache, f"hf cache rm {repo.kind}/{repo.repo} --cache-dir {quoted(cache.path)}"


def _delete(waste: Waste) -> str:
    """How to delete it by hand; "" where there are too many paths for one line."""
    if len(waste.paths) > MANY:
        return ""
    if "\\" in waste.paths[0]:
        verb = "cmd /c rmdir /s" if waste.kind == "quarantine" else "del"
    else:
        verb = "rm -r" if waste.kind == "quarantine" else "rm"
    return " ".join([verb, *map(quoted, waste.paths)])
