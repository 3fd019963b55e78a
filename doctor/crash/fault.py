"""A fault of the program that runs, by the shape of its exception: no setting or file of a user makes such ones."""

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
    return Known(
        f"A fault of {program} at {place}: {what}. No setting or picture makes that; where it worked before, "
        "a package that this code uses was exchanged for another release.",
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
