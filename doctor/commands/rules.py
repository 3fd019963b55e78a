"""`zdoctor rules`: every rule in a line."""

from __future__ import annotations

import argparse

from ..rules import all_repairs, all_rules
from . import console


def arguments(_: argparse.ArgumentParser) -> None:
    """It takes none."""


def run(_: argparse.Namespace) -> int:
    for rule in all_rules():
        mark = "fix" if rule.id in all_repairs() else ""
        console.emit(f"{rule.id}  {rule.severity:<8} {mark:<4} {rule.name:<32} {rule.title}\n")
    return 0
