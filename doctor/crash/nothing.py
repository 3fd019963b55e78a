"""Which expression of the code was None, where a failure says only that one was."""

from __future__ import annotations

import re
from pathlib import PureWindowsPath

from ..model.crashes import Failure, Known
from .owners import owner

_WORDS = "NoneType"
# A name, what it holds and what it gives: self.model, parts[0].text, load(x).
_EXPRESSION = r"(?<![\w.\])])[A-Za-z_]\w*(?:\.\w+|\[[^\[\]]*\]|\([^()]*\))*?"
# What stands around it in the line of code, by the words of the exception.
_AROUND = (
    (re.compile("has no attribute"), r"{what}(?=\.{name}\b)|getattr\({what}, ['\"]{name}['\"]"),
    (re.compile("is not subscriptable"), r"{what}(?=\[)"),
    (re.compile(r"has no len\("), r"\blen\({what}\)"),
    (re.compile("argument of type"), r"\bin {what}(?=[\s:\])]|$)"),
    (re.compile("is not callable"), r"{what}(?=\()"),
    (re.compile("is not iterable"), r"\bin {what}(?=[\s:\])]|$)|[(,] ?\*{what}(?=[,)])"),
    (re.compile("cannot unpack"), r"= {what}$"),
    # the one on that side of the operator on which the words have it
    (re.compile(": 'NoneType' and"), r"{what}(?= ?{sign} )"),
    (re.compile(r"instances of 'NoneType' and"), r"{what}(?= {sign} )"),
    (re.compile("and 'NoneType'"), r" {sign} {what}(?=[\s),\]:]|$)"),
)
_SIGN = re.compile(r"for (\S+): |'(\S+)' not supported")
_ATTRIBUTE = re.compile(r"has no attribute '(\w+)")


def nothing_asked(failure: Failure) -> tuple[str, str] | None:
    """The one expression of the line of code that can have been None, "" where it does not tell, and the attribute
    that was asked of it; None where nothing was None."""
    if _WORDS not in failure.message:
        return None
    asked, sign = _ATTRIBUTE.search(failure.message), _SIGN.search(failure.message)
    name = asked[1] if asked is not None else ""
    around = next((one for words, one in _AROUND if words.search(failure.message)), None)
    if around is None or not failure.frames:
        return "", name
    pattern = around.format(
        what=f"({_EXPRESSION})",
        name=name,
        sign=re.escape(sign[1] or sign[2]) if sign is not None else "",
    )
    code = failure.frames[-1].code
    found = {what for one in re.finditer(pattern, code) for what in one.groups() if what} - {"self"}
    return found.pop() if len(found) == 1 else "", name


def nothing(failure: Failure) -> Known | None:
    """What is told of it, where the line of code names but one that it can have been."""
    what, _ = nothing_asked(failure) or ("", "")
    if not what:
        return None
    frame = failure.frames[-1]
    place = f"{PureWindowsPath(frame.file).name}:{frame.line}"
    cause = (
        f"{what} is nothing (None) at {place}, in {frame.function}: a part of the model, a setting or a library "
        "that was not named, not loaded, or could not be made; or the program released it before."
    )
    if (program := owner(frame)) and not frame.is_library:
        cause = (
            f"{what} is nothing (None) at {place}, in {frame.function}: {program} does not set it with these "
            "settings, a fault of its version; or a part of the model or a file was not named, not found or "
            "not loaded."
        )
    return Known(
        cause,
        f"Look which setting or file {what} comes from; what could not be loaded or found is most often said in "
        "the warnings above. Where all is named, update the trainer, or take its release before.",
        error=failure.name,
        vague=True,
        source="https://docs.python.org/3/library/constants.html#None",
    )
