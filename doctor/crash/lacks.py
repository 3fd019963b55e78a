"""Whose class or function it is that lacks a name, by what the packages' sources make and call by name."""

from __future__ import annotations

import re

from ..model.crashes import Failure, Known
from .owners import TRAINERS, owner
from .sources import made_by, mined, names_of, versions_of
from .versions import source_of

_LONG_NAME = 12
# How classes are called that programs make for themselves; what other packages make has names like any.
_PROGRAM = re.compile(r"[a-z](?:Trainer|Network|Wrapper|DiT|Dataset|Process|Job|Runner)$")
_ASKED = re.compile(
    r"(?:['\"]|\b(?=[A-Z]\w+ object))(?P<owner>[A-Z]\w*)['\"]? (?:object )?has no attribute ['\"](?P<name>\w+)"
    r"|(?P<call>(?:[A-Z]\w+\.)?\w+)\(\) got (?:an )?unexpected keyword argument ['\"](?P<argument>\w+)"
    r"|(?P<wants>(?:[A-Z]\w+\.)?\w+)\(\) missing \d+ required [\w -]+ arguments?: ['\"](?P<missing>\w+)"
)
_IMPORTED = re.compile(r"cannot import name ['\"](?P<name>\w+)['\"] from ['\"](?P<module>[\w.]+)['\"]?")


def lacks(failure: Failure) -> Known | None:
    """What is told of a name that is not where it is asked for."""
    return _elsewhere(failure) or _lacked(failure)


def _elsewhere(failure: Failure) -> Known | None:
    """A name that a package has, and not where it is asked for."""
    asked = _IMPORTED.search(" ".join(failure.message.split()))
    if asked is None or (package := asked["module"].partition(".")[0]) not in mined():
        return None
    name = asked["name"]
    if name not in made_by(package) and f"{name}()" not in made_by(package):
        return None
    return told(
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
    having = [package for package in mined() if made in made_by(package)]
    having = [package for package in having if package not in TRAINERS] or having  # which copy what libraries have
    if len(having) != 1 or not (_rare(made, having[0]) or _at_work(having[0], failure)):
        return (_renamed(owner, name, failure) or _of_nobody(owner, name, failure)) if groups["name"] else None
    package = having[0]
    who = _asker(failure, package)
    first, last = versions_of(package)
    names = names_of(package)
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
    return told(failure, package, cause, do)


def _renamed(owner: str, name: str, failure: Failure) -> Known | None:
    """A name that one package alone knows, asked of what anybody's classes are called."""
    knowing = [package for package in mined() if package not in TRAINERS and name in names_of(package)]
    if len(knowing) != 1 or not _telling(name):
        return None
    package = knowing[0]
    since, gone = names_of(package)[name]
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
    return told(failure, package, cause, do)


def _of_nobody(owner: str, name: str, failure: Failure) -> Known | None:
    """A name that only the program's own code has, asked of a class that only the program can have."""
    if failure.cause is not None or not _PROGRAM.search(owner) or not _telling(name):
        return None
    if any(owner in made_by(package) or name in names_of(package) for package in mined() if package not in TRAINERS):
        return None
    return Known(
        f"{owner} is a class of the program itself, or of a node or extension in it, and its code asks it for "
        f"{name}, which it does not have; no package knows either. Its files are of two versions, or this "
        "version has a fault; no picture, caption or package makes that.",
        f"Update the program as a whole (git pull, its submodules and nodes, too). Where it is the newest, look for "
        f"{name} in its issues, take its release before, or leave out the step that asks for it.",
        error=failure.name,
        source="https://docs.python.org/3/library/exceptions.html#AttributeError",
    )


def _telling(name: str) -> bool:
    """Whether a name is of several words, so that hardly two programs have it for different things."""
    return len(name) >= _LONG_NAME and "_" in name.strip("_")


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


def told(failure: Failure, package: str, cause: str, do: str) -> Known:
    """What a package's source says of a failure."""
    return Known(cause, do, error=failure.name, source=source_of(package))
