"""Changes to a training command in a script: one option is set, everything else stays as it is written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from ..model import ReplaceText, SetValue
from .command_line import Command, Shell, Word, commands, shell_of
from .node import Unreadable

_SCRIPT = re.compile(r"(?:^|[/\\.])(?:\w*train\w*\.py|(?:\w+_)?train(?:_network)?)$")
_SAFE = re.compile(r"[\w./:=,+-]+")


class ShellEditError(Exception):
    """The edit cannot be made without changing something else; nothing was changed."""


def edit_commands(path: str, text: str, edits: Sequence[SetValue | ReplaceText]) -> str:
    """The script with the edits made, each of them looked at again by reading the result. Raises ShellEditError."""
    done = text
    replacements = [edit for edit in edits if isinstance(edit, ReplaceText)]
    for edit in sorted(replacements, key=lambda e: e.start, reverse=True):
        if text[edit.start : edit.end] != edit.old:
            raise ShellEditError(f"the text at {edit.start} is no longer {edit.old!r}")
        done = done[: edit.start] + edit.new + done[edit.end :]
    if len(_read(path, done)) != len(_read(path, text)):
        raise ShellEditError("the script would hold other commands")
    for setting in (edit for edit in edits if isinstance(edit, SetValue)):
        done = _set(path, done, setting)
    return done


def _read(path: str, text: str) -> tuple[Command, ...]:
    try:
        return commands(path, text, {})
    except Unreadable as error:
        raise ShellEditError(str(error)) from None


def _training(path: str, text: str) -> Command:
    found = [c for c in _read(path, text) if any(_SCRIPT.search(word.text) for word in c.words)]
    if len(found) != 1:
        raise ShellEditError(f"the script starts {len(found)} trainings")
    return found[0]


def _set(path: str, text: str, edit: SetValue) -> str:
    name = edit.pointer.removeprefix("/")
    value = edit.value
    if not re.fullmatch(r"[A-Za-z]\w*", name) or isinstance(value, list | dict) or value in (False, None):
        raise ShellEditError(f"{edit.pointer} cannot be set on a command line")
    before = _training(path, text)
    flag, shell = f"--{name}", shell_of(path, text)
    written = _quoted(str(value), shell)
    at = next((i for i, w in enumerate(before.words) if w.text == flag or w.text.startswith(flag + "=")), None)
    if at is None:
        end = before.words[-1].end
        new = flag if value is True else f"{flag} {written}"
        done = f"{text[:end]} {new}{text[end:]}"
    elif value is True:
        done = text
    else:
        word, start = _value(text, before.words, at, flag)
        if not word.plain:
            raise ShellEditError(f"{flag} takes its value from a variable of the script")
        done = text[:start] + written + text[word.end :]
    _verify(before, _training(path, done), flag, "" if value is True else str(value))
    return done


def _value(text: str, words: tuple[Word, ...], at: int, flag: str) -> tuple[Word, int]:
    word = words[at]
    if word.text != flag:
        return word, text.index("=", word.start) + 1
    if at + 1 == len(words) or words[at + 1].text.startswith("--"):
        raise ShellEditError(f"{flag} has no value")
    return words[at + 1], words[at + 1].start


def _quoted(value: str, shell: Shell) -> str:
    if _SAFE.fullmatch(value):
        return value
    return "'" + value.replace("'", "'\\''" if shell == "bash" else "''") + "'" if shell != "cmd" else f'"{value}"'


def _verify(before: Command, after: Command, flag: str, value: str) -> None:
    """Every other word is the same, and the option has its value."""

    def rest(command: Command) -> list[str]:
        kept: list[str] = []
        skip = False
        for word in command.words:
            if skip and not word.text.startswith("--"):
                skip = False
                continue
            skip = word.text == flag and bool(value)
            if word.text != flag and not word.text.startswith(flag + "="):
                kept.append(word.text)
        return kept

    texts = [word.text for word in after.words]
    now = f"{flag}={value}" in texts or any(pair == (flag, value) for pair in pairwise(texts))
    if rest(before) != rest(after) or not (now if value else flag in texts):
        raise ShellEditError(f"setting {flag} would also change something else")
