"""The commands of a batch file, with the variables that it certainly sets filled in. Nothing is run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ..model.cards import ALL, VISIBLE
from ..model.record import replace
from .command_line import Command, Word
from .script_variables import MOVED, Variables, command_of
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
_MOVES = words("cd chdir pushd popd")


def cmd_commands(text: str, environment: Mapping[str, str]) -> Iterator[tuple[Command | None, str]]:
    """Every command, with what ended it; None for one that only sets variables."""
    return _Reader(text, environment).commands()


class _Reader:
    """One pass over a text. Names of variables are in capitals, as cmd takes them in any case."""

    def __init__(self, text: str, environment: Mapping[str, str]) -> None:
        self.text = text
        self.index = 1 if text.startswith("\ufeff") else 0
        sets = [name.upper() for name in _SETS.findall(text)]
        self.variables = Variables(sets, {name.upper(): value for name, value in environment.items()})

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """What matches here, which is passed over."""
        found = pattern.match(self.text, self.index)
        self.index = found.end() if found is not None else self.index
        return found

    def commands(self) -> Iterator[tuple[Command | None, str]]:
        while self.index < len(self.text):
            found, stop = self.command()
            if found:
                yield command_of(found, "cmd", self.variables), stop
                if found[0].text.lower().removeprefix("@") in _MOVES:
                    self.variables.set(MOVED, None)
            elif stop.strip():
                yield None, stop
            if stop[:1] in ("\r", "\n"):
                while self.variables.inside("line"):
                    self.variables.close("line")
            elif stop in ("&&", "||") and not self.variables.inside("line"):
                self.variables.open("line")

    def command(self) -> tuple[list[Word], str]:
        """The words up to the end of a command, and what ended it."""
        found: list[Word] = []
        while self.index < len(self.text):
            if stop := self.take(_STOP):
                return found, stop[0]
            if self.take(_BLANK):
                continue
            sign = self.text[self.index]
            if not found and self.text.startswith(":", self.index) and not self.text.startswith("::", self.index):
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
            elif self.take(_REDIRECTED):
                if self.text[self.index : self.index + 1] not in ("", "\r", "\n"):
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
        at = found.start(2) if found[1] else found.start(4)
        value, known = self.filled(found[2] if found[1] else found[4].rstrip(), at)
        # cmd takes a variable away that is set to nothing
        self.variables.set(
            name, (ALL if name == VISIBLE and not value else value) if known or name == VISIBLE else None
        )

    def filled(self, written: str, at: int) -> tuple[str, bool]:
        """A text with its variables filled in, and whether all of it is known."""
        known = True

        def value(found: re.Match[str]) -> str:
            nonlocal known
            plain = _VARIABLE.fullmatch(found[0])
            held = self.variables.lookup(plain[1].upper()) if plain else None
            known = known and held is not None
            return found[0] if held is None else held

        return _EXPANSION.sub(value, written), known

    def word(self) -> list[Word]:
        """The word that begins here; several, or none, where a variable stands for them."""
        text, start = self.text, self.index
        pieces: list[str] = []
        known, expanded, quotes = True, False, 0
        while self.index < len(text) and text[self.index] not in " \t\r\n|&":
            at = self.index
            if found := self.take(_QUOTED):
                quotes += 1
                piece, certain = self.filled(found[1], at + 1)
                expanded = expanded or _EXPANSION.search(found[1]) is not None
                known = known and certain
            elif found := self.take(_EXPANSION):
                piece, certain = self.filled(found[0], at)
                known, expanded = known and certain, True
            elif text[at] == "^":
                if text[at + 1 : at + 2] in ("\r", "\n"):
                    break
                piece = text[at + 1 : at + 2]
                self.index += 2
            else:
                literal = self.take(_LITERAL)
                piece = literal[0] if literal else text[at]
                self.index += literal is None
            pieces.append(piece)
        self.index = min(self.index, len(text))
        written = text[start : self.index]
        if not written:
            return []
        whole = quotes == 1 and written[0] == '"' == written[-1] and len(written) > 1
        plain = not expanded and (quotes == 0 or whole or "=" in written)
        made = Word("".join(pieces), start, self.index, '"' if whole else "", plain, known, not known and not quotes)
        if known and not quotes and _VARIABLE.fullmatch(written):
            return [replace(made, text=part) for part in made.text.split()]
        return [made]
