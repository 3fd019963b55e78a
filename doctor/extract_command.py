"""`zdoctor extract` on the command line."""

from __future__ import annotations

import argparse

from . import console
from .model.errors import printable


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source", metavar="REPO[@REVISION]", help="org/name, as it is cached; @ a branch, tag, commit"
    )
    parser.add_argument("target", metavar="DEST", help="a folder that does not exist yet")
    parser.add_argument(
        "--only",
        metavar="PARTS",
        type=lambda text: [part.strip().rstrip("/") for part in text.split(",") if part.strip()],
        default=[],
        help="only these folders or files of the repository (transformer,vae)",
    )
    parser.add_argument("--model-only", action="store_true", help="leave out what no trainer loads")
    parser.add_argument(
        "--hardlink",
        action="store_true",
        help="no copies: second names for the cache's own files; whoever writes into one changes the cache as well",
    )


def run(options: argparse.Namespace) -> int:
    from . import commands
    from .model.amounts import amount

    done = commands.extract(
        options.source,
        options.target,
        only=options.only,
        model_only=options.model_only,
        hardlink=options.hardlink,
        progress=console.progress(),
    )
    lines = [f"{options.source} lies in {options.target}, every file verified. Take it back: zdoctor undo {done.id}"]
    if done.unverified:
        one = done.unverified == 1
        lines = [
            f"{options.source} lies in {options.target}. Take it back: zdoctor undo {done.id}",
            f"{done.unverified} file{'s' * (not one)} could not be verified: nothing on this machine says what "
            f"{'it' if one else 'they'} should hold.",
        ]
    if done.adopted:
        lines.append(
            f"{amount(done.adopted)} of it lay finished there from an earlier run; {amount(done.copied)} were added."
        )
    if options.hardlink:
        lines.append("These are the cache's own files under second names: copy one before anything writes into it.")
    console.emit("".join(f"{printable(line)}\n" for line in lines))
    return 0
