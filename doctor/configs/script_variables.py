"""The variables of a script at one place of it: what is certain, and what only the shell can tell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from ..model.cards import VISIBLE
from .command import Word
from .node import MOST_VALUES

# what a variable holds: a text, the words of a list, None where only the shell can tell
Held = str | tuple[Word, ...] | None

MOVED = "PWD"  # the variable that is held once the script has left its folder
MORE = Word("", 0, 0, plain=False, known=False, many=True)
_LONGEST = 20_000  # characters of a variable


class _Block:
    """Commands that may not be run, may be run again, or are run in a shell of their own.

    `before` is what the variables held that are set in it, and `changed` what its branches make of them.
    """

    def __init__(self, closer: str, *, again: bool) -> None:
        self.closer = closer
        self.again = again
        self.before: dict[str, tuple[bool, Held]] = {}
        self.changed: dict[str, Held] = {}


class Variables:
    """What is known while a script is read from its top. `sets` are the names that it sets, as often as it does."""

    def __init__(self, sets: Iterable[str], environment: Mapping[str, str]) -> None:
        self.environment = environment
        self.held: dict[str, Held] = {}
        self.all_known = True  # false where something may have set any variable anew
        self._sets = Counter(sets)
        self._blocks: list[_Block] = []
        self._open = Counter[str]()

    def set(self, name: str, value: Held) -> None:
        if value is not None and len(value) > (_LONGEST if isinstance(value, str) else MOST_VALUES):
            value = None
        if self._blocks:
            self._blocks[-1].before.setdefault(name, (name in self.held, self.held.get(name)))
        self.held[name] = value

    def add(self, name: str, new: Held) -> Held:
        """What a variable holds when this is added to it."""
        if name not in self.held:
            return new
        old = self.held[name]
        if isinstance(new, tuple):
            return (*(old if isinstance(old, tuple) else (MORE,)), *new)
        return old + new if isinstance(old, str) and isinstance(new, str) else None

    def forget(self, names: Iterable[str]) -> None:
        """These may have been set anew."""
        for name in list(names):
            self.set(name, None)

    def set_again(self, name: str) -> bool:
        """Whether the script sets a variable more than once."""
        return self._sets[name] > 1

    def lookup(self, name: str) -> str | None:
        """The text of a variable, None where it is not known or not set."""
        if name not in self.held:
            return self.environment.get(name) if self.all_known else None
        if self.set_again(name):
            # what is run again or later may find another value than the one that was set last above it
            for block in reversed(self._blocks):
                if name in block.before:
                    break
                if block.again:
                    return None
        held = self.held[name]
        if isinstance(held, tuple):
            return held[0].text if held and held[0].known else None
        return held

    def is_absent(self, name: str) -> bool:
        """Whether certainly nothing sets it."""
        return self.all_known and name not in self.held and name not in self.environment

    # blocks

    def inside(self, closer: str) -> bool:
        """Whether the innermost block is of this kind."""
        return bool(self._blocks) and self._blocks[-1].closer == closer

    def open(self, closer: str, *, again: bool = False) -> None:
        self._open[closer] += 1
        self._blocks.append(_Block(closer, again=again))

    def close(self, closer: str, *, own: bool = False) -> None:
        """End the innermost block of this kind, and what in it was not ended; `own` is a shell of its own."""
        if not self._open[closer]:
            return
        while True:
            self.branch()
            block = self._blocks.pop()
            self._open[block.closer] -= 1
            for name, value in block.changed.items() if not (own and block.closer == closer) else ():
                self.set(name, _either(self.held.get(name), value))
            if block.closer == closer:
                return

    def branch(self) -> None:
        """Go back to what was known where the innermost block began."""
        block = self._blocks[-1]
        for name, (was, before) in block.before.items():
            now = self.held.get(name)
            block.changed[name] = _either(block.changed[name], now) if name in block.changed else now
            if was:
                self.held[name] = before
            else:
                self.held.pop(name, None)
        block.before = {}


def joined(made: Sequence[Word], name: str) -> str | None:
    """The text of the words of a variable's value, None where it is not known. What chooses cards is kept."""
    known = name == VISIBLE or all(word.known for word in made)
    return "".join(word.text for word in made) if known else None


def _either(one: Held, other: Held) -> Held:
    """What is known where it is one or the other: of a list that may have grown, its beginning."""
    if one == other:
        return one
    if isinstance(one, tuple) and isinstance(other, tuple) and other[: len(one)] == one:
        return one if one[-1:] == (MORE,) else (*one, MORE)
    return None
