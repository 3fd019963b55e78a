"""`zdoctor undo`: the last repair is taken back, byte for byte."""

from __future__ import annotations

import argparse

from .. import apply as writer
from ..model.printable import printable
from ..state import state_folder
from . import console


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", nargs="?", metavar="ID", help="which one (zdoctor history lists them)")


def run(options: argparse.Namespace) -> int:
    for line in writer.undo(options.id, state=state_folder()):
        console.emit(f"{printable(line)}\n")
    return 0
