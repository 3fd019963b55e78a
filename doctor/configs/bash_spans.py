"""Where a quote, an expansion or a document of a bash script ends. Nothing is evaluated."""

from __future__ import annotations

import re

from .node import Unreadable

_ORDINARY = re.compile(r"[^\"'\\$`}]+")
_ANSI = re.compile(r"\$'(?:[^'\\]|\\[\s\S])*'")
_BACKTICKS = re.compile(r"`(?:[^`\\]|\\[\s\S])*`")
_NAME = re.compile(r"\$(?:[A-Za-z_]\w*|[\d@*#?$!_-])")
_WORD = re.compile(r"\w+")
_COMMENT = re.compile(r"(?<=[ \t\r\n;&|(])#[^\r\n]*")
_HERE = re.compile(r"<<(?!<)(-?)[ \t]*(?:'([^'\r\n]*)'|\"([^\"\r\n]*)\"|\\?([^\s;&|<>()'\"]+))")
_BEFORE_COMMAND = "\r\n;&|({"
_LONGEST = 2000  # characters of a computation
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)?")

Document = tuple[str, bool]  # the line that ends it, and whether tabs before that do not count


def part_end(text: str, index: int, *, quoted: bool = False) -> int:
    """Behind the quote or expansion that begins here, else behind the character."""
    match text[index]:
        case "'" if not quoted:
            return _behind(text.find("'", index + 1) + 1, "the quote '", index)
        case '"':
            return _closed(text, index, index + 1, '"', quoted=True)
        case "`":
            found = _BACKTICKS.match(text, index)
            return _behind(found.end() if found else 0, "the quote `", index)
        case "$":
            return _dollar_end(text, index, quoted)
        case "\\":
            return index + 2
    return index + 1


def _behind(end: int, what: str, start: int) -> int:
    if not end:
        raise Unreadable(f"{what} opened here is not closed", start)
    return end


def _closed(text: str, start: int, index: int, closer: str, *, quoted: bool) -> int:
    """Behind the character that closes what `start` opened, with all that is quoted and expanded before it."""
    while index < len(text):
        if text[index] == closer:
            return index + 1
        ordinary = _ORDINARY.match(text, index)
        index = ordinary.end() if ordinary else part_end(text, index, quoted=quoted)
    return _behind(0, 'the quote "' if closer == '"' else "the {", start)


def _dollar_end(text: str, start: int, quoted: bool) -> int:
    """Behind what the $ at `start` begins; behind the sign itself where it begins nothing."""
    following = text[start + 1 : start + 2]
    if following == "{":
        return _closed(text, start, start + 2, "}", quoted=quoted)
    if following == "(":
        return arithmetic_end(text, start + 1) or commands_end(text, start + 1)
    found = (_ANSI if following == "'" and not quoted else _NAME).match(text, start)
    if found is None and following == "'" and not quoted:
        return part_end(text, start + 1)
    return found.end() if found is not None else start + 1


def arithmetic_end(text: str, start: int) -> int | None:
    """Behind the `((…))` that `start` is at; None where there is none, or its brackets are those of two subshells."""
    depth = 0
    for index in range(start, min(len(text), start + _LONGEST)) if text.startswith("((", start) else ():
        depth += (text[index] == "(") - (text[index] == ")")
        if depth == 1 and text[index] == ")":
            return index + 2 if text[index + 1 : index + 2] == ")" else None
    return None


def commands_end(text: str, start: int) -> int:
    """Behind the commands in round brackets that `start` is at."""
    index = start + 1
    open: list[str] = ["("]
    here: list[Document] = []
    while index < len(text):
        if text[index] == "(":
            open.append("(")
            index += 1
        elif text[index] == ")":
            index += 1
            if open[-1] == "(":
                open.pop()
            if not open:
                return index
        elif text[index] in "\r\n":
            index = documents_end(text, index + 1, here)
            here = []
        elif comment := _COMMENT.match(text, index):
            index = comment.end()
        elif found := here_document(text, index):
            index, document = found
            here.append(document)
        elif text.startswith("<<<", index):
            index += 3
        elif word := _WORD.match(text, index):
            if word[0] == "case" and text[max(0, index - 40) : index].rstrip(" \t")[-1:] in _BEFORE_COMMAND:
                open.append("case")
            elif word[0] == "esac" and open[-1] == "case":
                open.pop()
            index = word.end()
        else:
            index = part_end(text, index)
    return _behind(0, "the (", start)


def here_document(text: str, index: int) -> tuple[int, Document] | None:
    """Behind the `<<END` at `index`, with the document that it announces."""
    found = _HERE.match(text, index)
    if found is None:
        return None
    return found.end(), (next(name for name in found.groups()[1:] if name is not None), bool(found[1]))


def documents_end(text: str, index: int, here: list[Document]) -> int:
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
