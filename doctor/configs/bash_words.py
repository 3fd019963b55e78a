"""One word of a bash script as the program gets it."""

from __future__ import annotations

import re

from ..model.record import replace
from . import bash_spans as spans
from .command import Word
from .script_reader import TO_BE_FILLED, Piece, Reader, expansion

_LITERAL = re.compile(r"[^ \t\r\n;|&<>()'\"\\$`]+")
_SOFT = re.compile(r"[^\"\\$`]+")
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)(?:\}|(:?[-=?]))|([A-Za-z_]\w*))")
_LIST = re.compile(r"\$\{([A-Za-z_]\w*)\[[@*]\]\}")
_SEVERAL = re.compile(r"\$(?:[@*]|\{[@*]|\{!?\w+\[[@*]\])")
_DRIVE = re.compile(r"[A-Za-z]:\\")
_PATTERN = re.compile(r"[*?]|\[[^\]]+\]|\{[^{}]*(?:,|\.\.)[^{}]*\}")
_COMPUTED = re.compile(r"([A-Za-z_]\w*)\s*(?:\+\+|--|(?:[-+*/%&|^]|<<|>>)?=(?!=))|(?:\+\+|--)\s*([A-Za-z_]\w*)")
_ENDS = " \t\r\n;|&<>()"


class Words(Reader):
    """Reads the words of a text."""

    divides = True

    def piece(self, start: int, value: bool) -> Piece | None:
        text, at = self.text, self.index
        sign, following = text[at], text[at + 1 : at + 2]
        if sign == "<" and (found := self.take(TO_BE_FILLED)):
            return Piece(found[0], known=False)
        substituted = sign in "<>" and following == "("
        if sign in "$`" or substituted:
            self.index = spans.commands_end(text, at + 1) if substituted else spans.part_end(text, at)
            made, known = self.expanded(at, self.index)
            divided = known and not value and made != "" and made.split() != [made]
            known = known and (not divided or (at == start and text[self.index : self.index + 1] in _ENDS))
            return expansion(made, known)
        if sign in _ENDS or (sign == "\\" and following in ("\r", "\n")):
            return None
        if sign == "\\":
            # bash eats the backslash of a drive's path; what was meant is said in another place
            kept = not following or _DRIVE.match(text, start)
            self.index += 1 if kept else 2
            return Piece("\\" if kept else following)
        if sign in "'\"":
            self.index = spans.part_end(text, at)
            soft = self.soft(at + 1, self.index - 1) if sign == '"' else (text[at + 1 : self.index - 1], True, False)
            return Piece(*soft, has_variable="$" in text[at : self.index], quoted=True)
        found = self.take(_LITERAL)
        assert found is not None
        is_pattern = not value and _PATTERN.search(found[0]) is not None
        return Piece(found[0], known=not is_pattern, many=is_pattern)

    def several(self, made: Word, written: str, value: bool) -> list[Word]:
        if value:
            return [made]
        held = self.variables.held
        spread = _LIST.fullmatch(written.strip('"'))
        if spread is not None:
            listed = held.get(spread[1])
            if isinstance(listed, tuple):
                return [replace(word, start=made.start, end=made.end, plain=False) for word in listed]
            return [replace(made, text=written.strip('"'), known=False, many=True)]
        if re.match(r"~(/|$)", written) and "HOME" in self.variables.environment:
            return [replace(made, text=self.variables.environment["HOME"] + made.text[1:])]
        if made.known and _VARIABLE.match(written) and spans.part_end(written, 0) == len(written):
            return [replace(made, text=part) for part in made.text.split()]
        return [made]

    def soft(self, at: int, end: int) -> tuple[str, bool, bool]:
        """The text in double quotes at `at:end`, whether it is known, and whether it may be several words."""
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
            is_plain = quoted is not None or not re.search("['\"]", default)
            return (quoted[2] if quoted else default), known and is_plain
        return written, False
