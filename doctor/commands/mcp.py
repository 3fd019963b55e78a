"""`zdoctor mcp`: the tools that an agent starts."""

from __future__ import annotations

import argparse

from ..errors import UserError


def arguments(parser: argparse.ArgumentParser) -> None:
    """It takes no words."""


def run(options: argparse.Namespace) -> int:
    try:
        from ..agent.server import agent_server
    except ImportError as error:
        raise UserError(
            f"The server for agents needs packages that are not here: {error.name}.", "pip install 'zdoctor[mcp]'"
        ) from error
    agent_server().run("stdio")
    return 0
