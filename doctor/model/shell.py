"""Words as they are typed into a shell."""

from __future__ import annotations

import re
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


def quoted(word: str, shell: Shell | None = None) -> str:
    """A path or value as the shell takes it, typed at its prompt; where that is not known, as most shells would."""
    return _word(f"./{word}" if word.startswith("-") else word, shell)  # else it would be an option


def command_line(words: Iterable[str], shell: Shell | None = None) -> str:
    """A command as it is typed, its options as they are."""
    return " ".join(_word(word, shell) for word in words)


def _word(word: str, shell: Shell | None) -> str:
    """Sources: cmd's order of expansion (`help cmd`, percent signs before carets and quotes), CommandLineToArgvW,
    PowerShell's about_Quoting_Rules."""
    if word and all(c.isalnum() or c in _PLAIN for c in word) and not (shell == "cmd" and "%" in word):
        return word
    if shell == "cmd":
        return _in_cmd(word)
    obeyed = '"$`!\u201c\u201d\u201e' + ("\\" if shell == "sh" else "")
    if (shell is None and "\\" in word) or not any(c in word for c in obeyed):
        return f'"{word}"'
    if shell == "powershell":
        return "'" + re.sub("(['\u2018\u2019\u201a\u201b])", r"\1\1", word) + "'"
    return "'" + word.replace("'", "'\\''") + "'"


def _in_cmd(word: str) -> str:
    """In quotes but for percent signs, which only a caret outside of quotes keeps from naming a variable."""
    parts = [re.sub(r"(\\+)$", r"\1\1", part) for part in word.split("%")]  # before a quote they count in pairs
    return "^%".join(f'"{part}"' for part in parts)


def shell_among(programs: Iterable[str]) -> Shell | None:
    """The shell among the programs that started this one, the nearest first; None where there is none."""
    names = (splitext(basename(program))[0].lower() for program in programs)
    return next((_PROGRAMS[name] for name in names if name in _PROGRAMS), None)


def setting(variables: Iterable[tuple[str, str]], shell: Shell) -> str:
    """Environment variables as they are set for what is started after."""
    if shell == "powershell":
        return "; ".join(f"$env:{name} = {_text_of_powershell(value)}" for name, value in variables)
    if shell == "cmd":
        return " & ".join(_set_of_cmd(name, value) for name, value in variables)
    return "export " + " ".join(f"{name}={quoted(value)}" for name, value in variables)


def _text_of_powershell(value: str) -> str:
    typed = _word(value, "powershell")
    return typed if typed[:1] in ("'", '"') else f'"{value}"'


def _set_of_cmd(name: str, value: str) -> str:
    if "%" not in value:
        return f'set "{name}={value}"'
    careted = re.sub(r'([%&|<>^()"])', r"^\1", value)
    return f"(set {name}={careted})"


def unsetting(name: str, shell: Shell) -> str:
    """An environment variable as it is taken out."""
    return {"powershell": f"Remove-Item Env:{name}", "cmd": f"set {name}=", "sh": f"unset {name}"}[shell]
