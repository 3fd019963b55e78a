"""The commands of a PowerShell script, with the variables that it certainly sets filled in. Nothing is run."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..model.cards import ALL, VISIBLE
from ..model.record import replace
from .command import Word
from .node import Unreadable
from .script_reader import Piece, Reader, expansion
from .script_variables import Held, Variables, joined
from .words import words

_COMMENT = r"<#[\s\S]*?(?:#>|\Z)|#[^\r\n]*"
_BLANK = re.compile(rf"[ \t]|`(?:\r\n|\r|\n)|{_COMMENT}")
_SKIPPED = re.compile(_COMMENT)
_STOP = re.compile(r"\r\n|[\r\n]|&&|\|\||[|;]|&(?=[ \t]*(?:[\r\n]|$))")
_REDIRECTED = re.compile(r"[\d*]?>(?:&\d|>?[ \t]*)")
_SET = re.compile(r"\$(?:env:)?(\w+)[ \t]*\+?=(?!=)", re.I)
_ASSIGNED = re.compile(r"(?:\[[\w.\[\]]+\][ \t]*)*\$(?:(?:env|global|script):)?(\w+)[ \t]*(\+?)=(?!=)[ \t]*", re.I)
_ADDED = re.compile(r"(?:\[void\][ \t]*)?\$(\w+)\.Add\(", re.I)
_EMPTY = re.compile(r"\[[\w.]+\]::new\(\)|New-Object[ \t][^\r\n;|]+", re.I)
_LIST = re.compile(r"@\(")
_VARIABLE = re.compile(r"\$(?:\{(?:env:|global:|script:)?(\w+)\}|(?:env:|global:|script:)?(\w+))", re.I)
_MEMBER = re.compile(r"[.\[](?=[\w$'\"])")
_SPLAT = re.compile(r"@(\w+)")
_SINGLE = re.compile(r"'((?:''|[^'])*)'")
_HERE = re.compile(r"@(['\"])[ \t]*\r?\n[\s\S]*?\r?\n\1@")
_KEYWORD = re.compile(
    r"(if|elseif|else|while|for|foreach|do|until|switch|function|try|catch|finally|param)(?=[\s({]|$)", re.I
)
_NAME = re.compile(r"[ \t]*[\w:-]+")
_AGAIN = words("while for foreach do function")
_COMPUTED = re.compile(r"\([\s\S]*|-[a-z]+|[A-Za-z]+-[A-Za-z]+|if|switch|foreach|[-+*/%]")
_LITERAL = re.compile(r"[^ \t\r\n;|&(){}'\"`$@,<>]+|[@<>]")


class PowershellReader(Reader):
    """One pass over a text."""

    shell = "powershell"
    between = re.compile(rf"[ \t\r\n,;]|`[\r\n]|{_COMMENT}")
    moves = words("cd chdir sl set-location push-location pop-location pushd popd")

    def __init__(self, text: str, environment: Mapping[str, str]) -> None:
        super().__init__(text, Variables(_SET.findall(text), environment))
        self.again = False

    def command(self) -> tuple[list[Word], str]:
        found: list[Word] = []
        while self.index < len(self.text):
            sign = self.text[self.index]
            if self.take(_BLANK):
                continue
            if stop := self.take(_STOP):
                return found, "\n" if stop[0] == "\r" else stop[0]
            if not found and sign in "{}":
                self.block(sign)
            elif not found and (keyword := self.take(_KEYWORD)):
                self.again = keyword[1].lower() in _AGAIN
                self.take(_NAME if keyword[1].lower() == "function" else _BLANK)
            elif not found and (sign in "&(" or self.starts(". ")):
                self.index = self.brackets_end(self.index) if sign == "(" else self.index + 1
            elif not found and (assigned := self.take(_ASSIGNED)):
                self.assigned(assigned[1], adds=bool(assigned[2]))
                return [], ";"
            elif not found and (added := self.take(_ADDED)):
                self.variables.set(added[1], self.variables.add(added[1], self.members(value=True)))
            elif self.take(_REDIRECTED):
                self.word()
            elif self.take(_LIST):
                found += self.members(value=True)
            elif sign == "}":
                return found, ";"
            else:
                found += self.moved_on()
        return found, ""

    def block(self, sign: str) -> None:
        """The beginning or end of a block."""
        self.index += 1
        if sign == "{":
            self.variables.open("}", again=self.again)
            self.again = False
        else:
            self.variables.close("}")

    def assigned(self, name: str, *, adds: bool) -> None:
        """A variable or a list that is set, or added to: what it is set to begins here."""
        name = VISIBLE if name.upper() == VISIBLE else name
        new: Held
        if self.take(_EMPTY):
            new = ()
        elif self.take(_LIST):
            new = self.members(value=True)
        else:
            found, several = self.values()
            grows = adds and isinstance(self.variables.held.get(name), tuple)
            new = tuple(found) if several or grows else joined(found, name) if len(found) == 1 else None
            if any(_COMPUTED.fullmatch(word.text) and not word.style for word in found):
                new = None
        if adds:
            new = self.variables.add(name, new)
        # PowerShell takes a variable of the environment away that is set to nothing
        self.variables.set(name, ALL if name == VISIBLE and new == "" else new)

    def values(self) -> tuple[list[Word], bool]:
        """The words up to the end of a line, and whether commas divide them."""
        found: list[Word] = []
        several = False
        while self.index < len(self.text) and not self.take(_STOP):
            sign = self.text[self.index]
            if self.take(_BLANK):
                continue
            if sign == "," or sign == "&":
                several = several or sign == ","
                self.index += 1
            elif sign == "}":
                break
            elif sign in "({":
                at, self.index = self.index, self.brackets_end(self.index)
                found.append(Word(self.text[at : self.index], at, self.index, plain=False, known=False))
            else:
                found += self.moved_on(value=True)
        return found, several

    def piece(self, start: int, value: bool) -> Piece | None:
        text, at, sign = self.text, self.index, self.text[self.index]
        if sign in " \t\r\n;|)}" or (sign == "&" and at > start) or (sign == "," and value):
            return None
        if here := self.take(_HERE):
            return Piece(here[0], known=False, quoted=True)
        if sign in "'\"":
            made, known = self.quoted()
            return Piece(made, known, has_variable="$" in text[at : self.index], quoted=True)
        if sign == "`" and text[at + 1 : at + 2] in ("\r", "\n"):
            return None
        if sign == "`":
            self.index += 2
            return Piece(text[at + 1 : self.index])
        if sign == "$":
            return expansion(*self.expanded())
        if sign in "({":
            self.index = self.brackets_end(at)
            return expansion(text[at : self.index], known=False)
        if found := self.take(_LITERAL):
            return Piece(found[0])
        self.index += 1
        return Piece(sign)

    def several(self, made: Word, written: str, value: bool) -> list[Word]:
        found = _SPLAT.fullmatch(written) or _VARIABLE.fullmatch(written)
        if found is None:
            return [made]
        name = next(filter(None, found.groups()))
        listed = self.variables.held.get(name)
        if isinstance(listed, tuple):
            return [replace(word, start=made.start, end=made.end, plain=False) for word in listed]
        return [replace(made, known=False, many=True)] if written.startswith("@") else [made]

    def expanded(self, *, quoted: bool = False) -> tuple[str, bool]:
        """What the $ here begins stands for, and whether that is known; a property or an element is not."""
        text, start = self.text, self.index
        if text.startswith("$(", start):
            self.index = self.brackets_end(start + 1)
            return text[start : self.index], False
        found = self.take(_VARIABLE)
        if found is None:
            self.index += 1
            return "$", True
        if not quoted and _MEMBER.match(text, self.index):
            while self.index < len(text) and text[self.index] not in " \t\r\n;|,)}":
                self.index = self.brackets_end(self.index) if text[self.index] in "([" else self.index + 1
            return text[start : self.index], False
        held = self.variables.lookup(next(filter(None, found.groups())))
        return (found[0], False) if held is None else (held, True)

    def quoted(self) -> tuple[str, bool]:
        """The text inside the quotes here, and whether it is known."""
        text, start = self.text, self.index
        if text[start] == "'":
            single = self.take(_SINGLE)
            if single is None:
                raise Unreadable("the quote ' opened here is not closed", start)
            return single[1].replace("''", "'"), True
        pieces: list[str] = []
        known = True
        self.index += 1
        while self.index < len(text):
            sign = text[self.index]
            if sign == "`" or text.startswith('""', self.index):
                pieces.append(text[self.index + 1 : self.index + 2])
                self.index += 2
            elif sign == '"':
                self.index += 1
                return "".join(pieces), known
            elif sign == "$":
                piece, certain = self.expanded(quoted=True)
                pieces.append(piece)
                known = known and certain
            else:
                pieces.append(sign)
                self.index += 1
        raise Unreadable('the quote " opened here is not closed', start)

    def brackets_end(self, start: int) -> int:
        """Behind the brackets that `start` is at, with quotes and brackets in them."""
        kept, depth = self.index, 0
        self.index = start
        while self.index < len(self.text):
            sign = self.text[self.index]
            if sign in "'\"":
                self.quoted()
                continue
            if self.take(_SKIPPED):
                continue
            depth += (sign in "([{") - (sign in ")]}")
            self.index += 2 if sign == "`" else 1
            if depth == 0:
                break
        end, self.index = min(self.index, len(self.text)), kept
        return end
