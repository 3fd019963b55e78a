"""Types in TOML files: a config file's values are handed on as they are, a dataset file's are looked at strictly."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...doctor.model import Finding, Run, Schema, found
from ...doctor.rules import NotApplicable, prevents, rule
from ..keys.values import number_of, whole
from . import TRAINERS

_QUOTED = "{name} is {value!r}, which is text because of its quotes."
_AT_ONCE = "The trainer stops at the start, before it loads anything."
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
    in_toml = {key: one for key, one in run.settings.items() if one.where.path.lower().endswith(".toml")}
    if not in_toml:
        raise NotApplicable
    for key, written in in_toml.items():
        known = schema.key(re.sub(r"/\d+(?=/|$)", "/*", key), run.process_type)
        if known is None:
            continue
        value, inside = written.value, "/" in key
        name = key.rpartition("/")[2]
        new: object = None
        message, otherwise = "", _AT_ONCE if inside else "The trainer goes on with the text, until it counts with it."
        if isinstance(value, str) and known.kind in ("int", "float") and not known.choices:
            number = number_of(value)
            if number is None and known.kind == "float" and value.endswith("%"):
                continue
            message = _QUOTED
            new = whole(number) if number is not None and known.kind == "int" else number
        elif isinstance(value, str) and known.kind == "bool" and inside:
            message = _QUOTED
        elif isinstance(value, str) and known.kind == "bool" and value.strip().lower() in _FALSE:
            message = "{name} is {value!r}, and any text counts as true. Write false without quotes."
            otherwise = "The setting is on."
        elif isinstance(value, float) and known.kind == "int" and inside:
            message = "{name} is {value}; in this file it has to be a whole number, without a point."
            new = whole(value)
        elif name == "resolution" and not inside and isinstance(value, int) and not isinstance(value, bool):
            message, new = "{name} is {value}; in this file it has to be text.", str(value)
            otherwise = _AT_ONCE
        if message:
            evidence = {"key": key, "pointer": run.pointer(key), "new": new}
            yield found(written.where, message, otherwise=otherwise, evidence=evidence, name=name, value=value)
