"""What packages say themselves as they stop, where no entry knows more.

Of each text there is (`sources.py`) its fingerprint, the exception, the function and the file it stands in, and what
the test before it asks for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from ..model.crashes import Failure, Frame, Known
from .fingerprints import Message, first_of, length
from .lacks import lacks, told
from .owners import TRAINERS, owner
from .refusals import advice
from .sources import document, mined
from .versions import INSTALLED_AS

MOST_PACKAGES = 3  # trainers copy from each other; what more of them say is anybody's
# A frame that raises what another process or thread has raised.
_HANDED_ON = re.compile(r"raise (?:self\._(?:value|exception)|exception|exc|value|e)\b(?!\()")
# Whose logger writes it.
_LOGGER = re.compile(r"^[\w.]+:(?=\w)")
# What Python itself says, and packages after it where they compute what an object has.
_PYTHONS = re.compile(
    r"has no attribute|\bunexpected keyword|\bNoneType\b|cannot import name|No module named|required positional"
)
# The kinds of conditions (maintenance/raising.py), and how each is said.
_HOLDS = {
    "none": "It does so where {what} is not given (None).",
    "given": "It does so where {what} is given.",
    "empty": "It does so where {what} is empty or not set.",
    "outside": "It does so where {what} is none of {allowed}.",
    "kind": "It does so where {what} is of another kind than {allowed}.",
    "differ": "It does so where {what} and {allowed} are not the same.",
    "lacking": "It does so where the package {what} is not installed.",
    "path": "It does so where there is no file or folder {what}.",
    "asks": "It looks at {what} there.",
}


class Raised(NamedTuple):
    """One text, as its fingerprint; `holds` is the kind of the condition and what it is about."""

    package: str
    file: str
    error: str
    fingerprint: str
    function: str
    argument: str
    since: str
    gone: str
    holds: tuple[str, ...]

    def fits(self, failure: Failure, message: Message, *, framed: bool, cut: bool) -> bool:
        named = failure.name not in ("Said", "Reported")
        return (not named or self.error == failure.name) and message.fits(
            self.fingerprint, from_start=not framed, cut=cut
        )


def texts() -> Iterator[Raised]:
    """All of them."""
    yield from (one for package in mined() for one in _texts(package))


def by_source(failure: Failure) -> Known | None:
    """What a package's own source says of a failure: of its words, or of what it lacks."""
    return next(
        (known for part in failure.chain if (known := _said(part) or lacks(part)) is not None),
        None,
    )


def _said(failure: Failure) -> Known | None:
    message = " ".join(failure.message.split())
    if failure.name == "Reported":
        message = _LOGGER.sub("", message)
    if _PYTHONS.search(message):
        return None
    frame = failure.frames[-1] if failure.frames else None
    if frame is not None and _HANDED_ON.search(frame.code):
        frame = None
    named = failure.name != "Said"
    packages = mined() if frame is None else [name for name in (owner(frame),) if name in mined()]
    held = Message(message)
    every = [one for package in packages for one in _beginning(package, held, framed=frame is not None or named)]
    found = [one for one in every if one.fits(failure, held, framed=frame is not None, cut=False)]
    found = found or [one for one in every if one.fits(failure, held, framed=frame is not None, cut=True)]
    found = [one for one in found if one.package not in TRAINERS] or found  # which copy what libraries have
    said_by = {one.package for one in found}
    if len(said_by) != 1 and not (0 < len(said_by) <= MOST_PACKAGES and said_by <= TRAINERS):
        return None
    one = max(found, key=lambda one: length(one.fingerprint))
    package = " / ".join(INSTALLED_AS.get(name, name) for name in sorted(said_by))
    said = [_place(one, package, frame)]
    if one.holds:
        kind, what, *others = one.holds
        asked = what if kind == "lacking" else f"`{what}`"
        said.append(_HOLDS[kind].replace("{what}", asked).replace("{allowed}", f"`{''.join(others)}`"))
    if one.since and one.package not in TRAINERS:
        said.append(f"{package} says so since {one.since}.")
    if one.gone:
        said.append(f"{package} {one.gone} says so no more.")
    return told(failure, one.package, " ".join(said), " ".join(filter(None, (advice(message), _cure(one, package)))))


def _place(one: Raised, package: str, frame: Frame | None) -> str:
    function = frame.function if frame is not None and frame.function else one.function
    if function and one.file:
        return f"{package} itself stops there, in {function} of {one.file}."
    return f"{package} itself stops there, in {function}." if function else f"{package} itself stops there."


def _cure(one: Raised, package: str) -> str:
    if one.holds[:1] == ("lacking",):
        return f"Install {one.holds[1]} in the program's environment, or choose a setting that does without it."
    if one.package in TRAINERS:
        return (
            "Change the setting or the file that this is about; zdoctor check CONFIG looks at all of them. Where it "
            f"is nothing of yours, the fault is {package}'s: update it, or look for these words in its issues."
        )
    if one.argument:
        return (
            f"Change the setting or the file that becomes {one.argument}. Where it is nothing of yours, the program "
            f"and this {package} do not go together: pip install -r requirements.txt in the program's folder."
        )
    return (
        "Change the setting or the file that this is about. Where it is nothing of yours, the program and "
        f"this {package} do not go together: pip install -r requirements.txt in the program's folder."
    )


def _raised(
    package: str,
    file: str,
    error: str,
    fingerprint: str,
    function: str = "",
    argument: str = "",
    since: str = "",
    gone: str = "",
    *holds: str,
) -> Raised:
    return Raised(package, file, error, fingerprint, function, argument, since, gone, holds)


@cache
def _texts(package: str) -> tuple[Raised, ...]:
    return tuple(_raised(package, file, *row) for file, rows in document(package)["files"].items() for row in rows)


@cache
def _by_first(package: str) -> tuple[tuple[int, ...], dict[str, list[Raised]]]:
    """The texts by the first part of their fingerprints, and which sizes these have."""
    found: dict[str, list[Raised]] = {}
    sizes: set[int] = set()
    for one in _texts(package):
        size, part = first_of(one.fingerprint)
        sizes.add(size)
        found.setdefault(part, []).append(one)
    return tuple(sorted(sizes)), found


def _beginning(package: str, message: Message, *, framed: bool) -> Iterator[Raised]:
    """The texts that the message may be; those that begin with a value only where it is an exception's."""
    sizes, texts = _by_first(package)
    for part in message.begins(sizes):
        if part or framed:
            yield from texts.get(part, ())
