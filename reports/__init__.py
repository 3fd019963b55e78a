"""Reports become text. Every format tells the same exit code; none of them judges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module

from .checked import Checked as Checked
from .painting import PAGE, Screen, paint

FORMATS = ("text", "json", "markdown", "html", "sarif", "junit", "github")


def render(
    format: str,
    checked: Sequence[Checked],
    *,
    version: str = "",
    screen: Screen = PAGE,
    verbose: bool = False,
    addresses: Mapping[str, str] = {},
    code: int | None = None,
) -> str:
    """What was checked, in one of FORMATS; `screen` and `verbose` are for text, `addresses` for SARIF.

    `code` is the exit code where it is not that of the reports, for JSON.
    """
    if format == "text":
        from . import terminal

        return paint(terminal.of_all(checked, screen, verbose=verbose), screen)
    if format == "sarif":
        from . import sarif

        return sarif.render(checked, version, addresses)
    if format == "json":
        from . import json

        return json.render(checked, version, code)
    module = import_module(f".{format}", __package__)  # only the one that is asked for
    return str(module.render(checked, version))
