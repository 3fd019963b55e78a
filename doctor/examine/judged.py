"""What of a run was judged, and what was not: the outcomes of the rules, by what they look at. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from ..model import SEVERITIES, Facts, ModelFolder, Report, Run, Unjudged, Unknown
from ..model.findings import NOT_SELECTED
from ..model.record import replace
from ..rules import Rule
from .certain import doubts_of

# What the facts are about that a rule asks for; the first that fits. A rule that asks for none is about settings.
AREAS: Mapping[str, tuple[str, ...]] = {
    "the numbers": ("lora_values",),
    "the names": ("lora",),
    "the script": ("script", "microstep"),
    "packages": ("environment", "packages", "client"),
    "memory": ("memory",),
    "model files": ("model", "adapter", "starting_lora", "start", "hub", "storage"),
    "datasets": ("datasets",),
    "graphics card": ("gpus",),
    "this computer": ("host",),
    "disk space": ("room",),
    "paths": ("files", "writes", "earlier", "remains"),
}
# What every training has: where no rule found anything to look at, it was not judged either.
_OF_TRAINING = ("model files", "memory", "datasets")
_OF_ANY_RUN = ("disk space", "paths")  # the rules on them look at trainings that zdoctor knows
_NOTHING = "nothing of it was found to look at"
_NO_TRAINING = "what this trains is not known"


def judged(report: Report, facts: Sequence[Facts], asked: Sequence[Rule], offered: Sequence[Rule]) -> Report:
    """The report with what was judged and what was not, each with the reason of the gravest rule that says so.

    `facts` are those of each run, `asked` the rules that were asked, `offered` all that could have been.
    """
    areas = {rule.id: about(rule) for rule in asked}
    gravest = {rule.id: SEVERITIES.index(rule.severity) for rule in asked}
    gaps: dict[str, str] = {}
    for outcome in sorted(report.unknown, key=lambda one: (gravest.get(one.rule, 0), one.rule)):
        gaps.setdefault(areas.get(outcome.rule, "settings"), outcome.reason)
    for outcome in report.crashed:
        gaps.setdefault(areas.get(outcome.rule, "settings"), f"{outcome.rule} crashed")
    for one in facts:
        if isinstance(one.run, Run) and (why := next(doubts_of(one.run), "")):
            gaps.setdefault("settings", why)
        for what, reason in product(("settings", "datasets", "paths"), _unread(one)):
            gaps.setdefault(what, reason)
        parts = one.model
        if isinstance(parts, ModelFolder) and parts.layout == "part-files" and "transformer" not in parts.components:
            gaps.setdefault("model files", "the transformer is not there")
        for reason in _unopened(one):
            gaps.setdefault("datasets", reason)
        for reason in _not_there(one):
            gaps.setdefault("datasets", reason)
            gaps.setdefault("paths", reason)
    answered = {areas[id] for id in (*report.passed, *(f.rule for f in report.findings)) if id in areas}
    trains = any(isinstance(one.run, Run) and one.run.kind != "other" for one in facts)
    others = any(isinstance(one.run, Run) and one.run.kind == "other" for one in facts)
    for what in (*_OF_TRAINING, *(_OF_ANY_RUN if others else ())):
        if what not in answered:
            gaps.setdefault(what, _NOTHING if trains else _NO_TRAINING)
    for what in {about(rule) for rule in offered} - set(areas.values()):
        gaps[what] = NOT_SELECTED
    order = [*_OF_TRAINING, *(name for name in ("settings", *AREAS) if name not in _OF_TRAINING)]
    return replace(
        report,
        judged=tuple(name for name in order if name in answered and name not in gaps),
        not_judged=tuple(Unjudged(name, gaps[name]) for name in order if name in gaps),
    )


def by_area(report: Report, asked: Sequence[Rule], others: Mapping[str, str] | None = None) -> Report:
    """The report with the areas that were judged, where no run is looked at; `others` were not, for these reasons."""
    gaps = {about(rule): outcome.reason for outcome in report.unknown for rule in asked if rule.id == outcome.rule}
    gaps |= others or {}
    return replace(
        report,
        judged=tuple(area for area in dict.fromkeys(map(about, asked)) if area not in gaps),
        not_judged=tuple(Unjudged(area, reason) for area, reason in gaps.items()),
    )


def about(rule: Rule) -> str:
    """What of a run a rule looks at, as `not_judged` names it."""
    return next((name for name, facts in AREAS.items() if any(need in facts for need in rule.needs)), "settings")


def _unread(facts: Facts) -> Iterator[str]:
    """The files that the config names and that cannot be read, and datasets that it leads to none of."""
    config, run = facts.config, facts.run
    if isinstance(config, Unknown) or isinstance(run, Unknown) or run.kind == "other":
        return
    yield from (f"{file.path} cannot be read" for file in config.beside if file.problem is not None)
    if not run.recipe.datasets:
        yield "the config leads to no dataset that could be read"


def _not_there(facts: Facts) -> Iterator[str]:
    """The datasets of which nothing is on this machine: not even whether they can be written to is known."""
    run, folders = facts.run, facts.datasets
    if isinstance(run, Unknown) or isinstance(folders, Unknown):
        return
    seen = {folder.key for folder in folders}
    for dataset in run.recipe.datasets:
        if not any(key == dataset.key or key.startswith(f"{dataset.key}/") for key in seen):
            if dataset.folder is None:
                yield f"{dataset.key} names no folder that could be looked at"
            else:
                yield f"{dataset.folder} is no folder of pictures on this machine"


def _unopened(facts: Facts) -> Iterator[str]:
    """Why pictures of a dataset that is there were not looked at."""
    for folder in () if isinstance(facts.datasets, Unknown) else facts.datasets:
        if left := folder.more + folder.unlisted:
            yield f"{left} of the pictures and folders in {folder.path} were not opened"
        elif not folder.images:
            holds = "other files than pictures, and they are not looked into" if folder.others else "no picture"
            yield f"{folder.path} holds {holds}"
