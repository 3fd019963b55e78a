"""A training command in a shell script or a text file: its words with their places. Nothing is run.

Bash, PowerShell and cmd are told apart by the file's name, else by the character that continues a line.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from ..model.record import replace
from .command import Command, Shell
from .script_reader import Reader

CONTINUES: Mapping[str, Shell] = {"\\": "bash", "`": "powershell", "^": "cmd"}
_BY_NAME: Mapping[str, Shell] = {
    ".sh": "bash",
    ".bash": "bash",
    ".command": "bash",
    ".ps1": "powershell",
    ".bat": "cmd",
    ".cmd": "cmd",
}
_LAST = re.compile(r"(\S)[ \t]*(?=\r|\n|$)")
_OPTION = re.compile(r"--[A-Za-z]")


def shell_of(path: str, text: str) -> Shell:
    """Which shell a file is written for."""
    ends = _ends(text)
    return _named(path) or (CONTINUES[ends.most_common(1)[0][0]] if ends else "bash")


def _named(path: str) -> Shell | None:
    ending = re.search(r"\.\w+$", path.lower())
    return _BY_NAME.get(ending.group()) if ending else None


def _ends(text: str) -> Counter[str]:
    """The characters that continue lines, and how often."""
    return Counter(m.group(1) for m in _LAST.finditer(text) if m.group(1) in CONTINUES)


def commands(path: str, text: str, environment: Mapping[str, str]) -> tuple[Command, ...]:
    """Every command of a text, with the variables filled in that the text itself or `environment` sets.

    Raises Unreadable for a quote that is never closed. Each shell's reader is imported only where it is needed.
    """
    reader: Reader
    match shell_of(path, text):
        case "bash":
            from .bash import BashReader

            reader = BashReader(text, environment)
        case "powershell":
            from .powershell import PowershellReader

            reader = PowershellReader(text, environment)
        case "cmd":
            from .cmd import CmdReader

            reader = CmdReader(text, environment)
    # a note of a command that was never in a script: options on lines of their own belong to it
    return tuple(_joined(reader.commands(), is_note=_named(path) is None and not _ends(text)))


def _joined(found: Iterable[tuple[Command | None, str]], is_note: bool) -> Iterator[Command]:
    """The commands, each found with what ended it; options on a line of their own are part of the one before."""
    before: Command | None = None
    ended = ""
    for command, stop in found:
        first = command.words[0] if command else None
        if before and command and first and first.plain and _OPTION.match(first.text) and not ended.strip():
            # a lone option is no program: the line above was meant to go on
            if is_note:
                before = replace(before, words=(*before.words, *command.words))
            else:
                before = replace(before, broken=before.broken or command.start)
        else:
            if before is not None:
                yield before
            before = command
        ended = stop
    if before is not None:
        yield before
