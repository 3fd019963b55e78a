"""A training command in a script is changed: one option is set, everything else stays as it is written."""

from __future__ import annotations

import re
from itertools import pairwise

from ..model import SetValue
from .command import Command, Shell, Word
from .command_line import commands, shell_of
from .literals import EditError
from .node import Unreadable

_SCRIPT = re.compile(r"(?:^|[/\\.])(?:\w*train\w*\.py|(?:\w+_)?train(?:_network)?)$")
_SAFE = re.compile(r"[\w./:=,+-]+")


def same_commands(path: str, before: str, after: str) -> None:
    """Raises EditError where a script holds more or fewer commands than it did."""
    if len(_read(path, after)) != len(_read(path, before)):
        raise EditError("the script would hold other commands")


def _read(path: str, text: str) -> tuple[Command, ...]:
    try:
        return commands(path, text, {})
    except Unreadable as error:
        raise EditError(str(error)) from None


def _training(path: str, text: str) -> Command:
    found = [c for c in _read(path, text) if any(_SCRIPT.search(word.text) for word in c.words)]
    if len(found) != 1:
        raise EditError(f"the script starts {len(found)} trainings")
    return found[0]


def _begins(command: Command) -> int:
    """Where the trainer's own words begin: before its script stand those of the launcher."""
    return next(i for i, word in enumerate(command.words) if _SCRIPT.search(word.text)) + 1


def set_option(path: str, text: str, edit: SetValue) -> str:
    """The script with one option of its training command set. Raises EditError."""
    name = edit.pointer.removeprefix("/")
    value = edit.value
    if not re.fullmatch(r"[A-Za-z]\w*", name) or isinstance(value, list | dict) or value in (False, None):
        raise EditError(f"{edit.pointer} cannot be set on a command line")
    before = _training(path, text)
    flag, shell = f"--{name}", shell_of(path, text)
    written = _quoted(str(value), shell)
    named = [i for i, word in enumerate(before.words) if word.text == flag or word.text.startswith(flag + "=")]
    at = next((i for i in reversed(named) if i >= _begins(before)), None)  # the parser takes the last
    if at is None:
        end = before.words[-1].end
        new = flag if value is True else f"{flag} {written}"
        done = f"{text[:end]} {new}{text[end:]}"
    elif value is True:
        done = text
    else:
        word, start = _value(text, before.words, at, flag)
        if not word.plain:
            raise EditError(f"{flag} takes its value from a variable of the script")
        done = text[:start] + written + text[word.end :]
    _verify(before, _training(path, done), flag, "" if value is True else str(value))
    return done


def _value(text: str, words: tuple[Word, ...], at: int, flag: str) -> tuple[Word, int]:
    word = words[at]
    if word.text != flag:
        return word, text.index("=", word.start) + 1
    if at + 1 == len(words) or words[at + 1].text.startswith("--"):
        raise EditError(f"{flag} has no value")
    return words[at + 1], words[at + 1].start


def _quoted(value: str, shell: Shell) -> str:
    if _SAFE.fullmatch(value):
        return value
    return "'" + value.replace("'", "'\\''" if shell == "bash" else "''") + "'" if shell != "cmd" else f'"{value}"'


def _verify(before: Command, after: Command, flag: str, value: str) -> None:
    """Every other word is the same, and the option has its value."""

    def rest(command: Command) -> list[str]:
        kept = [word.text for word in command.words[: _begins(command)]]
        skip = False
        for word in command.words[_begins(command) :]:
            if skip and not word.text.startswith("--"):
                skip = False
                continue
            skip = word.text == flag and bool(value)
            if word.text != flag and not word.text.startswith(flag + "="):
                kept.append(word.text)
        return kept

    texts = [word.text for word in after.words[_begins(after) :]]
    now = f"{flag}={value}" in texts or any(pair == (flag, value) for pair in pairwise(texts))
    if rest(before) != rest(after) or not (now if value else flag in texts):
        raise EditError(f"setting {flag} would also change something else")
