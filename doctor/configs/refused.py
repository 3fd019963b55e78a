"""What a trainer's room says of a run that zdoctor's own runner would not obey."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import UserError
from ..model import Run, Schema, Unknown


def known(run: Run, schema: Schema | Unknown) -> Schema:
    """The schema of the run's trainer. Raises UserError where it is not known."""
    if isinstance(schema, Unknown):
        raise UserError(f"the settings of {run.trainer} are not known: {schema.reason}.")
    return schema


def disobeyed(reasons: Sequence[str]) -> None:
    """Raises UserError where there are reasons."""
    if reasons:
        raise UserError("zdoctor train would not obey all of this config:\n  " + "\n  ".join(reasons))
