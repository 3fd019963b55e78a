"""Where a quote, an expansion or a document of a bash script ends. Nothing is evaluated."""

from __future__ import annotations

import re

from .node import Unreadable

_QUOTED = re.compile(r"[^\"\\$`]+")
_ANSI = re.compile(r"\$'(?:[^'\\]|\\[\s\S])*'")
_BACKTICKS = re.compile(r"`(?:[^`\\]|\\[\s\S])*`")
_NAME = re.compile(r"\$(?:[A-Za-z_]\w*|[\d@*#?$!_-])")
_WORD = re.compile(r"\w+")
_HERE = re.compile(r"<<(-?)[ \t]*(?:'([^'\r\n]*)'|\"([^\"\r\n]*)\"|\\?([^\s;&|<>()'\"]+))")
_BEFORE_COMMAND = "\r\n;&|({"
_LONGEST = 2000  # characters of a computation
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)?")


def single_end(text: str, start: int) -> int:
    """Behind the quote ' that `start` is at."""
    end = text.find("'", start + 1)
    if end < 0:
        raise Unreadable("the quote ' opened here is not closed", start)
    return end + 1


def double_end(text: str, start: int) -> int:
    """Behind the quote \" that `start` is at, with all that is expanded in it."""
    index = start + 1
    while index < len(text):
        match text[index]:
            case '"':
                return index + 1
            case "\\":
                index += 2
            case "$":
                index = dollar_end(text, index, quoted=True)
            case "`":
                index = backticks_end(text, index)
            case _:
                found = _QUOTED.match(text, index)
                index = found.end() if found is not None else index + 1
    raise Unreadable('the quote " opened here is not closed', start)


def backticks_end(text: str, start: int) -> int:
    """Behind the commands between backticks that `start` is at."""
    found = _BACKTICKS.match(text, start)
    if found is None:
        raise Unreadable("the quote ` opened here is not closed", start)
    return found.end()


def dollar_end(text: str, start: int, *, quoted: bool = False) -> int:
    """Behind what the $ at `start` begins; behind the sign itself where it begins nothing."""
    following = text[start + 1 : start + 2]
    if following == "{":
        return _braces_end(text, start, quoted)
    if following == "(":
        computed = arithmetic_end(text, start + 1) if text.startswith("((", start + 1) else None
        return computed or commands_end(text, start + 1)
    if following == "'" and not quoted:
        found = _ANSI.match(text, start)
        return found.end() if found is not None else single_end(text, start + 1)
    found = _NAME.match(text, start)
    return found.end() if found is not None else start + 1


def _braces_end(text: str, start: int, quoted: bool) -> int:
    index = start + 2
    while index < len(text):
        match text[index]:
            case "}":
                return index + 1
            case "\\":
                index += 2
            case '"':
                index = double_end(text, index)
            case "'" if not quoted:
                index = single_end(text, index)
            case "$":
                index = dollar_end(text, index, quoted=quoted)
            case "`":
                index = backticks_end(text, index)
            case _:
                index += 1
    raise Unreadable("the { opened here is not closed", start)


def arithmetic_end(text: str, start: int) -> int | None:
    """Behind the `((…))` that `start` is at; None where its brackets are those of two subshells."""
    depth = 0
    for index in range(start, min(len(text), start + _LONGEST)):
        depth += (text[index] == "(") - (text[index] == ")")
        if depth == 1 and text[index] == ")":
            return index + 2 if text[index + 1 : index + 2] == ")" else None
    return None


def commands_end(text: str, start: int) -> int:
    """Behind the commands in round brackets that `start` is at."""
    index = start + 1
    open: list[str] = ["("]
    here: list[tuple[str, bool]] = []
    while index < len(text):
        match text[index]:
            case "(":
                open.append("(")
                index += 1
            case ")":
                index += 1
                if open[-1] == "(":
                    open.pop()
                if not open:
                    return index
            case "\n" | "\r":
                index = documents_end(text, index + 1, here)
                here = []
            case "#" if text[index - 1] in " \t\r\n;&|(":
                while index < len(text) and text[index] not in "\r\n":
                    index += 1
            case "<" if (found := _HERE.match(text, index)) and not text.startswith("<<<", index):
                here.append(document(found))
                index = found.end()
            case "<":
                index += 3 if text.startswith("<<<", index) else 1
            case _:
                index = _in_commands(text, index, open)
    raise Unreadable("the ( opened here is not closed", start)


def part_end(text: str, index: int, *, quoted: bool = False) -> int:
    """Behind the quote or expansion that begins here, else behind the character."""
    match text[index]:
        case "'" if not quoted:
            return single_end(text, index)
        case '"':
            return double_end(text, index)
        case "`":
            return backticks_end(text, index)
        case "$":
            return dollar_end(text, index, quoted=quoted)
        case "\\":
            return index + 2
    return index + 1


def _in_commands(text: str, index: int, open: list[str]) -> int:
    """Behind a quote, an expansion or a word among commands; `case` and `esac` are noted in `open`."""
    word = _WORD.match(text, index)
    if word is None:
        return part_end(text, index)
    if word[0] == "case" and text[max(0, index - 40) : index].rstrip(" \t")[-1:] in _BEFORE_COMMAND:
        open.append("case")
    elif word[0] == "esac" and open[-1] == "case":
        open.pop()
    return word.end()


def here_document(text: str, index: int) -> tuple[int, tuple[str, bool]] | None:
    """Behind the `<<END` at `index`, with END and whether tabs before it do not count."""
    found = _HERE.match(text, index)
    return (found.end(), document(found)) if found is not None else None


def document(found: re.Match[str]) -> tuple[str, bool]:
    return next(name for name in found.groups()[1:] if name is not None), bool(found[1])


def documents_end(text: str, index: int, here: list[tuple[str, bool]]) -> int:
    """Behind the documents that begin at a line."""
    for name, tabs in here:
        while index < len(text):
            line = _LINE.match(text, index)
            assert line is not None
            index = line.end()
            written = line[0].rstrip("\r\n")
            if (written.lstrip("\t") if tabs else written) == name:
                break
    return index
