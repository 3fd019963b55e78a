"""Rules and repairs: plain functions that say what they need by their parameter names.

A rule is a generator of findings, a repair a generator of fixes. Both are found by walking the folders
`checks/` and `fixes/`; third-party packages add theirs, and model families, through the entry-point group
`zdoctor.plugins`.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from types import FunctionType, ModuleType
from typing import Any, Literal

from ..errors import UserError
from ..model import SEVERITIES, Facts, Finding, Fix, Severity
from ..model.lora import LORA
from ..model.record import dataclass, replace
from ..model.script import SCRIPT
from ..model.trainer import takes_in
from . import plugins

PACKAGE = __name__.split(".")[0]
Level = Severity | Literal["off"]
LEVELS: tuple[Level, ...] = (*SEVERITIES, "off")  # what a settings file may say of a rule
FACT_NAMES = frozenset(Facts.__match_args__)
_ID = re.compile(r"[A-Z]{3}\d{3}$")
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*$")

Check = Callable[..., Iterator[Finding]]
Cure = Callable[..., Iterator[Fix]]


class RuleError(Exception):
    """A rule or repair that is declared wrongly, or that does what it must not."""


class Unestablished(Exception):
    """Raised by a rule whose fact is known only in part: the rule is then unknown, with this message as reason."""


class NotApplicable(Exception):
    """Raised by a rule that has nothing to look at in this run. It did not pass, and nothing is said of it."""


@dataclass(frozen=True)
class Rule:
    """A check with its identity. `prevents` are (exception type, message pattern) pairs a crash log would show.

    `trainers` are those whose configs it is about, none for all, EVERY for all but zdoctor's own runner. `plugin`
    names the module of another package. `settled`: the user says how grave all that it finds is.
    """

    id: str
    name: str
    severity: Severity
    check: Check
    needs: tuple[str, ...]
    prevents: tuple[tuple[str, str], ...] = ()
    trainers: tuple[str, ...] = ()
    plugin: str = ""
    settled: bool = False

    def suits(self, trainer: str | None) -> bool:
        """Whether it says anything about this trainer's configs; a config that nobody claims is anybody's.

        Of a training script or a LoRA only its own rules say anything, and of the former the one about files that do
        not parse.
        """
        if any(own in self.trainers or trainer == own for own in (SCRIPT, LORA)):
            return trainer in self.trainers or (trainer == SCRIPT and self.needs == ("config",))
        return trainer is None or takes_in(self.trainers, trainer)

    @property
    def doc(self) -> str:
        import inspect

        return inspect.getdoc(self.check) or ""

    @property
    def title(self) -> str:
        return self.doc.partition("\n")[0]


@dataclass(frozen=True)
class Repair:
    """A function that prescribes fixes for one finding of the rule `id`."""

    id: str
    cure: Cure
    needs: tuple[str, ...]
    plugin: str = ""


Repairs = Mapping[str, Sequence[Repair]]


def rule(id: str, severity: Severity, name: str, *, trainers: tuple[str, ...] = ()) -> Callable[[Check], Check]:
    """Declare a check. Its parameters must be fields of Facts; `trainers` keeps it to the configs of these."""

    def declare(check: Check) -> Check:
        if not _ID.match(id) or not _NAME.match(name) or severity not in SEVERITIES:
            raise RuleError(f"{_named(check)}: bad id {id!r}, name {name!r} or severity {severity!r}")
        signatures = check.__dict__.get("zdoctor_prevents", ())
        check.__dict__["zdoctor_rules"] = (Rule(id, name, severity, check, _needs(check), signatures, trainers),)
        return check

    return declare


def prevents(exception: str, pattern: str) -> Callable[[Check], Check]:
    """Declare, below the rule, an exception type and a pattern of its message that a crash log would show."""

    def declare(check: Check) -> Check:
        check.__dict__["zdoctor_prevents"] = ((exception, pattern), *check.__dict__.get("zdoctor_prevents", ()))
        return check

    return declare


def repair(*ids: str) -> Callable[[Cure], Cure]:
    """Declare a cure for the rules `ids`. Its first parameter is the finding; the others are fields of Facts."""

    def declare(cure: Cure) -> Cure:
        needs = _needs(cure, skip=1)
        cure.__dict__["zdoctor_repairs"] = tuple(Repair(id, cure, needs) for id in ids)
        return cure

    return declare


def _needs(function: Callable[..., object], skip: int = 0) -> tuple[str, ...]:
    code = getattr(function, "__wrapped__", function).__code__  # to import inspect would take longer
    names = code.co_varnames[skip : code.co_argcount]
    for name in names:
        if name not in FACT_NAMES:
            facts = ", ".join(sorted(FACT_NAMES))
            raise RuleError(f"{_named(function)}: parameter {name!r} is no fact; facts are {facts}")
    return names


def _named(function: Callable[..., object]) -> str:
    return f"{function.__module__}.{function.__qualname__}"


def _modules(package: str) -> Iterator[ModuleType]:
    """A package with all that is in it, by its folders: pkgutil, which also looks into archives, imports inspect."""
    module = importlib.import_module(package)
    yield module
    for folder in module.__path__:
        for name in sorted(os.listdir(folder)):
            if os.path.isfile(os.path.join(folder, name, "__init__.py")):
                yield from _modules(f"{package}.{name}")
            elif name.endswith(".py") and name != "__init__.py":
                yield importlib.import_module(f"{package}.{name[:-3]}")


def _declared(module: ModuleType, what: str) -> list[Any]:
    """The rules or repairs of a module's own functions, not those that it imports."""
    functions = [value for value in vars(module).values() if isinstance(value, FunctionType)]
    own = [function for function in functions if function.__module__ == module.__name__]
    return [made for function in own for made in function.__dict__.get(what, ())]


