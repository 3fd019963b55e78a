"""Which Python a start script (.bat, .sh) starts, by its text; what hangs on an `if` is not known.

Source: the portable builds and installers of trainers as their users post them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

PLAIN = "python"  # as PATH finds it
_SET = re.compile(r'set\s+"?([\w ]+?)=(.*?)"?$|(?:export\s+)?(\w+)=["\']?([^"\']*)["\']?$', re.I)
_VARIABLE = re.compile(r"%(\w+)%|\$\{?(\w+)\}?")
_HERE = re.compile(r"%~dp0[\\/]?|%cd%[\\/]?|\$\(dirname [^)]*\)/?|\$PWD/?", re.I)
_ACTIVATE = re.compile(r'(?:call\s+|source\s+|\.\s+)?"?(.*?)[\\/](?:scripts|bin)[\\/]activate(?:\.bat)?"?$', re.I)
_ENTER = re.compile(r'(?:cd|pushd|chdir)\s+(?:/d\s+)?"?(.*?)"?$', re.I)
_PYTHON = re.compile(
    r"(?:call\s+|exec\s+|start\s+(?:\"\"\s+)?(?:/\w+\s+)*)?"
    r"(?:\"([^\"]*?python(?:w|3)?(?:\.exe)?)\"|(\S*?python(?:w|3)?(?:\.exe)?))\s+(?:-\w+\s+)*\"?[^\s\"]*\.py\b",
    re.I,
)
_ACCELERATE = re.compile(r'(?:call\s+)?"?((?:[^"\s]*[\\/])?)accelerate(?:\.exe)?"?\s+launch\b', re.I)
_CONDITION = re.compile(r"(?:if|for|elif|else|while|case|test)\b|\[|\)|fi\b|done\b|esac\b", re.I)


def started(text: str, *, batch: bool) -> str | None:
    """The interpreter of the first Python file that a script starts: a path below the script's folder or a whole one,
    PLAIN where it is left to PATH. None where it starts none, or nobody can tell."""
    slash, depth = "\\" if batch else "/", 0
    known: dict[str, str] = {}
    inside, first = "", ""  # the folder that it is in, and the one whose python comes before all others
    for line in _commands(text):
        if re.match(r"rem\b|::|#|echo\b|title\b", line, re.I) or not line:
            continue
        is_conditional = depth > 0 or _CONDITION.match(line) is not None
        depth = _deeper(line, depth, batch)
        line = _expanded(line, known)
        if is_conditional:
            if re.search(r"activate|python|accelerate|\bcd\b|\bset\s|\w+=", line, re.I):
                return None
            continue
        if found := _ACTIVATE.fullmatch(line):
            first = slash.join((_joined(inside, found[1], slash), "Scripts" if batch else "bin"))
        elif re.search(r"\bconda\b.*\bactivate\b|\bactivate\b", line, re.I):
            return None  # of conda, by a name
        elif found := _ENTER.fullmatch(line):
            inside = _joined(inside, found[1], slash)
        elif found := _PYTHON.match(line):
            return _of_command(found[1] or found[2], inside, first, slash)
        elif found := _ACCELERATE.match(line):
            beside = found[1] and f"{found[1]}python" + (".exe" if batch else "")
            return _of_command(beside or PLAIN, inside, first, slash)
        elif found := _SET.match(line):
            name, value = found[1] or found[3] or "", found[2] if found[1] else found[4]
            front = re.split(";" if batch else ":", value or "")[0]
            if name.lower() != "path":
                known[name.lower()] = value or ""
            elif not _VARIABLE.search(front):
                first = _joined(inside, front, slash)
        elif re.search(r"%\w+%|!\w+!|\$", line) and re.search(r"python|\.py\b", line, re.I):
            return None  # of a variable that is not set here
    return None


def _commands(text: str) -> Iterator[str]:
    """The lines, and what stands in one behind && by itself; what hangs on a condition stays whole."""
    for raw in text.splitlines():
        line = raw.strip().removeprefix("@").strip()
        for command in [line] if _CONDITION.match(line) else line.split("&&"):
            yield command.strip()


def _deeper(line: str, depth: int, batch: bool) -> int:
    if batch:
        return max(0, depth + line.count("(") - line.count(")")) if _CONDITION.match(line) or depth else 0
    opened = len(re.findall(r"^(?:if|for|while|case)\b", line))
    return max(0, depth + opened - len(re.findall(r"(?:^|;\s*)(?:fi|done|esac)\b", line)))


def _expanded(line: str, known: Mapping[str, str]) -> str:
    line = _HERE.sub("", line.replace('"$(dirname "$0")"', "$(dirname $0)"))
    return _VARIABLE.sub(lambda found: known.get((found[1] or found[2]).lower(), found[0]), line)


def _joined(inside: str, path: str, slash: str) -> str:
    path = path.strip().strip('"').replace("/", slash)
    path = path.removeprefix(f".{slash}").rstrip(slash)
    if path in ("", ".") or re.match(r"[A-Za-z]:|[\\/]", path):
        return inside if path in ("", ".") else path
    return f"{inside}{slash}{path}" if inside else path


def _of_command(python: str, inside: str, first: str, slash: str) -> str | None:
    if "%" in python or "$" in python:
        return None
    if re.search(r"[\\/]", python):
        return _joined(inside, python, slash)
    return f"{first}{slash}python{'.exe' if slash != '/' else ''}" if first else PLAIN
