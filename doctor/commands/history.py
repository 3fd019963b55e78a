"""`zdoctor history`: what was repaired, and when."""

from __future__ import annotations

import argparse

from ... import __version__
from .. import apply as writer
from ..model.said import said
from ..state import state_folder
from . import console
from .config_argument import format_argument


def arguments(parser: argparse.ArgumentParser) -> None:
    format_argument(parser)


def run(options: argparse.Namespace) -> int:
    entries = writer.history(state_folder())
    if options.format == "json":
        from ...reports import repairs_json

        console.emit(repairs_json.of_history(entries, __version__))
        return 0
    for entry in entries:
        console.say(f"{entry.id}  {entry.when}  {said(entry.state)}  {entry.config}")
        for line in entry.what:
            console.say(f"    {line}")
        if entry.state == "unfinished":
            console.say("    It was cut short, or another zdoctor is at it now. zdoctor undo puts everything back.")
    if not entries:
        console.say("Nothing was repaired yet.")
    return 0
