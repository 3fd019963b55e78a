"""The commands of a batch file, with the variables that it certainly sets filled in. Nothing is run."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..model.cards import ALL, VISIBLE
from ..model.record import replace
from .command import Word
from .script_reader import TO_BE_FILLED, Piece, Reader, expansion
from .script_variables import Variables
from .words import words

_BLANK = re.compile(r"[ \t,;]|\^(?:\r\n|\r|\n)")
_STOP = re.compile(r"\r\n|[\r\n]|&&|\|\||[|&]")
_COMMENT = re.compile(r"(?::|@?rem\b)[^\r\n]*", re.I)
_LINE = re.compile(r"[^\r\n]*")
_REDIRECTED = re.compile(r"\d?(?:>>?|<)(?:&\d|[ \t]*)")
_SETS = re.compile(r"\bset[ \t]+\"?(\w+)=", re.I)
_SET = re.compile(r"@?set[ \t]+(?:\"(\w+)=([^\r\n]*)\"[^\"\r\n]*|(\w+)=([^\r\n&|]*))", re.I)
_COMPUTED = re.compile(r"@?set[ \t]+/[ap][ \t]+\"?(\w+)[^\r\n]*", re.I)
_VARIABLE = re.compile(r"%(\w+)%")
_EXPANSION = re.compile(r"%\w+(?::[^%\r\n]*)?%|%%?~?[\w*]+|!\w+(?::[^!\r\n]*)?!")
_QUOTED = re.compile(r'"([^"\r\n]*)(?:"|(?=[\r\n]|$))')  # a quote ends with its line
_LITERAL = re.compile(r"[^ \t\r\n|&\"^%!()<>,;]+|[%!()<>,;]")
_OPERAND = r"(?:\"(?:%[^%\r\n]*%|[^\"\r\n])*\"|[^\s=()]+)"
_CONDITION = re.compile(
    r"@?(?:else(?=[ \t(])|for[ \t][^\r\n(]*\bin[ \t]*\([^)\r\n]*\)[ \t]*do\b|"
    rf"if[ \t]+(?:/i[ \t]+)?(?:not[ \t]+)?(?:(?:exist|defined|errorlevel)[ \t]+{_OPERAND}|"
    rf"{_OPERAND}[ \t]*(?:==|equ|neq|lss|leq|gtr|geq)[ \t]*{_OPERAND}))",
    re.I,
)


class CmdReader(Reader):
    """One pass over a text. Names of variables are in capitals, as cmd takes them in any case."""

    shell = "cmd"
    quotes = '"'
    moves = words("cd chdir pushd popd")

    def __init__(self, text: str, environment: Mapping[str, str]) -> None:
        sets = [name.upper() for name in _SETS.findall(text)]
        super().__init__(text, Variables(sets, {name.upper(): value for name, value in environment.items()}))

    def ended(self, stop: str, *, certain: bool) -> None:
        if stop[:1] in ("\r", "\n"):
            while self.variables.inside("line"):
                self.variables.close("line")
        elif stop in ("&&", "||") and not self.variables.inside("line"):
            self.variables.open("line")

    def command(self) -> tuple[list[Word], str]:
        found: list[Word] = []
        while self.index < len(self.text):
            if stop := self.take(_STOP):
                return found, stop[0]
            if self.take(_BLANK):
                continue
            sign = self.text[self.index]
            if not found and self.starts(":") and not self.starts("::"):
                self.label()
            elif not found and self.take(_COMMENT):
                continue
            elif not found and (computed := self.take(_COMPUTED)):
                self.variables.set(computed[1].upper(), None)
                return [], ";"
            elif not found and (sets := self.take(_SET)):
                self.set(sets)
                return [], ";"
            elif not found and self.take(_CONDITION):
                self.variables.open("line")
            elif sign == "(" and not found:
                self.index += 1
                self.variables.open(")", again=True)
            elif sign == ")" and not found:
                self.index += 1
                self.variables.close(")")
            elif not TO_BE_FILLED.match(self.text, self.index) and self.take(_REDIRECTED):
                self.word()
            else:
                found += self.word()
        return found, ""

    def label(self) -> None:
        """What jumps here may have set what is set in several places."""
        self.take(_LINE)
        self.variables.forget(name for name in self.variables.held if self.variables.set_again(name))

    def set(self, found: re.Match[str]) -> None:
        name = (found[1] or found[3]).upper()
        value, known = self.filled(found[2] if found[1] else found[4].rstrip())
        if name == VISIBLE:  # cmd takes a variable away that is set to nothing
            value, known = value or ALL, True
        self.variables.set(name, value if known else None)

    def filled(self, written: str) -> tuple[str, bool]:
        """A text with its variables filled in, and whether all of it is known."""
        known = True

        def value(found: re.Match[str]) -> str:
            nonlocal known
            plain = _VARIABLE.fullmatch(found[0])
            held = self.variables.lookup(plain[1].upper()) if plain else None
            known = known and held is not None
            return found[0] if held is None else held

        return _EXPANSION.sub(value, written), known

    def piece(self, start: int, value: bool) -> Piece | None:
        text, at = self.text, self.index
        if text[at] in " \t\r\n|&":
            return None
        if found := self.take(TO_BE_FILLED):
            return Piece(found[0], known=False)
        if found := self.take(_QUOTED):
            made, known = self.filled(found[1])
            return Piece(made, known, has_variable=_EXPANSION.search(found[1]) is not None, quoted=True)
        if found := self.take(_EXPANSION):
            return expansion(*self.filled(found[0]))
        if text[at] == "^" and text[at + 1 : at + 2] in ("\r", "\n"):
            return None
        if text[at] == "^":
            self.index += 2
            return Piece(text[at + 1 : self.index])
        if found := self.take(_LITERAL):
            return Piece(found[0])
        self.index += 1
        return Piece(text[at])

    def several(self, made: Word, written: str, value: bool) -> list[Word]:
        if made.known and _VARIABLE.fullmatch(written):
            return [replace(made, text=part) for part in made.text.split()]
        return [made]
