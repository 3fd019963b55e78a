"""Steps: a key of a config gets a value, or characters of a text are replaced; all those of one file at once."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from ...configs.edit import EditError, apply_edits
from ...configs.reading import text_of
from ...model import ReplaceText, SetValue
from ..actions.edit import edit
from ..actions.errors import ApplyError
from .needs import Needs, Work


def describe(step: SetValue | ReplaceText) -> str:
    if isinstance(step, ReplaceText):
        return f"replace {step.old!r} by {step.new!r} in {step.path}"
    value = json.dumps(step.value, ensure_ascii=False)  # true, as the config has it
    return f"set {step.pointer} to {value} in {step.path}"


def precheck(step: SetValue | ReplaceText, path: Path, needs: Needs) -> None:
    if not path.is_file():
        raise ApplyError(f"{path} is not there any more")
    if not os.access(path, os.W_OK):
        raise ApplyError(f"{path} cannot be written to; a copy of it can be repaired")


def perform(steps: Sequence[SetValue | ReplaceText], path: Path, work: Work) -> None:
    edit(work.journal, path, edited(path, steps))


def read_text(path: Path) -> tuple[str, str]:
    """The text of a file as the repairs counted its characters, and the encoding that gives its bytes again."""
    source = text_of(str(path), path.read_bytes())
    if source.problem is not None and source.problem.kind == "size":
        raise ApplyError(f"{path}: {source.problem.message}")
    return source.text, source.encoding


def edited(path: Path, edits: Sequence[SetValue | ReplaceText]) -> bytes:
    """The new bytes of a text file; encoding, byte-order mark and line ends stay. Raises ApplyError."""
    text, encoding = read_text(path)
    try:
        return apply_edits(text, edits).encode(encoding, "surrogateescape")
    except EditError as error:
        raise ApplyError(f"{path} cannot be edited: {error}") from error
