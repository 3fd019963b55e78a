"""One word of a bash script as the program gets it."""

from __future__ import annotations

import re

from ..model.record import replace
from . import bash_spans as spans
from .command_line import Word
from .script_variables import Variables

_LITERAL = re.compile(r"[^ \t\r\n;|&<>()'\"\\$`]+")
_SOFT = re.compile(r"[^\"\\$`]+")
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)(?:\}|(:?[-=?]))|([A-Za-z_]\w*))")
_LIST = re.compile(r"\$\{([A-Za-z_]\w*)\[[@*]\]\}")
_SEVERAL = re.compile(r"\$(?:[@*]|\{[@*]|\{!?\w+\[[@*]\])")
_DRIVE = re.compile(r"[A-Za-z]:\\")
_PATTERN = re.compile(r"[*?]|\[[^\]]+\]|\{[^{}]*(?:,|\.\.)[^{}]*\}")
_COMPUTED = re.compile(r"([A-Za-z_]\w*)\s*(?:\+\+|--|(?:[-+*/%&|^]|<<|>>)?=(?!=))|(?:\+\+|--)\s*([A-Za-z_]\w*)")
_ENDS = " \t\r\n;|&<>()"


class Words:
    """Reads words of a text, from `index` on, with the variables that are known."""

    def __init__(self, text: str, variables: Variables) -> None:
        self.text = text
        self.index = 1 if text.startswith("\ufeff") else 0
        self.variables = variables

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """What matches here, which is passed over."""
        found = pattern.match(self.text, self.index)
        self.index = found.end() if found is not None else self.index
        return found

    def word(self, *, value: bool = False) -> list[Word]:
        """The word that begins here; several, or none, where a variable stands for them. A `value` is one."""
        text, start = self.text, self.index
        pieces: list[str] = []
        known, many, expanded, quotes = True, False, False, 0
        while self.index < len(text):
            at, sign = self.index, text[self.index]
            substituted = sign in "<>" and text.startswith("(", at + 1)
            if sign in _ENDS and not substituted:
                break
            if sign == "\\":
                if text[at + 1 : at + 2] in ("\r", "\n"):
                    break
                pieces.append(self.escaped(start))
            elif sign in "'\"":
                quotes += 1
                piece, certain, several = self.quoted(sign)
                pieces.append(piece)
                known, many, expanded = known and certain, many or several, expanded or "$" in text[at : self.index]
            elif sign in "$`" or substituted:
                self.index = spans.part_end(text, at) if not substituted else spans.commands_end(text, at + 1)
                piece, certain = self.expanded(at, self.index)
                divided = certain and not value and piece != "" and piece.split() != [piece]
                certain = certain and (not divided or (at == start and text[self.index : self.index + 1] in _ENDS))
                pieces.append(piece)
                known, many, expanded = known and certain, many or not certain, True
            elif found := self.take(_LITERAL):
                pieces.append(found[0])
                if not value and _PATTERN.search(found[0]):
                    known, many = False, True
        written = text[start : self.index]
        if not written:
            return []
        whole = quotes == 1 and written[0] in "'\"" and written[-1] == written[0]
        plain = not expanded and (quotes == 0 or whole or "=" in written)
        made = Word("".join(pieces), start, self.index, written[0] if whole else "", plain, known, many)
        return [made] if value else self.several(made, written)

    def several(self, made: Word, written: str) -> list[Word]:
        """The words that one stands for as it is written."""
        held = self.variables.held
        spread = _LIST.fullmatch(written.strip('"'))
        if spread is not None:
            listed = held.get(spread[1])
            if isinstance(listed, tuple):
                return [replace(word, start=made.start, end=made.end, plain=False) for word in listed]
            return [replace(made, text=written.strip('"'), known=False, many=True)]
        if re.match(r"~(/|$)", written) and "HOME" in self.variables.environment:
            return [replace(made, text=self.variables.environment["HOME"] + made.text[1:])]
        if made.known and _VARIABLE.match(written) and spans.dollar_end(written, 0) == len(written):
            return [replace(made, text=part) for part in made.text.split()]
        return [made]

    def escaped(self, start: int) -> str:
        """What the backslash here and the character behind it stand for, in a word that begins at `start`."""
        following = self.text[self.index + 1 : self.index + 2]
        # bash eats the backslash of a drive's path; what was meant is said in another place
        if not following or _DRIVE.match(self.text, start):
            self.index += 1
            return "\\"
        self.index += 2
        return following

    def quoted(self, quote: str) -> tuple[str, bool, bool]:
        """The text inside quotes, whether it is known, and whether it may be several words."""
        at = self.index
        self.index = spans.single_end(self.text, at) if quote == "'" else spans.double_end(self.text, at)
        if quote == "'":
            return self.text[at + 1 : self.index - 1], True, False
        return self.soft(at + 1, self.index - 1)

    def soft(self, at: int, end: int) -> tuple[str, bool, bool]:
        """The same of what stands in double quotes."""
        text = self.text
        pieces: list[str] = []
        known, many = True, False
        while at < end:
            if text[at] == "\\":
                following = text[at + 1 : at + 2]
                kept = "" if following in '"\\$`\r\n' else "\\"
                pieces.append(kept + ("" if following in "\r\n" else following))
                at += 2
            elif text[at] in "$`":
                begin, at = at, spans.part_end(text, at, quoted=True)
                piece, certain = self.expanded(begin, at)
                pieces.append(piece)
                known = known and certain
                many = many or (not certain and _SEVERAL.match(text, begin) is not None)
            else:
                found = _SOFT.match(text, at, end)
                pieces.append(found[0] if found else text[at])
                at = found.end() if found else at + 1
        return "".join(pieces), known, many

    def computed(self, start: int, end: int) -> None:
        """Note what a computation at `start:end` does to variables."""
        self.variables.forget(found[1] or found[2] for found in _COMPUTED.finditer(self.text, start, end))

    def expanded(self, start: int, end: int) -> tuple[str, bool]:
        """What the expansion at `start:end` stands for, and whether that is known; else it is as it is written."""
        written = self.text[start:end]
        if written == "$":
            return written, True
        if written.startswith("$'"):
            return written[2:-1], "\\" not in written
        found = _VARIABLE.match(self.text, start, end)
        if found is None:
            if written.startswith("$(("):
                self.computed(start, end)
            return written, False
        name, how = found[1] or found[3], found[2] or ""
        held = self.variables.lookup(name)
        if held is not None and (held or not how.startswith(":")):
            return held, True
        if how[-1:] in ("-", "=") and (held == "" or self.variables.is_absent(name)):
            default, known, _ = self.soft(found.end(), end - 1)
            quoted = re.fullmatch(r"(['\"])([^'\"]*)\1", default)
            return (quoted[2] if quoted else default), known and (
                quoted is not None or not re.search("['\"]", default)
            )
        return written, False
