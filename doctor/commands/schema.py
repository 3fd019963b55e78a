"""`zdoctor schema`: a trainer's JSON schema for editors, that of zdoctor's output, or a checkout mined for keys."""

from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path

from ..errors import UserError
from ..model import Schema
from ..model.record import replace
from ..packages.checkout import sets_of
from ..schema.checkouts import NoCheckout, mine, recognised
from ..schema.editor import editor_schema
from ..schema.tables import as_json, shipped
from ..trainers import names as of_trainers
from ..trainers import trainer_called, trainer_of
from . import console
from .examined import existing_folder

OUTPUT = Path(__file__).parents[2] / "reports" / "documents.schema.json"


def arguments(made: argparse.ArgumentParser) -> None:
    names = (*of_trainers(), "output", "mine")
    told = f"{', '.join(of_trainers())}; output is what zdoctor prints with --format json; mine makes a table of keys"
    made.add_argument("what", metavar="TRAINER|output|mine", type=trainer_called, choices=names, help=told)
    made.add_argument(
        "checkout", nargs="?", metavar="CHECKOUT", help="take the keys from this checkout of the trainer"
    )
    made.add_argument("-o", "--output", metavar="FILE", help="write it here instead of the terminal")


def run(options: argparse.Namespace) -> int:
    """Print a table (mine) or a JSON schema. Raises UserError for what is no checkout."""
    if options.what == "output":
        console.emit(OUTPUT.read_text(encoding="utf-8"), options.output)
        return 0
    if options.what == "mine":
        if options.checkout is None:
            raise UserError("no checkout was named.", "zdoctor schema mine path/to/ai-toolkit")
        made = as_json(_with_requirements(_mined(options.checkout, None), Path(options.checkout)))
    else:
        known = _mined(options.checkout, options.what) if options.checkout is not None else shipped(options.what)
        assert known is not None  # every name has a table; a test holds that
        made = editor_schema(known)
    console.emit(json.dumps(made, ensure_ascii=True, separators=(",", ":")) + "\n", options.output)
    return 0


def _with_requirements(schema: Schema, root: Path) -> Schema:
    """And what the commit asks of an environment, for runs whose checkout is not in reach."""

    def read(name: str) -> str:
        file = root / name
        return file.read_text("utf-8", "replace") if file.is_file() else ""

    sets = sets_of(read, trainer_of(schema.trainer).requirements)
    asked = {tuple(one.line for one in found.requirements): None for found in sets if found.requirements}
    try:
        command = ["git", "-C", str(root), "show", "-s", "--format=%cs", "HEAD"]
        date = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        date = ""
    return replace(schema, date=date, requirements=tuple(asked))


def _mined(folder: str, trainer: str | None) -> Schema:
    found = recognised(existing_folder(folder))
    if trainer is not None and found is not None and found != trainer:
        raise UserError(f"{folder} is a checkout of {found}, not of {trainer}.")
    try:
        schema, _ = mine(Path(folder), trainer)
    except NoCheckout as error:
        raise UserError(str(error), "Name the top folder of the checkout.") from None
    for file, why in schema.unparsed.items():
        console.tell(f"{file} does not parse here ({why}): its keys are missing.")
    return schema
