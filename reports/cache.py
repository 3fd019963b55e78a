"""An inventory of the hub caches as a person reads it. Lines are those of the terminal report."""

from __future__ import annotations

from collections.abc import Iterator

from ..doctor.model import HubFile
from ..doctor.model.amounts import amount, plural
from ..doctor.model.caches import HEALTHS, Cache, CachedRepo, Inventory, Revision, Waste
from ..doctor.model.columns import cells, padded
from ..doctor.model.said import AsIs, filled, joined, listed, said
from ..doctor.model.shell import quoted
from .painting import Line, Wrapped
from .waste import MANY, advice, twins

STYLES = {
    "verified": "bold green",
    "plausible": "",
    "unknown": "magenta",
    "incomplete": "bold red",
    "damaged": "bold red",
}
MOST_FAULTS = 10
FAULTS = {
    "missing": "is missing",
    "dangling": "is a link to nothing",
    "wrong-link": "is linked to the content of another file",
    "wrong-size": "has {actual} bytes and should have {size}",
    "wrong-content": "does not hold what was published, by its digest (measured)",
    "ok": "is there, but noted as non-existent (.no_exist), so loaders do not see it",
}


def lines(inventory: Inventory) -> Iterator[Line]:
    """The whole inventory, ending with what to type next."""
    caches = inventory.caches
    size = sum(cache.size for cache in caches)
    measured = joined(", ", [plural(len(caches), "hub cache"), f"{amount(size)} (measured, each file once)"])
    typed = _typed(inventory.repo, "--deep" if inventory.deep else "")
    yield [("bold", typed), ("", "   "), ("dim", measured)]
    for number, cache in enumerate(caches):
        if inventory.repo is None or cache.repos or cache.problem:
            yield []
            yield from _cache(cache, active=number == 0, inventory=inventory)
    if inventory.duplicates:
        yield []
        yield from _duplicates(inventory)
    careful = list(_prune(caches[0])) if caches else []
    if careful:
        yield []
        told = filled("hf cache prune would delete {careful}.", {"careful": listed(careful)})
        yield Wrapped(told, "careful: ", "yellow")
    yield []
    yield from _next(inventory)


def _cache(cache: Cache, *, active: bool, inventory: Inventory) -> Iterator[Line]:
    yield [("bold", cache.path), ("", "   "), ("dim", _why(cache.why, active))]
    if cache.problem:
        yield Wrapped(f"It cannot be looked at: {cache.problem}.", "  ", "magenta")
        return
    if not cache.repos:
        yield [("dim", "  nothing is cached here")]
    else:
        free = "" if cache.free is None else f"{amount(cache.free)} free on its disk"
        count = len(cache.repos)
        repositories = f"{count:,} repositor{'y' if count == 1 else 'ies'}"
        yield [("", "  "), ("dim", joined(", ", [amount(cache.size), repositories, free]))]
        if not active:
            yield [("dim", f"  HF_HUB_CACHE={quoted(cache.path)} makes it the one in use")]
    held = [repo for repo in cache.repos if repo.revisions or repo.problem]
    for repo in sorted(held, key=lambda r: (-HEALTHS.index(r.health), -r.size, r.repo)):
        yield from _repo(repo, inventory.deep)
    empty = [repo.repo for repo in cache.repos if repo not in held]
    if empty:
        names = ", ".join(empty[:4]) + (", …" if len(empty) > 4 else "")
        yield Wrapped(f"no file of it is here: {names}", _lead("empty"), "dim")
    yield from _all_waste(cache, active)


def _all_waste(cache: Cache, active: bool) -> Iterator[Line]:
    waste = [(repo, item) for repo in cache.repos for item in repo.waste] + [(None, item) for item in cache.waste]
    if waste:
        freed = sum(item.size for _, item in waste if item.kind != "running")
        yield []
        yield [("", "  "), ("bold", f"waste: {amount(freed)}"), ("dim", " (measured; zdoctor deletes nothing here)")]
    for owner, item in sorted(waste, key=lambda pair: -pair[1].size):
        yield from _waste(item, cache, owner, active)


def _why(why: str, active: bool) -> str:
    if why == "found":
        return "not in use: found on another disk, no variable names it"
    if not active:
        return f"not in use: {'the default place' if why == 'default' else f'the place that {why} gives'}"
    return "in use: the default, as neither HF_HUB_CACHE nor HF_HOME is set" if why == "default" else f"in use: {why}"


def _repo(repo: CachedRepo, deep: bool) -> Iterator[Line]:
    kind = "" if repo.kind == "model" else f"{repo.kind} "
    lead = _lead(repo.health)
    size = "" if repo.problem else f"{'at least ' if repo.partly else ''}{amount(repo.size)}"
    refs = ", ".join(f"{r.commit[:8]} ({', '.join(r.refs) or 'no branch'})" for r in repo.live[:3])
    yield [(STYLES[repo.health], lead), ("bold", f"{kind}{repo.repo}"), ("dim", f"   {size}  {refs}")]
    inside = " " * cells(lead)
    if repo.problem:
        yield Wrapped(f"It cannot be looked at: {repo.problem}.", inside)
    for name, content in repo.bad_refs:
        reads = f"reads {content!r}" if content else "is empty"
        yield Wrapped(f"refs/{name} {reads}: of that, no snapshot is here.", inside)
    for revision in repo.live:
        yield from _revision(revision, inside)
    if repo.kind == "model" and repo.health in ("damaged", "incomplete"):
        yield [("", inside), ("dim", "repair: "), ("green", _typed(repo.repo, "--fix", "--deep" if deep else ""))]


