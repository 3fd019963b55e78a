"""What becomes of faults planted together: found, said not to be looked at, or missed; and what the repairs leave."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Literal

from zdoctor.doctor import apply as writer
from zdoctor.doctor.examine.engine import prescribe
from zdoctor.doctor.examine.examination import examine_config
from zdoctor.doctor.examine.judged import about
from zdoctor.doctor.model import Finding, Report, SetValue, Step
from zdoctor.doctor.rules import Rule, all_rules
from zdoctor.tests.hub_server import HubServer
from zdoctor.tests.pairs.patient import Fault, Impossible, Patient, copy, tree

MOST_ROUNDS = 8


@dataclass(frozen=True)
class Setup:
    """A healthy patient, the faults that it can have, and the repositories that its hub serves."""

    name: str
    make: Callable[[Path], Patient]
    faults: Sequence[Fault]


@dataclass
class Story:
    """The reports of a patient from the first to the one after the last repair, and what went wrong on the way."""

    reports: list[Report]
    objections: list[str] = field(default_factory=list)


Fate = Literal["found", "not looked at", "missed"]


@dataclass(frozen=True)
class Verdict:
    """What became of two faults: of each in the first report, and what is wrong with the whole story."""

    faults: tuple[Fault, Fault]
    fates: tuple[Fate, Fate]
    objections: tuple[str, ...]


class Ward:
    """A setup on disk, spoiled and put right again and again in one folder, so that all paths stay the same."""

    def __init__(self, setup: Setup, folder: Path, *, repairs: bool = True) -> None:
        self.setup, self._folder, self._repairs = setup, folder, repairs
        self.sound = folder / "sound"
        self.sound.mkdir(parents=True)
        self._patient = setup.make(self.sound)
        self._usual: set[str] = set()
        self.healthy = self.story(())
        self._usual = {fix.rule for fix in prescribe(self.healthy.reports[0]).fixes}
        self.alone: dict[str, Story] = {}

    def story_of(self, fault: Fault) -> Story:
        """The story of a patient with this fault alone."""
        if fault.name not in self.alone:
            self.alone[fault.name] = self.story((fault,))
        return self.alone[fault.name]

    def story(self, faults: Sequence[Fault]) -> Story:
        """Plant the faults, look, repair until nothing is offered, and take everything back. Raises Impossible."""
        if len(faults) > 1:
            for fault in faults:
                self.story_of(fault)  # in the same folder
        patient = self._planted(faults)
        story = Story([_look(patient)])
        # what is offered to the healthy patient too was tried there
        mends = self._repairs and {fix.rule for fix in prescribe(story.reports[0]).fixes} - self._usual
        if mends and not self._apart(faults, story.reports[0]):
            self._repair(patient, story)
        return story

    def _apart(self, faults: Sequence[Fault], report: Report) -> bool:
        """Whether both are found and repaired as if each were alone, at places of their own: that was tried there."""
        if len(faults) < 2 or any(self.fate(fault, report) != "found" for fault in faults):
            return False
        alone = [prescribe(self.story_of(fault).reports[0]).fixes for fault in faults]
        one, other = ([step for fix in fixes for step in fix.steps] for fixes in alone)
        clash = any(_clash(mine, theirs) for mine in one for theirs in other)
        return not clash and {*prescribe(report).fixes} == {*alone[0], *alone[1]}

    def _planted(self, faults: Sequence[Fault]) -> Patient:
        try:
            return self._in_order(faults)
        except Impossible:
            return self._in_order(tuple(reversed(faults)))

    def _in_order(self, faults: Sequence[Fault]) -> Patient:
        copy(self._patient.root, self._folder / "patient")
        patient = deepcopy(self._patient)
        patient.root = self._folder / "patient"
        for fault in faults:
            fault.plant(patient)
        return patient

    def _repair(self, patient: Patient, story: Story) -> None:
        """As `fix --apply` does, over and over; then as `undo`."""
        before, state, first = tree(patient.root), self._folder / "state", None
        try:
            while len(story.reports) <= MOST_ROUNDS:
                plan = prescribe(story.reports[-1])
                if not plan.fixes:
                    break
                done = writer.apply(plan, binding=writer.bind(plan), state=state, group=first)
                first = first or done.id
                story.reports.append(_look(patient))
            else:
                story.objections.append("repairs are offered again and again")
        except writer.ApplyError as error:
            story.objections.append(f"the repair fails: {error}")
        if first is not None:
            writer.undo(state=state)
        shutil.rmtree(state, ignore_errors=True)  # each writer reads all journals
        after = tree(patient.root)
        changed = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
        if changed:
            story.objections.append(f"undo leaves {', '.join(changed[:3])}")

    def verdict(self, one: Fault, other: Fault) -> Verdict:
        """What becomes of both. Raises Impossible where they cannot be there together."""
        story = self.story((one, other))
        fates = (self.fate(one, story.reports[0]), self.fate(other, story.reports[0]))
        objections = list(story.objections)
        for fault, fate in zip((one, other), fates, strict=True):
            later = [self.fate(fault, report) for report in story.reports]
            if fate == "not looked at" and "found" not in later and later[-1] == "missed":
                objections.append(f"{fault.name} is not found after the repairs")
        objections += self._new(story, one, other)
        objections += [f"{outcome.rule} crashed: {outcome.reason}" for r in story.reports for outcome in r.crashed]
        return Verdict((one, other), fates, tuple(dict.fromkeys(objections)))

    def fate(self, fault: Fault, report: Report) -> Fate:
        known = {_key(finding) for finding in self.healthy.reports[0].findings}
        mine = [f for f in report.findings if f.rule in fault.rules and fault.about in _said(f)]
        if any(_key(finding) not in known for finding in mine):
            return "found"
        healthy = self.healthy.reports[0]
        silent = {outcome.rule for outcome in {*report.unknown} - {*healthy.unknown}}
        areas = {one.what for one in report.not_judged} - {one.what for one in healthy.not_judged}
        said = any(rule.id in silent or areas & _areas(rule) for rule in all_rules() if rule.id in fault.rules)
        return "not looked at" if said else "missed"

    def _new(self, story: Story, one: Fault, other: Fault) -> Iterator[str]:
        """Findings after the repairs that neither fault explains."""
        new = _unexplained(story.reports[-1].findings, [story.reports[0], *self.healthy.reports])
        for fault in (one, other):
            if new:  # a story costs much, and most have nothing to explain
                new = _unexplained(new, self.story_of(fault).reports)
        for finding in new:
            yield f"after the repairs: {finding.rule} {finding.text()}"

    def pairs(self, only: Callable[[int], bool] = lambda number: True) -> Iterator[Verdict | tuple[Fault, Fault]]:
        """The verdict of every two faults, or the two where they cannot be there together."""
        for number, (one, other) in enumerate(combinations(self.setup.faults, 2)):
            if only(number):
                try:
                    yield self.verdict(one, other)
                except Impossible:
                    yield one, other


def _clash(one: Step, other: Step) -> bool:
    """Whether two steps write one file, and not each a value that stands there, in another section."""
    if one.written[0] != other.written[0]:
        return False
    if not isinstance(one, SetValue) or not isinstance(other, SetValue):
        return True
    return one.pointer.rpartition("/")[0] == other.pointer.rpartition("/")[0]


def _areas(rule: Rule) -> set[str]:
    """What a rule looks at, as a report names it: one that asks for the config looks at settings, too."""
    return {about(rule), *(["settings"] if "config" in rule.needs else [])}


def _look(patient: Patient) -> Report:
    return examine_config(str(patient.path), patient.world()).report


def _key(finding: Finding) -> tuple[str, str]:
    return finding.rule, finding.text()


def _place(finding: Finding) -> tuple[str, str | None]:
    return finding.rule, finding.where.pointer if finding.where is not None else None


def _unexplained(findings: Sequence[Finding], told: Sequence[Report]) -> list[Finding]:
    """The findings that none of the reports has at the same place."""
    known = {_place(finding) for report in told for finding in report.findings}
    return [finding for finding in findings if _place(finding) not in known]


def _said(finding: Finding) -> str:
    where = finding.where
    place = (where.path, where.pointer or "") if where is not None else ()
    return " ".join((finding.text(), finding.consequence(), *place))


def serve(ward: Ward) -> HubServer:
    """A hub that has what lies in the sound patient's cache, at the same commits."""
    hub = HubServer({})
    for root in (ward.sound / "hf" / "hub").glob("models--*"):
        repo = root.name.removeprefix("models--").replace("--", "/")
        hub.commits[repo] = {
            snapshot.name: {
                str(path.relative_to(snapshot)): path.read_bytes()
                for path in sorted(snapshot.rglob("*"))
                if path.is_file()
            }
            for snapshot in (root / "snapshots").iterdir()
        }
    return hub
