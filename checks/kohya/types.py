"""Types in TOML files: a config file's values are handed on as they are, a dataset file's are looked at strictly."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...doctor.model import Finding, Run, Schema, found
from ...doctor.rules import prevents, rule
from ..keys.values import number_of, whole
from . import TRAINERS

_FALSE = frozenset(("false", "no", "off", "0", "none", ""))


@rule("KOH015", "error", "text-in-place-of-a-number", trainers=TRAINERS)
@prevents("TypeError", r"not supported between instances of '(str|float|int)' and '(str|float|int)'")
@prevents("AttributeError", r"'int' object has no attribute 'split'")
@prevents("voluptuous.error.MultipleInvalid", r"expected (int|float|bool|str)")
def text_in_place_of_a_number(run: Run, schema: Schema) -> Iterator[Finding]:
    """A number or a switch in quotes in a TOML file, or a number of another kind.

    What: learning_rate = "1e-4", network_dim = "16" or fp8_base = "false" in a config file; num_repeats = "10" or 2.5
    in a dataset file; or resolution without quotes in a config file, where it has to be text.
    Why: On a command line every value is text, and the parser converts it. What a config file holds is put in beside
    the parser and never converted, so that text meets numbers in the middle of the run; and any text counts as true,
    "false" too. A dataset file is looked at strictly, before anything is loaded.
    Repair: The value without its quotes; resolution with them.
    Upstream: sd-scripts library/train_util.py read_config_from_file, library/config_util.py (48d368fa)
    Signature: TypeError: '<=' not supported between instances of 'float' and 'str'; expected int for dictionary value
    """
    for key, written in run.settings.items():
        if not written.where.path.lower().endswith(".toml"):
            continue
        known = schema.key(re.sub(r"/\d+(?=/|$)", "/*", key), run.process_type)
        if known is None:
            continue
        value, inside = written.value, "/" in key
        name = key.rpartition("/")[2]
        if isinstance(value, str) and known.kind in ("int", "float") and not known.choices:
            number = number_of(value)
            if number is None and known.kind == "float" and value.endswith("%"):
                continue
            new = whole(number) if number is not None and known.kind == "int" else number
            yield _finding(run, key, "{name} is {value!r}, which is text because of its quotes.", new, inside)
        elif isinstance(value, str) and known.kind == "bool":
            off = value.strip().lower() in _FALSE
            if off and not inside:
                message = "{name} is {value!r}, and any text counts as true. Write false without quotes."
                yield _finding(run, key, message, None, inside)
            elif inside:
                yield _finding(run, key, "{name} is {value!r}, which is text because of its quotes.", None, inside)
        elif isinstance(value, float) and known.kind == "int" and inside:
            message = "{name} is {value}; in this file it has to be a whole number, without a point."
            yield _finding(run, key, message, whole(value), True)
        elif name == "resolution" and not inside and isinstance(value, int) and not isinstance(value, bool):
            yield _finding(run, key, "{name} is {value}; in this file it has to be text.", str(value), True)


def _finding(run: Run, key: str, message: str, new: object, at_once: bool) -> Finding:
    written = run.settings[key]
    return found(
        written.where,
        message,
        otherwise="The trainer stops at the start, before it loads anything."
        if at_once
        else "The trainer goes on with the text, until it counts with it."
        if "any text" not in message
        else "The setting is on.",
        evidence={"key": key, "pointer": run.pointer(key), "new": new},
        name=key.rpartition("/")[2],
        value=written.value,
    )
