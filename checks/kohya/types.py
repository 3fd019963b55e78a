"""Types in TOML files: a config file's values are handed on as they are, a dataset file's are looked at strictly."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ...doctor.model import Finding, Run, Schema, found
from ...doctor.model.schema import Key
from ...doctor.rules import prevents, rule
from ...doctor.trainers.kohya.starts import STRAY
from ..keys.misspelled import words
from ..keys.values import is_spelt, number_of, whole
from . import TRAINERS

_QUOTED = "{name} is {value!r}, which is text because of its quotes."
_REFUSED = "The trainer stops at its start, with argparse's list of options."
_AT_ONCE = "The trainer stops at the start, before it loads anything."
_LETTERS = "The trainer splits each letter at its '=', after the model was loaded, and stops with a ValueError."
_EACH = words("network_args optimizer_args lr_scheduler_args")
_FALSE = frozenset(("false", "no", "off", "0", "none", ""))
# numbers of a dataset file that are refused without a point, and sizes, of which there may be two
_WITH_POINT = words("network_multiplier source_fps validation_split")
_SIZES = words("control_resolution resolution")
# what a kind takes there, and its words; a switch is a whole number for the trainer
_TAKEN: Mapping[str, tuple[type | tuple[type, ...], str]] = {
    "bool": (bool, "true or false"),
    "dict": (dict, "a table"),
    "float": ((int, float), "a number"),
    "int": (int, "a whole number, without a point"),
    "list": (list, "a list"),
    "point": (float, "a number with a point"),
    "size": (int, "a whole number, or [width, height] of two"),
    "str": (str, "text, in quotes"),
}


@rule("KOH015", "error", "text-in-place-of-a-number", trainers=TRAINERS)
@prevents("TypeError", r"not supported between instances of '(str|float|int)' and '(str|float|int)'")
@prevents("AttributeError", r"'int' object has no attribute 'split'")
@prevents("ArgumentError", r"invalid (int|float|int_or_float) value|ignored explicit argument")
@prevents("ArgumentError", r"unrecognized arguments|expected one argument")
@prevents("voluptuous.error.MultipleInvalid", r"expected (int|float|bool|str)")
def text_in_place_of_a_number(run: Run, schema: Schema) -> Iterator[Finding]:
    """A word that is no number, a switch with a value, or a number of another kind than is asked for.

    What: --network_dim 16.0, --cache_latents true, --output_name my cat or --save_every_n_epochs alone on a command
    line; learning_rate = "1e-4", network_dim = "16" or fp8_base = "false" in a config file; num_repeats = "10" or
    2.5, source_fps = 24 or enable_bucket = 1 in a dataset file; or resolution without quotes in a config file, where
    it has to be text, and network_args in quotes, where it has to be a list.
    Why: On a command line every value is text, and the parser converts it or stops. What a config file holds is put
    in beside the parser and never converted, so that text meets numbers in the middle of the run; and any text counts
    as true, "false" too. A dataset file is looked at strictly, before anything is loaded.
    Repair: The value without its quotes; resolution with them.
    Upstream: sd-scripts library/train_util.py read_config_from_file, library/config_util.py (48d368fa)
    Signature: TypeError: '<=' not supported between instances of 'float' and 'str'; expected int for dictionary value
    """
    yield from _stray(run, schema)
    for key, written in run.settings.items():
        known = schema.key(re.sub(r"/\d+(?=/|$)", "/*", key), run.process_type) or _begun(schema, run, key)
        file = written.where.path.lower()
        # a GUI converts its own values
        if known is None or written.unknown or (file.endswith(".json") and "/" not in key):
            continue
        name = key.rpartition("/")[2]
        look = _in_datasets if "/" in key else _of_an_option if file.endswith(".toml") else _on_a_command_line
        judged = look(name, known, written.value)
        if judged is not None:
            message, otherwise, new = judged
            args = {"name": name, "value": written.value}
            evidence = {"key": key, "pointer": run.pointer(key), "new": new}
            yield found(written.where, message, otherwise=otherwise, evidence=evidence, **args)


def _stray(run: Run, schema: Schema) -> Iterator[Finding]:
    """Words that stand behind an option that takes one: a name or a path with a blank, without quotes."""
    written = run.settings.get(STRAY)
    if written is None:
        return
    name, *others = written.value
    known = schema.key(name, run.process_type) or _begun(schema, run, name)
    if known is None or known.kind in ("", "bool", "list"):
        return  # which a fork may take several words for, or of which the first is told
    message = "{name} takes one word, and {value!r} stands behind it: a value with blanks needs quotes."
    evidence = {"key": name}
    yield found(written.where, message, otherwise=_REFUSED, evidence=evidence, name=name, value=" ".join(others))


def _begun(schema: Schema, run: Run, name: str) -> Key | None:
    """The one option whose name begins so, for which the parser takes it."""
    whole = [key for option, key in (schema.section("", run.process_type) or {}).items() if option.startswith(name)]
    return whole[0] if len(whole) == 1 else None


def _on_a_command_line(name: str, known: Key, value: object) -> tuple[str, str, object] | None:
    """What argparse says of an option's word."""
    if value is True and known.kind in ("float", "int", "str"):
        return "{name} takes a value, and none stands behind it.", _REFUSED, None
    if not isinstance(value, str):
        return None
    if known.kind == "bool":
        return "{name} is a switch and takes no value; {value} stands behind it.", _REFUSED, None
    if known.kind == "float" and not is_spelt(value.removesuffix("%"), float):
        return "{name} is {value!r}, which is no number.", _REFUSED, None
    if known.kind == "int" and not is_spelt(value, int):
        new = whole(number) if (number := number_of(value)) is not None else None
        return "{name} is {value!r}; it has to be a whole number, without a point or exponent.", _REFUSED, new
    return None


