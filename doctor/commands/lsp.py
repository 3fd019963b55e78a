"""`zdoctor lsp`: the language server that an editor starts."""

from __future__ import annotations

import argparse

from ... import __version__
from ..errors import UserError
from .examined import examined


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--stdio", action="store_true", help="speak over stdin and stdout (it always does)")


def run(options: argparse.Namespace) -> int:
    try:
        from ..editor.server import config_server
    except ImportError as error:
        raise UserError(
            f"The language server needs packages that are not here: {error.name}.", "pip install 'zdoctor[lsp]'"
        ) from error
    config_server(__version__, examined).start_io()
    return 0
