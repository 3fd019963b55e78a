"""Rules as one JSON object, schema zdoctor.rules/1. Changes are additive only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypedDict

from ..doctor.model import Severity
from ..doctor.rules import Rule, cures_of
from . import words
from .json import Head, dumps, head, shown


class Measured(TypedDict):
    """How many errors a rule found on so many configs found outside, and how many of them were false: after rules
    were mended by these configs, and on those of them that were counted before anything was mended by them."""

    errors: int
    false: int
    configs: int
    unseen_errors: int
    unseen_false: int
    unseen_configs: int


class ShownRule(TypedDict):
    """A rule. `trainers` are those whose configs it is about, none: all; "every trainer" are all but zdoctor itself.
    `repairs` are what it can do about a finding. `measured` is null where no error of it was met."""

    rule: str
    name: str
    severity: Severity
    title: str
    what: str | None
    why: str | None
    repair: str | None
    upstream: str | None
    signature: str | None
    repairs: list[str]
    trainers: Sequence[str]
    plugin: str | None
    measured: Measured | None


class RulesDocument(Head):
    """The rules that were asked for."""

    schema: Literal["zdoctor.rules/1"]
    rules: list[ShownRule]


def render(rules: Iterable[Rule], measured: Mapping[str, Measured], version: str = "") -> str:
    """One JSON object; `measured` by the rules' ids."""
    document: RulesDocument = {
        "schema": "zdoctor.rules/1",
        **head(version, 0),
        "rules": [_rule(rule, measured.get(rule.id)) for rule in rules],
    }
    return dumps(document)


def _rule(rule: Rule, measured: Measured | None) -> ShownRule:
    told = dict(words.sections(rule))
    sections = {name.lower(): told.get(name) for name in ("What", "Why", "Repair", "Upstream", "Signature")}
    repairs = cures_of(rule.id)
    return shown(
        ShownRule, rule, rule=rule.id, repairs=repairs, plugin=rule.plugin or None, measured=measured, **sections
    )