def _of_an_option(name: str, known: Key, value: object) -> tuple[str, str, object] | None:
    """What is wrong with an option's type, what comes of it, and the value that is meant."""
    if isinstance(value, str) and value and known.kind in ("int", "float") and not known.choices:
        if known.kind == "float" and value.endswith("%") and number_of(value) is None:
            return None
        return _QUOTED, "The trainer goes on with the text, until it counts with it.", _meant(known.kind, value)
    if isinstance(value, str) and known.kind == "bool" and value and value.strip().lower() in _FALSE:
        message = "{name} is {value!r}, and any text counts as true. Write false without quotes."
        return message, "The setting is on.", None
    if name in _EACH and isinstance(value, str) and value:
        message = '{name} is {value!r}, which is text; in this file it has to be a list: ["key=value", ...].'
        return message, _LETTERS, None
    if name == "resolution" and isinstance(value, int) and not isinstance(value, bool):
        return "{name} is {value}; in this file it has to be text.", _AT_ONCE, str(value)
    return None


def _in_datasets(name: str, known: Key, value: object) -> tuple[str, str, object] | None:
    """The same for a key of a dataset file, whose types are compared strictly."""
    kind = "point" if name in _WITH_POINT else "size" if name in _SIZES else known.kind
    taken, asked = _TAKEN.get(kind, (object, ""))
    several = value if kind == "size" and isinstance(value, list) and len(value) == 2 else [value]
    if all(isinstance(one, taken) for one in several):
        return None
    message = _QUOTED if isinstance(value, str) else "{name} is {value}; in this file it has to be " + asked + "."
    return message, _AT_ONCE, _meant(kind, value)


def _meant(kind: str, value: object) -> object:
    """The same value of another kind; None where that is not certain."""
    number = number_of(value) if isinstance(value, str) else value
    if kind == "bool" or not isinstance(number, int | float) or isinstance(value, bool):
        return bool(value) if kind == "bool" and value in (0, 1) else None
    match kind:
        case "int" | "size":
            return whole(number)
        case "point":
            return float(number)
        case "str":
            return str(value) if isinstance(value, int) else None
    return number if kind == "float" else None
