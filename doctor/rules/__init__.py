"""Rules and repairs: plain functions that say what they need by their parameter names.

A rule is a generator of findings, a repair a generator of fixes. Both are found by walking the folders
`checks/` and `fixes/`; third-party packages add theirs through the entry-point group `zdoctor.plugins`.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator
from functools import cache
from types import ModuleType

from ..model import Facts, Finding, Fix, Severity
from ..model.record import dataclass
from ..model.script import SCRIPT
from . import plugins

PACKAGE = __name__.split(".")[0]
FACT_NAMES = frozenset(Facts.__match_args__)
_ID = re.compile(r"[A-Z]{3}\d{3}$")
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*$")

Check = Callable[..., Iterator[Finding]]
Cure = Callable[..., Iterator[Fix]]


class RuleError(Exception):
    """A rule or repair that is declared wrongly; raised when its module is imported."""


class Unestablished(Exception):
    """Raised by a rule whose fact is known only in part: the rule is then unknown, with this message as reason."""


@dataclass(frozen=True)
class Rule:
    """A check with its identity. `prevents` are (exception type, message pattern) pairs a crash log would show.

    `trainers` are those whose configs it is about, none for all.
    """

    id: str
    name: str
    severity: Severity
    check: Check
    needs: tuple[str, ...]
    prevents: tuple[tuple[str, str], ...] = ()
    trainers: tuple[str, ...] = ()

    def suits(self, trainer: str | None) -> bool:
        """Whether it says anything about this trainer's configs; a config that nobody claims is anybody's.

        Of a training script only its own rules say anything, and the one about files that do not parse.
        """
        if SCRIPT in self.trainers or trainer == SCRIPT:
            return trainer in self.trainers or (trainer == SCRIPT and self.needs == ("config",))
        return not self.trainers or trainer is None or trainer in self.trainers

    @property
    def doc(self) -> str:
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


def rule(
    id: str,
    severity: Severity,
    name: str,
    *,
    prevents: tuple[tuple[str, str], ...] = (),
    trainers: tuple[str, ...] = (),
) -> Callable[[Check], Check]:
    """Declare a check. Its parameters must be fields of Facts; `trainers` keeps it to the configs of these."""

    def declare(check: Check) -> Check:
        if not _ID.match(id) or not _NAME.match(name):
            raise RuleError(f"{check.__module__}.{check.__name__}: bad id {id!r} or name {name!r}")
        made = Rule(id, name, severity, check, _needs(check), prevents, trainers)
        check.__dict__["zdoctor_rules"] = (*check.__dict__.get("zdoctor_rules", ()), made)
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
    names = tuple(inspect.signature(function).parameters)[skip:]
    for name in names:
        if name not in FACT_NAMES:
            raise RuleError(
                f"{function.__module__}.{function.__name__}: parameter {name!r} is no fact; "
                f"facts are {', '.join(sorted(FACT_NAMES))}"
            )
    return names


def _modules(package: str) -> Iterator[ModuleType]:
    folder = importlib.import_module(package)
    yield folder
    for module in pkgutil.walk_packages(folder.__path__, prefix=f"{package}."):
        yield importlib.import_module(module.name)


@cache
def all_rules() -> tuple[Rule, ...]:
    """Every rule, by id. Raises RuleError when two of ours share an id or a name; a plug-in's is then left out."""
    found: dict[str, Rule] = {}
    names: set[str] = set()
    for module in (*_modules(f"{PACKAGE}.checks"), *plugins.loaded()):
        for function in vars(module).values():
            for made in getattr(function, "zdoctor_rules", ()) if inspect.isfunction(function) else ():
                if function.__module__ != module.__name__:
                    continue
                if made.id in found or made.name in names:
                    why = f"{made.id} {made.name} is declared twice ({function.__module__})"
                    if module not in plugins.loaded():
                        raise RuleError(why)
                    plugins.left_out(module.__name__, why)
                    continue
                found[made.id] = made
                names.add(made.name)
    return tuple(found[id] for id in sorted(found))


@cache
def all_repairs() -> dict[str, tuple[Repair, ...]]:
    """The repairs of each rule id."""
    found: dict[str, tuple[Repair, ...]] = {}
    for module in (*_modules(f"{PACKAGE}.fixes"), *plugins.loaded()):
        for function in vars(module).values():
            for made in getattr(function, "zdoctor_repairs", ()) if inspect.isfunction(function) else ():
                if function.__module__ == module.__name__:
                    found[made.id] = (*found.get(made.id, ()), made)
    return found
