"""A script is read from its top, word by word, with the variables that it certainly sets filled in. Nothing is run.

What is alike in every shell: words are made of pieces, commands of words, and variables change between them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..model.cards import VISIBLE
from .command import Command, Shell, Word
from .node import Unreadable
from .script_variables import MOVED, Held, Variables

# <steps>, as documents write what a reader puts in: a shell would take both signs for redirections
TO_BE_FILLED = re.compile(r"<[A-Za-z](?:[^<>\r\n;|&()$'\"`]*[\w.)])?>(?=[\s\"'/\\.,:^`]|$)")


class Piece(NamedTuple):
    """A part of a word: what the shell makes of it, where that is `known`; `many` where it may be several words."""

    text: str
    known: bool = True
    many: bool = False
    has_variable: bool = False
    quoted: bool = False


def expansion(text: str, known: bool) -> Piece:
    """A variable, or what a command prints, outside of quotes."""
    return Piece(text, known, many=not known, has_variable=True)


class Reader:
    """One pass over a text, of which what stands before `index` is read. `own` are variables set for one command."""

    shell: Shell
    quotes = "'\""
    divides = False  # whether a variable may be several words also where a part of the word is in quotes
    between: re.Pattern[str]  # what stands between the entries of a list
    moves: frozenset[str]  # the commands that leave the folder

    def __init__(self, text: str, variables: Variables) -> None:
        self.text = text
        self.index = 1 if text.startswith("\ufeff") else 0
        self.variables = variables
        self.own: dict[str, Held] = {}
        self.files: list[str] = []

    def commands(self) -> Iterator[tuple[Command | None, str]]:
        """Every command, with what ended it; None for one that only sets variables. Raises Unreadable."""
        try:
            while self.index < len(self.text):
                found, stop = self.command()
                if found:
                    yield self.made(found), stop
                    self.changed_by(found)
                elif self.own or stop.strip():
                    yield None, stop
                self.ended(stop, certain=not found)
        except RecursionError:
            raise Unreadable("the script is nested too deeply", 0) from None

    def command(self) -> tuple[list[Word], str]:
        """The words up to the end of a command, and what ended it."""
        raise NotImplementedError

    def changed_by(self, found: list[Word]) -> None:
        """Note what a command itself does to variables, and that it leaves the folder."""
        if found[0].text.lower().removeprefix("@") in self.moves:
            self.variables.set(MOVED, None)

    def ended(self, stop: str, *, certain: bool) -> None:
        """A command ended; `certain` where it cannot have failed."""

    def made(self, found: Sequence[Word]) -> Command | None:
        """The command of these words."""
        # an escaped blank at the end of a line is a word of its own, and ends the command
        cut = next((word for word in found if word.text in (" ", "\t") and not word.style), None)
        kept = tuple(word for word in found if word is not cut)
        held = {**self.variables.held, **self.own} if self.own else self.variables.held
        visible = next((w.text.partition("=")[2] for w in kept if w.text.startswith(f"{VISIBLE}=")), None)
        if VISIBLE in held and visible is None:
            value = held[VISIBLE]
            visible = value if isinstance(value, str) else f"${VISIBLE}"
        broken = cut.start if cut else None
        return Command(kept, self.shell, broken, visible, MOVED in held, tuple(self.files)) if kept else None

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """What matches here, which is passed over."""
        found = pattern.match(self.text, self.index)
        self.index = found.end() if found is not None else self.index
        return found

    def starts(self, signs: str | tuple[str, ...]) -> bool:
        return self.text.startswith(signs, self.index)

    def word(self, *, value: bool = False) -> list[Word]:
        """The word that begins here; several, or none, where a variable stands for them. A `value` is assigned."""
        start, quoted = self.index, 0
        texts: list[str] = []
        known, many, expanded = True, False, False
        while self.index < len(self.text) and (piece := self.piece(start, value)) is not None:
            texts.append(piece.text)
            known, many, expanded = known and piece.known, many or piece.many, expanded or piece.has_variable
            quoted += piece.quoted
        self.index = min(self.index, len(self.text))
        written = self.text[start : self.index]
        if not written:
            return []
        whole = quoted == 1 and written[0] == written[-1] and written[0] in self.quotes and len(written) > 1
        style, plain = written[0] if whole else "", not expanded and (quoted == 0 or whole or "=" in written)
        many = many and (self.divides or not quoted)
        return self.several(Word("".join(texts), start, self.index, style, plain, known, many), written, value)

    def piece(self, start: int, value: bool) -> Piece | None:
        """What stands here of a word that begins at `start`, which is passed over; None where the word ends."""
        raise NotImplementedError

    def several(self, made: Word, written: str, value: bool) -> list[Word]:
        """The words that one stands for as it is written."""
        raise NotImplementedError

    def members(self, *, value: bool = False) -> tuple[Word, ...]:
        """The words up to a closing bracket, over several lines."""
        made: list[Word] = []
        while self.index < len(self.text) and not self.starts(")"):
            if not self.take(self.between):
                made += self.moved_on(value=value)
        self.index += self.starts(")")
        return tuple(made)

    def moved_on(self, *, value: bool = False) -> list[Word]:
        """The word that begins here; where none does, the character is passed over."""
        at = self.index
        made = self.word(value=value)
        self.index = max(self.index, at + 1)
        return made