@cache
def all_rules() -> tuple[Rule, ...]:
    """Every rule, by id. Raises RuleError when two of ours share an id or a name."""
    rules, _ = _accepted()
    return tuple(rules[id] for id in sorted(rules))


@cache
def all_repairs() -> Repairs:
    """The repairs of each rule id."""
    _, accepted = _accepted()
    made = [repair for module in _modules(f"{PACKAGE}.fixes") for repair in _declared(module, "zdoctor_repairs")]
    for plugin in accepted:
        made += [replace(repair, plugin=plugin.__name__) for repair in _declared(plugin, "zdoctor_repairs")]
    found: dict[str, tuple[Repair, ...]] = {}
    for repair in made:
        found[repair.id] = (*found.get(repair.id, ()), repair)
    return found


def cures_of(id: str) -> list[str]:
    """What the repairs of a rule do, by their names."""
    return [repair.cure.__name__.replace("_", " ") for repair in all_repairs().get(id, ())]


@cache
def _accepted() -> tuple[Mapping[str, Rule], Sequence[ModuleType]]:
    """The rules by id, and the plug-ins among whose rules none takes an id or a name from another."""
    ours = _modules(f"{PACKAGE}.checks")
    rules = _by_id([rule for module in ours for rule in _declared(module, "zdoctor_rules")], {})
    accepted = []
    for plugin in plugins.loaded():
        theirs = [replace(rule, plugin=plugin.__name__) for rule in _declared(plugin, "zdoctor_rules")]
        try:
            new = _by_id(theirs, rules)
            plugins.add_records(plugin)
        except (RuleError, TypeError, ValueError) as error:
            plugins.left_out(plugin.__name__, str(error))
        else:
            rules |= new
            accepted.append(plugin)
    return rules, accepted


def _by_id(rules: Iterable[Rule], known: Mapping[str, Rule]) -> dict[str, Rule]:
    found: dict[str, Rule] = {}
    names = {rule.name for rule in known.values()}
    for rule in rules:
        if rule.id in known or rule.id in found or rule.name in names:
            raise RuleError(f"{rule.id} {rule.name} is declared twice ({rule.check.__module__})")
        found[rule.id] = rule
        names.add(rule.name)
    return found


def select(rules: Sequence[Rule], chosen: Sequence[str], ignored: Sequence[str]) -> tuple[Rule, ...]:
    """Rules by id, name or id prefix ("PTH"). Raises UserError for a word that names none."""
    kept = {rule.id for word in chosen for rule in named_by(word, rules)}
    left_out = {rule.id for word in ignored for rule in named_by(word, rules)}
    return tuple(rule for rule in rules if (not chosen or rule.id in kept) and rule.id not in left_out)


def with_severities(rules: Sequence[Rule], levels: Mapping[str, Level]) -> tuple[Rule, ...]:
    """Rules with the severity that the user gives their id, name or prefix (the longest counts), less what is off.

    Raises UserError for a word that names no rule.
    """
    if not levels:
        return tuple(rules)
    said: dict[str, tuple[int, Level]] = {}
    for word, level in levels.items():
        for rule in named_by(word, rules):
            exact = len(rule.id) if word.lower() == rule.name else len(word)
            if exact >= said.get(rule.id, (0, level))[0]:
                said[rule.id] = exact, level
    graded: list[Rule] = []
    for rule in rules:
        level = said[rule.id][1] if rule.id in said else rule.severity
        if level != "off":
            graded.append(replace(rule, severity=level, settled=rule.id in said))
    return tuple(graded)


def named_by(word: str, rules: Sequence[Rule]) -> list[Rule]:
    """The rules of that name, or whose id is or begins with the word. Raises UserError where there are none."""
    found = [rule for rule in rules if word and (rule.name == word.lower() or rule.id.startswith(word.upper()))]
    if not found:
        from difflib import get_close_matches

        near = get_close_matches(word.upper(), [r.id for r in rules], 1)
        near = near or get_close_matches(word.lower(), [r.name for r in rules], 1)
        raise UserError(
            f"there is no rule {word!r}.", f"Did you mean {near[0]}?" if near else "zdoctor rules lists them."
        )
    return found
