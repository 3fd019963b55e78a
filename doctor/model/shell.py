"""Words as they are typed into a shell."""

from __future__ import annotations

from collections.abc import Iterable

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


def setting(variables: Iterable[tuple[str, str]], system: str) -> str:
    """Environment variables as they are set for what is started after: in sh, and on Windows in PowerShell."""
    if system == "windows":
        return "; ".join(f'$env:{name} = "{value}"' for name, value in variables)
    return "export " + " ".join(f"{name}={quoted(value)}" for name, value in variables)


def unsetting(name: str, system: str) -> str:
    """An environment variable as it is taken out, in sh, and on Windows in PowerShell."""
    return f"Remove-Item Env:{name}" if system == "windows" else f"unset {name}"
