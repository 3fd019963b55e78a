"""`zdoctor rules`: every rule in a line."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from ... import __version__
from ..rules import Rule, all_rules, cures_of
from . import console
from .config_argument import format_argument

if TYPE_CHECKING:
    from ...reports.painting import Line
    from ...reports.rules_json import Measured


def arguments(parser: argparse.ArgumentParser) -> None:
    format_argument(parser)


def run(options: argparse.Namespace) -> int:
    if options.format == "json":
        from ...reports import rules_json

        console.emit(rules_json.render(all_rules(), measured(), __version__))
        return 0
    console.show(map(_line, all_rules()))
    return 0


def _line(rule: Rule) -> Line:
    mark = "fix" if cures_of(rule.id) else ""
    return [("", f"{rule.id}  "), ("", f"{rule.severity:<8} "), ("", f"{mark:<4} {rule.name:<32} "), ("", rule.title)]


def measured() -> dict[str, Measured]:
    """How often each rule was right at error level on configs found outside (written by benchmarks/corpus.py)."""
    file = Path(__file__).parents[1] / "rules" / "precision.json"
    known = json.loads(file.read_text(encoding="utf-8"))
    unseen, none = known["unseen"], (0, 0)
    made: dict[str, Measured] = {}
    for rule in sorted(known["errors"].keys() | unseen["errors"].keys()):
        (errors, false), first = known["errors"].get(rule, none), unseen["errors"].get(rule, none)
        made[rule] = {
            "errors": errors,
            "false": false,
            "configs": known["configs"],
            "unseen_errors": first[0],
            "unseen_false": first[1],
            "unseen_configs": unseen["configs"],
        }
    return made
