"""The known failures: YAML files, one for each subject and one in each trainer's room, read when a log is explained.

docs/house.md says how to add one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from ..errors import UserError
from ..model.crashes import Known
from ..trainers import loaded, trainers

FOLDER = Path(__file__).with_name("known")
ZDOCTOR = FOLDER.parents[2]
# Of entries that know as much of a failure (specific.py) the first counts; those of the trainers' rooms come before.
SUBJECTS = (
    *("builds", "imports", "containers", "webpages", "environments", "companions", "pythons"),
    *("attention", "devices", "distributed", "quantized", "gradients", "shapes", "limits", "scripts", "adapters"),
    *("other_trainers", "mixed_up", "states", "downloads", "model_files", "hub"),
    *("tensors", "weights", "checkpoints", "memory", "kernels", "versions"),
    *("libraries", "installs", "starts", "packages", "loading", "card", "machine", "launchers", "around"),
    *("own_words", "basics", "native", "clues", "general"),
)
_HEAD = frozenset(("about", "read_in", "failures"))
_FIELDS = frozenset(Known.__match_args__)
_NEEDED = frozenset(("cause", "do", "source"))
_SHOWN_BY = ("error", "text", "words", "line")  # each has one of them
_PATTERNS = ("text", "where", "seen")
_YES = ("alone", "messenger", "vague", "sure")
# libyaml, where PyYAML was built with it: a tenth of the time. Neither makes anything but texts.
_Loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)


@cache
def known() -> tuple[Known, ...]:
    """Every known failure. Asked for only when the plug-ins are there."""
    rooms = dict.fromkeys(trainer.failures for trainer in trainers() if trainer.failures)
    return (*(one for room in rooms for one in of_room(room)), *(one for name in SUBJECTS for one in of(name)))


@cache
def lines() -> tuple[Known, ...]:
    """What a trainer prints without an exception: it stops, or goes on and trains nothing of use."""
    return tuple(one for one in known() if one.line)


def general() -> tuple[Known, ...]:
    """What is true of any failure of its shape: of no use beside what knows more."""
    return of("general")


def is_general(known: Known | None) -> bool:
    return any(known is one for one in general())


@cache
def beyond_general() -> tuple[Known, ...]:
    """Those that know more than a shape."""
    return tuple(one for one in known() if not is_general(one))


def warned() -> tuple[Known, ...]:
    """What ends nothing: told of where a text has nothing else."""
    return of("warned")


def ends() -> tuple[Known, ...]:
    """What a text that ends without an error was at, by its last lines."""
    return of("ends")


@cache
def of(subject: str) -> tuple[Known, ...]:
    return read(FOLDER / f"{subject}.yaml")


def of_room(place: str) -> tuple[Known, ...]:
    """Those that a trainer's record names: a "package:file", or a module that holds them as KNOWN."""
    name, _, file = place.partition(":")
    module = loaded(name)
    return read(Path(module.__file__).with_name(file)) if file else tuple(module.KNOWN)


def read(file: Path) -> tuple[Known, ...]:
    """The failures of a file. Raises UserError with the file, the line and the entry of what is wrong there."""
    try:
        root = yaml.compose(file.read_bytes(), Loader=_Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
        raise UserError(f"{file}, line {mark.line + 1 if mark else 1}: {problem}") from None
    try:
        head = _fields(root, _HEAD)
        if missing := _HEAD - head.keys():
            raise _Wrong(root, f"{min(missing)} is missing")
        if not isinstance(head["failures"], yaml.SequenceNode):
            raise _Wrong(head["failures"], "failures is no list")
        made = _known if ZDOCTOR in file.parents else _checked
        return tuple(map(made, head["failures"].value))
    except _Wrong as wrong:
        raise UserError(f"{file}, line {wrong.line}: {wrong}") from None


class _Wrong(Exception):
    """What is wrong with a node of the tree."""

    def __init__(self, node: yaml.Node | None, message: str) -> None:
        super().__init__(message)
        self.line = node.start_mark.line + 1 if node is not None else 1


def _known(node: yaml.Node) -> Known:
    fields = _fields(node, _FIELDS)
    values: dict[str, Any] = {field: _VALUES.get(field, _text)(value) for field, value in fields.items()}
    if missing := _NEEDED - values.keys():
        raise _Wrong(node, f"{_name(fields)} has no {min(missing)}")
    if values.keys().isdisjoint(_SHOWN_BY):
        raise _Wrong(node, f"{_name(fields)} has none of {', '.join(_SHOWN_BY)}")
    return Known(**values)


def _checked(node: yaml.Node) -> Known:
    """A failure of somebody else's table; the tests try the patterns of ours, and compiling all takes a while."""
    known = _known(node)
    try:
        re.compile(known.text)
        re.compile(known.where)
        re.compile(known.seen)
    except re.error as error:
        raise _Wrong(node, f"the failure {known.cause!r} has a pattern that is none: {error}") from None
    return known


def _name(fields: Mapping[str, yaml.Node]) -> str:
    return f"the failure {_text(fields['cause'])!r}" if "cause" in fields else "a failure"


def _fields(node: yaml.Node | None, allowed: frozenset[str]) -> dict[str, yaml.Node]:
    if not isinstance(node, yaml.MappingNode):
        raise _Wrong(node, "here belong fields and their values")
    fields: dict[str, yaml.Node] = {}
    for key, value in node.value:
        if key.value not in allowed:
            raise _Wrong(key, f"{key.value!r} is no field; there are {', '.join(sorted(allowed))}")
        if key.value in fields:
            raise _Wrong(key, f"{key.value} stands twice")
        fields[key.value] = value
    return fields


def _text(node: yaml.Node) -> str:
    if not isinstance(node, yaml.ScalarNode) or not node.value:
        raise _Wrong(node, "a text belongs here")
    return str(node.value)


def _texts(node: yaml.Node) -> tuple[str, ...]:
    if not isinstance(node, yaml.SequenceNode) or not node.value:
        raise _Wrong(node, "a list belongs here")
    return tuple(map(_text, node.value))


def _pattern(node: yaml.Node) -> str:
    """One pattern, or a list of which any may fit."""
    return "|".join(_texts(node)) if isinstance(node, yaml.SequenceNode) else _text(node)


def _yes(node: yaml.Node) -> bool:
    if _text(node) != "true":
        raise _Wrong(node, "true belongs here, or nothing at all")
    return True


def _count(node: yaml.Node) -> int:
    if not _text(node).isdecimal():
        raise _Wrong(node, "a number belongs here")
    return int(node.value)


_VALUES: dict[str, Callable[[yaml.Node], object]] = {
    "words": _texts,
    "least": _count,
    **dict.fromkeys(_PATTERNS, _pattern),
    **dict.fromkeys(_YES, _yes),
}
