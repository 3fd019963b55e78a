"""A fault of the program that runs or of a package, by the shape of an exception that no setting makes."""

from __future__ import annotations

import re

from ..model.crashes import Failure, Frame, Known
from .owners import owner
from .stages import by_code, place_of

_NAME = re.compile(r"name '(?P<name>\w+)' is not defined")
_LOCAL = re.compile(r"local variable '(?P<name>\w+)' (?:referenced before|where it is not)")
_ATTRIBUTE = re.compile(r"^'(?P<kind>\w+)' object has no attribute '(?P<name>\w+)'")
# What no setting holds, and of which no code asks for an attribute but by mistake.
_PYTHONS = ("tuple", "function", "method", "generator")
SOURCE = "https://docs.python.org/3/tutorial/errors.html#exceptions"


def fault(failure: Failure) -> Known | None:
    """What is told of it, where the frames show whose code is at fault."""
    return _of_package(failure) or _of_program(failure)


def _of_package(failure: Failure) -> Known | None:
    """A name that a package's own code lacks, as it sets it only where something else could be loaded."""
    frame = failure.frames[-1] if failure.frames else None
    asked = _NAME.match(" ".join(failure.message.split())) if failure.name == "NameError" else None
    if frame is None or asked is None or not frame.is_library or not (package := owner(frame)):
        return None
    name, place = asked["name"], place_of(frame)
    return Known(
        f"{package} lacks {name} in its own code at {place}, most often as it sets that only where its compiled "
        "library, or a package that it needs for this, could be loaded; else this release of it has a fault.",
        f"Look above for what {package} warned of at the start. Install it anew, in a version that is built for this "
        "torch and card, or choose a setting (optimizer, attention, quantization) that does without it.",
        error=failure.name,
        vague=True,
        source=SOURCE,
    )


def _of_program(failure: Failure) -> Known | None:
    frame = failure.frame
    program = owner(frame) if frame is not None and not frame.is_library else ""
    what = _what(failure, frame) if frame is not None and program else ""
    if frame is None or not what:
        return None
    place = place_of(frame)
    at_work = (by_code(one.code, one.function, ()) for one in reversed(failure.frames) if not one.is_library)
    skip = next((stage.skip for stage in at_work if stage is not None), "")
    do = (
        f"Update {program} and install its requirements (git pull, pip install -r requirements.txt). Where it is the "
        "newest, look for these words in its issues, or take its release before."
    )
    cause = (
        f"A fault of {program} at {place}: {what}. No setting or picture makes that; where it worked before, "
        "a package that this code uses was exchanged for another release."
    )
    if failure.name == "UnboundLocalError":
        cause = (
            f"At {place} {program} goes on without a value that it has not set: {what}. Either what should set it "
            "failed before, which is then printed above, or it is a fault of this version."
        )
        do = f"Look above for the first error or warning, and cure that. Where there is none: {do}"
    return Known(
        cause,
        f"{do} {skip}".strip(),
        error=failure.name,
        vague=True,
        source=SOURCE,
    )


def _what(failure: Failure, frame: Frame) -> str:
    """What the code does wrongly, "" where that may be the user's."""
    message = " ".join(failure.message.split())
    last = failure.frames[-1] is frame
    if last and failure.name == "NameError" and (asked := _NAME.match(message)) is not None:
        return f"it uses the name {asked['name']}, which nothing sets or imports there"
    if last and failure.name == "UnboundLocalError" and (asked := _LOCAL.search(message)) is not None:
        return f"it uses {asked['name']} before it is set, on the way that these settings take through it"
    if failure.name not in ("AttributeError", "Reported") or (asked := _ATTRIBUTE.match(message)) is None:
        return ""
    kind, name = asked["kind"], asked["name"]
    if kind in _PYTHONS:
        return f"a {kind} comes where something with {name} is expected"
    return f"its own {kind} has no {name}" if last and f"self.{name}" in frame.code else ""
