"""Every way in which a hub cache is known to break, and what the hub rules alone say of one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from zdoctor.checks.hub import files as hub
from zdoctor.checks.hub import use as hub_use
from zdoctor.doctor.examine.engine import cures, examine
from zdoctor.doctor.model import Facts, Finding, Report, Run, Value, Where
from zdoctor.doctor.model.recipe import Recipe
from zdoctor.doctor.probe.hub import probe_hub
from zdoctor.doctor.probe.world import World
from zdoctor.doctor.rules import Repair, Rule
from zdoctor.fixes import hub as fixes
from zdoctor.tests.hub_cache import BIG, LAYOUTS, MODEL, REPO, SHARD, VAE, Cache


def run_with(model: str | None = REPO, extras: str | None = None, adapter: str | None = None) -> Run:
    """A run whose config names these, at line 7."""
    named = {"base_model": model, "extras_model": extras, "adapter": adapter}
    keys = {name: f"model/{name}" for name in named}
    settings = {
        keys[name]: Value(value, Where("job.yaml", 7, 3, f"/{keys[name]}"), 0, 1)
        for name, value in named.items()
        if value is not None
    }
    return Run(
        trainer="ai-toolkit",
        config="job.yaml",
        root="",
        index=0,
        kind="lora",
        process_type="sd_trainer",
        name="job",
        settings=settings,
        keys=keys,
        recipe=Recipe(architecture="zimage", base_model=model, extras_model=extras, adapter=adapter),
    )


RULES: tuple[Rule, ...] = tuple(
    made
    for module in (hub, hub_use)
    for function in vars(module).values()
    for made in getattr(function, "zdoctor_rules", ())
)


def repairs() -> dict[str, tuple[Repair, ...]]:
    made: dict[str, tuple[Repair, ...]] = {}
    for function in vars(fixes).values():
        for repair in getattr(function, "zdoctor_repairs", ()):
            made[repair.id] = (*made.get(repair.id, ()), repair)
    return made


ADVICE = ("HUB005", "HUB006", "HUB007")  # about how the run uses a cache, not about the cache


def check(world: World, run: Run, *, deep: bool = False, ignore: tuple[str, ...] = ADVICE) -> Report:
    """The report of the hub rules alone, with their fixes."""
    facts = Facts(run=run, system=world.system, hub=probe_hub(world, run, deep=deep), answers={})
    rules = [rule for rule in RULES if rule.id not in ignore]
    return cures(examine(facts, rules, config="job.yaml", trainer="ai-toolkit"), facts, repairs())


def said(report: Report) -> list[tuple[str, str]]:
    """(rule, file or ref) of every finding."""
    return [(f.rule, _what(f)) for f in report.findings]


def _what(finding: Finding) -> str:
    return str(finding.args.get("file", ""))


@dataclass(frozen=True)
class Sickness:
    """One way to break a cache. `raises` is what an offline load then says, None when it says nothing.

    `deep` where only reading everything shows it; `download` where the cure is to fetch exactly `file`, of which
    it downloads `missing` bytes where that is not the whole.
    """

    name: str
    rule: str
    file: str
    spoil: Callable[[Cache], None]
    raises: str | None
    layouts: tuple[str, ...] = LAYOUTS
    deep: bool = False
    download: bool = False
    missing: int | None = None

    @property
    def bytes(self) -> int:
        """What the cure downloads."""
        return self.missing if self.missing is not None else self.download * len(MODEL.get(self.file, b""))


def _content(name: str, change: Callable[[bytes], bytes]) -> Callable[[Cache], None]:
    def spoil(cache: Cache) -> None:
        path = cache.file(name).resolve()
        path.write_bytes(change(path.read_bytes()))

    return spoil


def _flip(data: bytes) -> bytes:
    return data[:-100] + bytes([data[-100] ^ 1]) + data[-99:]


def _remove(cache: Cache, *, link: bool, blob: bool) -> None:
    if blob:
        cache.file(SHARD).resolve().unlink(missing_ok=True)
    if link:
        cache.file(SHARD).unlink(missing_ok=True)


def _relink(cache: Cache) -> None:
    link = cache.file(SHARD)
    link.unlink()
    link.symlink_to(Path("../../../blobs") / cache.blob(BIG).name)


def _without_list(cache: Cache) -> None:
    _remove(cache, link=True, blob=True)
    cache.manifest.unlink()


def _left_over(change: Callable[[bytes], bytes], *, also: Callable[[Cache], None]) -> Callable[[Cache], None]:
    """As after a kill: what the client had downloaded of SHARD so far, under a name that it never looks for again."""

    def spoil(cache: Cache) -> None:
        also(cache)
        path = cache.repo / "blobs" / f"{cache.blob(SHARD).name}.0123abcd.incomplete"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(change(MODEL[SHARD]))
        os.utime(path, (1e9, 1e9))

    return spoil


def _gone(cache: Cache) -> None:
    _remove(cache, link=True, blob=True)


def _cut_and_unlisted(cache: Cache) -> None:
    _content(SHARD, lambda d: d[:-100])(cache)
    cache.manifest.unlink()


HTML = b"<!DOCTYPE html><html>rate limited</html>" * 9
CUT = "incomplete metadata"
GONE = "is incomplete"
NO_REF = "Cannot find an appropriate"
LINKED = ("linked", "shared")
SIZE = len(MODEL[SHARD])
SICK = (
    Sickness("truncated", "HUB001", SHARD, _content(SHARD, lambda d: d[:-100]), CUT, download=True, missing=100),
    Sickness(
        *("truncated-early", "HUB001", SHARD, _content(SHARD, lambda d: d[:5]), "header too small"),
        download=True,
        missing=SIZE - 5,
    ),
    Sickness(
        *("truncated-flipped", "HUB001", SHARD, _content(SHARD, lambda d: _flip(d)[:-50]), CUT),
        download=True,
        missing=50 + SIZE,
    ),
    Sickness(
        *("truncated-json", "HUB001", VAE, _content(VAE, lambda d: d[:-4]), "Expecting"), download=True, missing=4
    ),
    Sickness(*("truncated-unlisted", "HUB001", SHARD, _cut_and_unlisted, CUT, LINKED), download=True, missing=100),
    Sickness(
        *("left-over-longer", "HUB001", SHARD),
        _left_over(lambda d: d[:-7], also=_content(SHARD, lambda d: d[:-100])),
        CUT,
        download=True,
        missing=7,
    ),
    Sickness(
        *("left-over", "HUB002", SHARD, _left_over(lambda d: d[:9000], also=_gone), GONE),
        download=True,
        missing=SIZE - 9000,
    ),
    Sickness(
        *("left-over-whole", "HUB002", SHARD, _left_over(lambda d: d, also=_gone), GONE), download=True, missing=0
    ),
    Sickness(
        *("left-over-holes", "HUB002", SHARD, _left_over(lambda d: d[:500] + bytes(8500), also=_gone), GONE),
        download=True,
        missing=SIZE - 9000 + SIZE,
    ),
    Sickness("tail", "HUB001", SHARD, _content(SHARD, lambda d: d + b"\0" * 8), CUT, download=True),
    Sickness("flipped", "HUB001", SHARD, _content(SHARD, _flip), None, download=True),
    Sickness("flipped-big", "HUB001", BIG, _content(BIG, _flip), None, deep=True, download=True),
    Sickness("empty", "HUB001", SHARD, _content(SHARD, lambda d: b""), "header too small", download=True),
    Sickness("page", "HUB001", SHARD, _content(SHARD, lambda d: HTML), "header too large", download=True),
    Sickness("page-json", "HUB001", VAE, _content(VAE, lambda d: HTML), "Expecting value", download=True),
    Sickness("wrong-link", "HUB001", SHARD, _relink, None, LINKED),
    Sickness("dangling", "HUB002", SHARD, lambda c: _remove(c, link=False, blob=True), GONE, LINKED, download=True),
    Sickness("missing", "HUB002", SHARD, lambda c: _remove(c, link=True, blob=True), GONE, download=True),
    Sickness("unlinked", "HUB002", SHARD, lambda c: _remove(c, link=True, blob=False), GONE, LINKED),
    Sickness("missing-unlisted", "HUB002", SHARD, _without_list, "No such file", download=True),
    Sickness("dangling-ref", "HUB003", "", lambda c: _write(c.ref, "f" * 40), NO_REF),
    Sickness("newline-ref", "HUB003", "", lambda c: _write(c.ref, c.commit + "\n"), NO_REF),
    Sickness("empty-ref", "HUB003", "", lambda c: _write(c.ref, ""), "No such file"),
)


def _write(path: Path, text: str) -> None:
    path.write_text(text, newline="")


CASES = [(sickness, layout) for sickness in SICK for layout in sickness.layouts]
IDS = [f"{sickness.name}-{layout}" for sickness, layout in CASES]


def in_one_layout(sick: Iterable[Sickness]) -> list[Any]:
    """Each in one layout, the next in another; in all of them where `-m thorough` asks for it."""
    return [
        pytest.param(
            sickness,
            layout,
            id=f"{sickness.name}-{layout}",
            marks=[] if layout == sickness.layouts[at % len(sickness.layouts)] else [pytest.mark.thorough],
        )
        for at, sickness in enumerate(sick)
        for layout in sickness.layouts
    ]
