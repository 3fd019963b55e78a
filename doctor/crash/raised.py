"""What packages say themselves as they stop, and whose classes and functions there are, where no entry knows more.

maintenance/mine_raised.py writes `raised/PACKAGE.json.gz`, from the packages' sources: each text as a fingerprint,
with the exception, the function and the file it stands in, and what the test before it asks for.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from ..model.crashes import Failure, Frame, Known
from .fingerprints import Message, first_of, length
from .owners import TRAINERS, owner
from .refusals import advice
from .versions import INSTALLED_AS, source_of

_LONG_NAME = 12
MOST_PACKAGES = 3  # trainers copy from each other; what more of them say is anybody's
RAISED = Path(__file__).with_name("raised")
# A frame that raises what another process or thread has raised.
_HANDED_ON = re.compile(r"raise (?:self\._(?:value|exception)|exception|exc|value|e)\b(?!\()")
# Whose logger writes it.
_LOGGER = re.compile(r"^[\w.]+:(?=\w)")
# What Python itself says, and packages after it where they compute what an object has.
_PYTHONS = re.compile(
    r"has no attribute|\bunexpected keyword|\bNoneType\b|cannot import name|No module named|required positional"
)
_ASKED = re.compile(
    r"(?:['\"]|\b(?=[A-Z]\w+ object))(?P<owner>[A-Z]\w*)['\"]? (?:object )?has no attribute ['\"](?P<name>\w+)"
    r"|(?P<call>(?:[A-Z]\w+\.)?\w+)\(\) got (?:an )?unexpected keyword argument ['\"](?P<argument>\w+)"
    r"|(?P<wants>(?:[A-Z]\w+\.)?\w+)\(\) missing \d+ required [\w -]+ arguments?: ['\"](?P<missing>\w+)"
)
_IMPORTED = re.compile(r"cannot import name ['\"](?P<name>\w+)['\"] from ['\"](?P<module>[\w.]+)['\"]?")
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
    yield from (one for package in _packages() for one in _texts(package))


def by_source(failure: Failure) -> Known | None:
    """What a package's own source says of a failure: of its words, or of what it lacks."""
    return next(
        (known for part in failure.chain if (known := _said(part) or _elsewhere(part) or _lacked(part)) is not None),
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
    packages = _packages() if frame is None else [name for name in (owner(frame),) if name in _packages()]
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
    return _known(
        failure, one.package, " ".join(said), " ".join(filter(None, (advice(message), _cure(one, package))))
    )


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


def _elsewhere(failure: Failure) -> Known | None:
    """A name that a package has, and not where it is asked for."""
    asked = _IMPORTED.search(" ".join(failure.message.split()))
    if asked is None or (package := asked["module"].partition(".")[0]) not in _packages():
        return None
    name = asked["name"]
    if name not in _made(package) and f"{name}()" not in _made(package):
        return None
    return _known(
        failure,
        package,
        f"{package} makes a {name}, but {asked['module']}, as it is installed here, does not hand it out: the "
        "line that imports it names the wrong module, or is of another time than this package.",
        f"Import it from the module that makes it (look for def or class {name} in {package}); where it is no "
        "code of yours, pip install -r requirements.txt in the program's folder, or update it.",
    )


def _lacked(failure: Failure) -> Known | None:
    """Whose class or function it is that lacks a name."""
    asked = _ASKED.search(" ".join(failure.message.split()))
    if asked is None:
        return None
    groups = asked.groupdict("")
    owner = groups["owner"] or groups["call"] or groups["wants"]
    name = groups["name"] or groups["argument"] or groups["missing"]
    made = owner.partition(".")[0] if owner[:1].isupper() else f"{owner}()"
    having = [package for package in _packages() if made in _made(package)]
    having = [package for package in having if package not in TRAINERS] or having  # which copy what libraries have
    if len(having) != 1 or not (_rare(made, having[0]) or _at_work(having[0], failure)):
        return _renamed(owner, name, failure) if groups["name"] else None
    package = having[0]
    who = _asker(failure, package)
    first, last = _versions(package)
    names = _names(package)
    if groups["missing"]:
        cause = (
            f"{owner} is of {package}, and wants {name}, which it is not handed: {package} is of another version "
            f"than {who} was written for, or what it works on was made in another way."
        )
    elif name not in names:
        cause = (
            f"{owner} is of {package}, and nothing in {package} {first} to {last} is called {name}: {who} was "
            f"written for something else, for another {package} than these, or for a changed copy of it."
        )
    else:
        cause = (
            f"{owner} is of {package}, and {name} is a name that {package} knows, but not of this: {package} is of "
            f"another version than {who} was written for, or another kind of it was handed over."
        )
        since, gone = names[name]
        cause += f" {package} knows {name} since {since}." if since else ""
        cause += f" {package} {gone} knows {name} no more." if gone else ""
    do = (
        f"Update {who} and {package} to versions that go together: pip install -r requirements.txt in the program's "
        "folder and its environment. Where these are there, look for the words in the program's issues."
    )
    return _known(failure, package, cause, do)


def _renamed(owner: str, name: str, failure: Failure) -> Known | None:
    """A name that one package alone knows, asked of what anybody's classes are called."""
    knowing = [package for package in _packages() if package not in TRAINERS and name in _names(package)]
    if len(knowing) != 1 or len(name) < _LONG_NAME or "_" not in name.strip("_"):
        return None
    package = knowing[0]
    since, gone = _names(package)[name]
    who = _asker(failure, package)
    cause = (
        f"{name} is a name of {package}, and this {owner} is not what has it there: {package} is of another "
        f"version than {who} was written for, or what makes such a {owner} was not called."
    )
    cause += f" {package} knows {name} since {since}." if since else ""
    cause += f" {package} {gone} knows {name} no more." if gone else ""
    do = (
        f"Install the {package} that {who} was written for: pip install -r requirements.txt in the program's folder; "
        "where it names none, one of the time at which the program was published."
    )
    return _known(failure, package, cause, do)


def _rare(made: str, package: str) -> bool:
    """Whether other programs have hardly a class of that name; a function's, or a trainer's, others have too."""
    return package not in TRAINERS and len(made) > 9 and len(re.findall("[A-Z]+[a-z0-9]+", made)) > 1


def _at_work(package: str, failure: Failure) -> bool:
    return any(owner(frame) == package for frame in failure.frames)


def _asker(failure: Failure, package: str) -> str:
    """Whose code asks, as torch only hands on what is asked of a model, and the hub's client what it validated."""
    frames = [frame for frame in failure.frames if "_validators.py" not in frame.file]
    asking = (owner(frame) for frame in reversed(frames) if owner(frame) not in (package, "torch"))
    return next(asking, "") or "what asks for it"


def _known(failure: Failure, package: str, cause: str, do: str) -> Known:
    return Known(cause, do, error=failure.name, vague=True, source=source_of(package))


@cache
def _packages() -> tuple[str, ...]:
    return tuple(sorted(file.name.partition(".")[0] for file in RAISED.glob("*.json.gz")))


@cache
def document(package: str) -> Any:
    return json.loads(gzip.decompress((RAISED / f"{package}.json.gz").read_bytes()))


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


@cache
def _made(package: str) -> frozenset[str]:
    """The classes and "functions()" that any version of the package makes."""
    return frozenset(document(package)["made"].split())


@cache
def _names(package: str) -> dict[str, tuple[str, str]]:
    """Whatever anything of the package has or takes: the first version with it, and the first without it again."""
    spans = ((span.replace("-", "").split(" "), names) for span, names in document(package)["names"].items())
    return {name: (since, gone) for (since, gone), names in spans for name in names.split()}


def _versions(package: str) -> tuple[str, str]:
    versions = document(package)["versions"]
    return versions[0], versions[-1]
