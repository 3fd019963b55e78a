"""`zdoctor undo`: the last repair is taken back, byte for byte."""

from __future__ import annotations

import argparse

from .. import apply as writer
from ..progress import open_progress
from ..state import state_folder
from . import console


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", nargs="?", metavar="ID", help="which one (zdoctor history lists them)")


def run(options: argparse.Namespace) -> int:
    with open_progress() as progress:
        progress.doing("putting back what was there")
        lines = writer.undo(options.id, state=state_folder())
    for line in lines:
        console.say(line)
    return 0
