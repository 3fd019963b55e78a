"""A report becomes text. Every format tells the same exit code; none of them judges."""

from __future__ import annotations

from collections.abc import Sequence

from ..doctor.model import Config, Report
from ..doctor.rules import Rule

FORMATS = ("text", "json", "markdown", "html", "sarif", "junit", "github")


def render(
    format: str,
    report: Report,
    *,
    rules: Sequence[Rule] = (),
    version: str = "",
    config: Config | None = None,
    width: int = 100,
    color: bool = False,
) -> str:
    """The report in one of FORMATS. `rules` are those that were asked and `config` what was read, for the formats
    that tell more than the report; `width` and `color` are for text."""
    match format:  # each is imported only when it is asked for
        case "json":
            from . import json

            return json.render(report)
        case "markdown":
            from . import markdown

            return markdown.render(report, version)
        case "html":
            from . import html

            return html.render(report, rules, version)
        case "sarif":
            from . import sarif

            return sarif.render(report, rules, version, config)
        case "junit":
            from . import junit

            return junit.render(report, rules, version)
        case "github":
            from . import github

            return github.render(report)
        case _:
            from . import terminal

            return terminal.render(report, width=width, color=color)
