"""`zdoctor extract`: a cached repository copied to a plain folder, each file verified."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from .. import apply as writer
from ..errors import UserError, printable
from ..model.amounts import amount
from ..probe.live import LiveWorld
from ..state import state_folder
from . import console
from .config_argument import comma_separated
from .extraction_plan import plan_extraction
from .repair import recover


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source", metavar="REPO[@REVISION]", help="org/name, as it is cached; @ a branch, tag, commit"
    )
    parser.add_argument("target", metavar="DEST", help="a folder that does not exist yet")
    parser.add_argument(
        "--only",
        metavar="PARTS",
        type=lambda text: [part.rstrip("/") for part in comma_separated(text)],
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
    recover()
    done = extract(
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


def extract(
    source: str,
    target: str,
    *,
    only: Sequence[str] = (),
    model_only: bool = False,
    hardlink: bool = False,
    progress: Any = None,
) -> writer.Applied:
    """Copy a cached repository ("org/name" or "org/name@revision") to the new folder `target`, each file verified.

    `only`: these folders and files at its top; `model_only`: what trainers load; `hardlink`: no copies, second names.
    What an earlier extraction to `target` had finished is taken as it is.
    """
    plan = plan_extraction(LiveWorld(), source, target, only=only, model_only=model_only, hardlink=hardlink)
    try:
        return writer.apply(plan, binding=writer.bind(plan), state=state_folder(), progress=progress)
    except writer.ApplyError as error:
        raise UserError(str(error)) from error
