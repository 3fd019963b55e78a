"""`zdoctor schema`: a trainer's JSON schema for editors, that of zdoctor's output, or a checkout mined for keys."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from ..errors import UserError
from ..model import Schema
from ..model.printable import printable
from ..schema.checkouts import NoCheckout, mine, recognised
from ..schema.editor import editor_schema
from ..schema.tables import as_json, shipped
from ..trainers import names as of_trainers
from ..trainers import trainer_called
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
        schema = _mined(options.checkout, None)
        made = as_json(schema)
    else:
        known = _mined(options.checkout, options.what) if options.checkout is not None else shipped(options.what)
        assert known is not None  # every name has a table; a test holds that
        made = editor_schema(known)
    console.emit(json.dumps(made, ensure_ascii=True, separators=(",", ":")) + "\n", options.output)
    return 0


def _mined(folder: str, trainer: str | None) -> Schema:
    found = recognised(existing_folder(folder))
    if trainer is not None and found is not None and found != trainer:
        raise UserError(f"{folder} is a checkout of {found}, not of {trainer}.")
    try:
        schema, _ = mine(Path(folder), trainer)
    except NoCheckout as error:
        raise UserError(str(error), "Name the top folder of the checkout.") from None
    for file, why in schema.unparsed.items():
        print(
            f"zdoctor: {printable(file)} does not parse here ({printable(why)}): its keys are missing.",
            file=sys.stderr,
        )
    return schema