def _lead(health: str) -> str:
    return AsIs(f"  {padded(said(health), 11)} ")


def _typed(repo: str | None, *words: str) -> str:
    return " ".join(filter(None, ("zdoctor cache", repo, *words)))


def _revision(revision: Revision, inside: str) -> Iterator[Line]:
    for fault in revision.faults[:MOST_FAULTS]:
        yield Wrapped(_fault(fault), inside)
    more = len(revision.faults) - MOST_FAULTS
    if more > 0:
        yield [("", f"{inside}… "), ("", plural(more, "more file"))]
    if revision.reason:
        yield Wrapped(revision.reason, inside, "magenta")
    if revision.unread and revision.health in ("plausible", "unknown"):
        unread = f"{plural(revision.unread, 'file')} of {amount(revision.unread_bytes)} not compared with a digest"
        yield [("", inside), ("dim", unread)]
    if revision.absent and not revision.reason:
        files = plural(revision.absent, "file")
        yield [("", inside), ("dim", f"{files} of the repository not downloaded, none that a loader needs")]


def _fault(fault: HubFile) -> str:
    if fault.detail and fault.state != "wrong-content":
        return f"{fault.name}: {fault.detail}."
    text = FAULTS.get(fault.state, "")
    return f"{fault.name} {text.format(actual=fault.actual_size, size=fault.size)}."


def _waste(waste: Waste, cache: Cache, repo: CachedRepo | None, active: bool) -> Iterator[Line]:
    told = advice(waste, cache, repo, active)
    what = joined(": ", [AsIs(waste.repo or ""), told.what])
    yield [("", f"  {amount(waste.size):>11} "), ("yellow" if told.keep else "", what)]
    inside = " " * 14
    yield Wrapped(told.text, inside, "dim")
    if waste.kind in ("orphan", "leaked") and len(waste.paths) > MANY:
        yield [("dim", f"{inside}the paths: {_typed(waste.repo, '--format json')}")]
    if told.command:
        yield [("green", f"{inside}$ {told.command}")]


def _duplicates(inventory: Inventory) -> Iterator[Line]:
    duplicates = inventory.duplicates
    total = sum(duplicate.waste for duplicate in duplicates)
    yield [
        ("bold", f"the same content in several files: {amount(total)} too much"),
        ("dim", " (by content address and size)"),
    ]
    for duplicate in duplicates[:5]:
        files = f"{len(duplicate.paths)} files of {amount(duplicate.size)} each:"
        yield [("", f"  {amount(duplicate.waste):>11} "), ("", files)]
        for path in duplicate.paths[:4]:
            yield [("dim", f"{' ' * 14}{path}")]
    if len(duplicates) > 5:
        more = f"and {plural(len(duplicates) - 5, 'more content')}: --format json lists them"
        yield [("", " " * 14), ("dim", more)]
    text = "Each is used where it lies: delete a revision or a repository that you do not need, not one of the files."
    yield Wrapped(text, " " * 14, "dim")
    for repo, cache, command in twins(inventory):
        text = f"{repo.repo} is whole in the cache in use; its copy in {cache.path} is safe to delete unless a config"
        yield Wrapped(f"{text} names that path.", " " * 14, "dim")
        yield [("green", f"{' ' * 14}$ {command}")]


def _prune(cache: Cache) -> Iterator[str]:
    """What `hf cache prune` deletes, unasked, of what somebody may want to keep."""
    waste = [item for repo in cache.repos for item in repo.waste]
    kept = [w for w in waste if w.kind == "detached" and w.health not in ("damaged", "incomplete")]
    pinned = sum(1 for repo in cache.repos for r in repo.live if not r.refs)
    if len(kept) + pinned:
        yield plural(len(kept) + pinned, "revision") + " that no branch names"
    if any(item.kind == "running" for item in waste):
        yield "the files of running downloads"


def _next(inventory: Inventory) -> Iterator[Line]:
    bad = [r for r in inventory.repos if r.kind == "model" and r.health in ("damaged", "incomplete")]
    counts = [
        (health, sum(bool(r.revisions or r.problem) and r.health == health for r in inventory.repos))
        for health in HEALTHS
    ]
    text = joined(", ", [f"{count} {health}" for health, count in reversed(counts) if count] or ["nothing cached"])
    style = "bold red" if inventory.exit_code == 1 else "" if inventory.exit_code else "bold"
    yield [(style, text)]
    if bad:
        yield [
            ("bold", "next: "),
            ("", _typed(bad[0].repo, "--fix", "--deep" if inventory.deep else "")),
            ("dim", "   shows the plan"),
        ]
    elif not inventory.deep and dict(counts)["plausible"]:
        typed = _typed(inventory.repo, "--deep")
        yield [("bold", "next: "), ("", typed), ("dim", "   reads and compares every file")]
