"""What --help prints, in the reader's language, and with Chinese broken into lines as wide as the terminal."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any

from ..model.said import said


class Columns(argparse.HelpFormatter):
    """argparse's layout; a text that has no blanks to be broken at is broken between its characters."""

    def add_usage(self, usage: str | None, actions: Any, groups: Any, prefix: str | None = None) -> None:
        super().add_usage(usage, actions, groups, said("usage: ") if prefix is None else prefix)

    def _split_lines(self, text: str, width: int) -> list[str]:
        return super()._split_lines(text, width) if text.isascii() else _lines(text, width)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.isascii():
            return super()._fill_text(text, width, indent)
        return "\n".join(indent + line for line in _lines(text, width - len(indent)))


class AsWritten(Columns):
    """The same, with the lines of descriptions as they are written."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "".join(indent + line for line in text.splitlines(keepends=True))


def translate(parser: argparse.ArgumentParser) -> None:
    """All that the parser's help says, put into the reader's language."""
    parser.description, parser.epilog = _said(parser.description), _said(parser.epilog)
    for group in parser._action_groups:
        group.title, group.description = _said(group.title), _said(group.description)
    for action in _with_choices(parser._actions):
        action.help = _said(action.help)


def _with_choices(actions: Iterable[argparse.Action]) -> Iterable[argparse.Action]:
    for action in actions:
        yield action
        yield from getattr(action, "_choices_actions", ())


def _said(text: str | None) -> str | None:
    return said(text) if text and text is not argparse.SUPPRESS else text


def _lines(text: str, width: int) -> list[str]:
    from ...reports.painting import broken

    return list(broken(" ".join(text.split()), width))
