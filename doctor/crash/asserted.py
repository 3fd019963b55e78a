"""What a failed `assert` without words asks for, by its line of code."""

from __future__ import annotations

import re

from ..model.crashes import Failure, Known
from .messages import CUT_OFF
from .stages import place_of

_ASSERT = re.compile(r"assert\s+(?P<what>.+?)(?:,\s*f?[\"'(].*)?$")
# A package that is asked for: FLASH_ATTN_2_AVAILABLE, is_xformers_available(), HAS_TRITON, triton is not None.
_PACKAGE = re.compile(
    r"(?:is_|has_)?(?P<before>\w+?)_(?:is_)?(?:available|installed)(?:\(\))?$|has_(?P<has>\w+)$", re.I
)
SOURCE = "https://docs.python.org/3/reference/simple_stmts.html#the-assert-statement"


def asserted(failure: Failure) -> Known | None:
    """What is told of an AssertionError that says nothing, where the log shows its line; also where it ends there."""
    if failure.name not in ("AssertionError", CUT_OFF) or failure.message.strip() or not failure.frames:
        return None
    frame = failure.frames[-1]
    found = _ASSERT.match(frame.code)
    if found is None:
        return None
    what, place = found["what"], place_of(frame)
    asked = _PACKAGE.match(what)
    if asked is not None:
        package = (
            (asked["before"] or asked["has"])
            .lower()
            .replace("flash_attn_2", "flash-attn")
            .replace("flash_attn_3", "flash-attn 3")
        )
        return Known(
            f"{place} needs the package {package} ({what}), which is not installed here or cannot be imported with "
            f"this torch.",
            f"Install a {package} that is built for this torch, CUDA and Python, or choose another setting (of "
            f"attention: sdpa).",
            error=failure.name,
            source=SOURCE,
        )
    if what in ("False", "0"):
        return Known(
            f"The program came to a place that it takes for impossible, at {place}: what it was handed is none of "
            "the kinds that it tells apart right before (a class, a type of model or a setting that it does not "
            "know).",
            "Compare what is handed over there with what the lines before that place test; take the versions of the "
            "packages that the program's requirements name.",
            error=failure.name,
            vague=True,
            source=SOURCE,
        )
    return Known(
        f"The program asks at {place} that {what}, which does not hold: a setting or a file is not what it "
        "expects there, or this version of it has a fault.",
        "See which setting, file or part of the model that is about, and change it; where it is nothing of yours, "
        "update the program.",
        error=failure.name,
        vague=True,
        source=SOURCE,
    )
