"""What is said of one value: why it is refused and when the trainer would have said so, or that it has no effect."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ...doctor.model import Config, Finding, Run, Severity, found
from ...doctor.model.unfinished import UNLESS_YOURS_KNOWS, is_to_be_filled
from .places import key_where

START = "at the start, before anything is loaded"
LOAD = "after the model files were read"
LORA = "after the model was loaded and quantized"
OPTIMIZER = "after the model was loaded and quantized, when the optimizer is built"
CACHE = "after all latents and captions were encoded"
STEP = "at the first training step, after loading, quantizing and caching"
SAMPLE = "at the first sample"
FIRST_SAVE = "at the first save"
END = "after the training"
SILENT = "No message says so: {when}."
STOPS = "The trainer stops {when}."
BEFORE = "The run ends before anything is loaded."  # by zdoctor's own runner


def ends(run: Run, otherwise: str, own: str = BEFORE) -> str:
    """How a run ends by zdoctor's own runner, or `otherwise`."""
    return own if run.by_runner else otherwise


def number_of(text: str) -> int | float | None:
    """The number that a text spells; None where it spells none."""
    stripped = text.strip()
    if re.fullmatch(r"[-+]?\d{1,15}", stripped):
        return int(stripped)
    return float(stripped) if re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d{1,3})?", stripped) else None


def is_spelt(text: str, kind: Callable[[str], float]) -> bool:
    """Whether Python makes a number of this kind of it."""
    try:
        kind(text)
    except ValueError:
        return False
    return True


def whole(number: float) -> int | None:
    """The same number without a point; None where it has a fraction or no end."""
    return int(number) if abs(number) < 1e15 and number == int(number) else None


def bad(
    run: Run,
    key: str,
    why: str,
    when: str,
    *,
    severity: Severity | None = None,
    new: object = None,
    likely: str | None = None,
    unsure: bool = False,
    **args: object,
) -> Finding:
    """A finding about `key`. `why` is a sentence over `key`, `value` and `args`; `when` ends one about the trainer.

    `new` is the value that is certainly meant; `likely` one that may be. `unsure`: that this word or form is not
    taken was not read in the checkout at hand.
    """
    doubtful = unsure and severity is None and new is None and isinstance(run.setting(key), str | list | dict)
    doubtful = doubtful and not is_to_be_filled(run.setting(key))  # which is said of every error
    when = when.format_map({"key": key, "value": run.setting(key), **args})
    evidence: dict[str, object] = {"key": key, "value": run.setting(key), "when": when}
    if new is not None:
        evidence |= {"new": new, "pointer": run.pointer(key)}
    elif likely is not None:
        evidence |= {"likely": likely, "pointer": run.pointer(key)}
    meant = new if isinstance(new, str) else likely
    silent = severity in ("warning", "note")
    return found(
        run.where(key),
        why + (" Did you mean {meant}?" if meant is not None else ""),
        otherwise="The runner does not start on such a value."
        if run.by_runner and not silent
        else SILENT
        if silent
        else STOPS
        if not doubtful
        else UNLESS_YOURS_KNOWS,
        evidence=evidence,
        severity="warning" if doubtful else severity,
        key=key,
        value=run.setting(key),
        meant=meant,
        **args,
    )


def without_effect(config: Config, run: Run, key: str, why: str, **args: Any) -> Finding:
    """A finding about a written key. `why` goes on behind a colon, over `args`."""
    written = run.settings[key]
    return found(
        key_where(config, written),
        "{key} has no effect: " + why + ".",
        otherwise="The run trains as if the key were absent.",
        evidence={"key": key, "value": written.value},
        key=key,
        **args,
    )
