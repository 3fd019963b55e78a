"""A report becomes text. Every format tells the same exit code; none of them judges."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from ..doctor.model import Config, Report
from ..doctor.rules import Rule
from .painting import PAGE, Screen, paint

FORMATS = ("text", "json", "markdown", "html", "sarif", "junit", "github")


def render(
    format: str,
    report: Report,
    *,
    rules: Sequence[Rule] = (),
    version: str = "",
    config: Config | None = None,
    screen: Screen = PAGE,
    verbose: bool = False,
) -> str:
    """The report in one of FORMATS. `rules` are those that were asked and `config` what was read, for the formats
    that tell more than the report; `screen` and `verbose` are for text."""
    if format == "text":
        from . import terminal

        return paint(terminal.lines(report, screen, config=config, verbose=verbose), screen)
    more: dict[str, tuple[Any, ...]] = {
        "markdown": (version,),
        "html": (rules, version),
        "junit": (rules, version),
        "sarif": (rules, version, config),
    }
    module = import_module(f".{format}", __package__)  # only the one that is asked for
    return str(module.render(report, *more.get(format, ())))
