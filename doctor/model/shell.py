"""Words as they are typed into a shell."""

from __future__ import annotations

from collections.abc import Iterable
from ntpath import basename, splitext
from typing import Literal

Shell = Literal["sh", "powershell", "cmd"]
_PROGRAMS: dict[str, Shell] = {
    "cmd": "cmd",
    "powershell": "powershell",
    "pwsh": "powershell",
    **dict.fromkeys(("bash", "sh", "zsh", "fish"), "sh"),
}
_PLAIN = frozenset("/._-+%=:")  # a comma and a leading @ mean something to PowerShell


def quoted(word: str) -> str:
    """A path as sh, PowerShell and, where that is possible, cmd take it.

    One with characters that a terminal obeys cannot be typed.
    """
    if word.startswith("-"):
        word = f"./{word}"  # else it would be an option
    if word and all(c.isalnum() or c in _PLAIN for c in word):
        return word
    if "\\" in word or not any(c in word for c in '"$`!'):
        return f'"{word}"'
    return "'" + word.replace("'", "'\\''") + "'"


def shell_among(programs: Iterable[str]) -> Shell | None:
    """The shell among the programs that started this one, the nearest first; None where there is none."""
    names = (splitext(basename(program))[0].lower() for program in programs)
    return next((_PROGRAMS[name] for name in names if name in _PROGRAMS), None)


def setting(variables: Iterable[tuple[str, str]], shell: Shell) -> str:
    """Environment variables as they are set for what is started after."""
    if shell == "powershell":
        return "; ".join(f'$env:{name} = "{value}"' for name, value in variables)
    if shell == "cmd":
        return " & ".join(f'set "{name}={value}"' for name, value in variables)
    return "export " + " ".join(f"{name}={quoted(value)}" for name, value in variables)


def unsetting(name: str, shell: Shell) -> str:
    """An environment variable as it is taken out."""
    return {"powershell": f"Remove-Item Env:{name}", "cmd": f"set {name}=", "sh": f"unset {name}"}[shell]
