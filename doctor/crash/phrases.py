"""Known failures in a log that shows no exception: a line of it that was copied, or what an installer printed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache

from ..model.crashes import Failure, Known
from . import table
from .by_words import ByWords
from .failures import SAID
from .lines import Lines
from .specific import by_closeness

Entries = Callable[[], tuple[Known, ...]]  # of table.py
MOST_LINES = 12
MOST_ABOVE = 40  # among these are the frames of what a line says
MOST_PROSE = 4
_BEFORE = re.compile(
    r".*[\])>|]|.*\bmodule for custom nodes: |.*look up to see its traceback\):|\bbecause of the following error\b.*:"
    r"|.*\b(?:[Ee]rror|ERROR|[Ee]xception|[Ff]ailed|[Ff]ailure)\b[^.:]{0,80}: "
    r"|.*\b(?:raise [\w.]+\(|assert .*, ?\(?)f?[\"']"
)
# What failed as a program dealt with another failure.
_HANDLING = re.compile(r"Error running on_error: ")
_PROSE = re.compile(r"[a-z]+[:,]?")


def phrases(lines: Lines, entries: Entries) -> list[tuple[Failure, Known]]:
    """The known failures whose words a line has, each with the last place of it: the one that knows most first, and
    what is vague last, as another line tells more."""
    found = {known: said for said, known in _spoken(lines, entries)}
    return [(found[known], known) for known in sorted(by_closeness(found), key=_vague)]


def _vague(known: Known) -> tuple[bool, bool]:
    return table.is_general(known), known.vague


@cache
def _by_words(entries: Entries) -> ByWords:
    return ByWords([known for known in entries() if known.words], lambda known: known.words)


def _spoken(lines: Lines, entries: Entries) -> Iterator[tuple[Failure, Known]]:
    by_words = _by_words(entries)
    all_words = by_words.said(lines.text)
    for known in by_words.having(all_words):
        for at in reversed(lines.holding(*known.words)):
            around = lines[max(0, at - MOST_ABOVE) : at + MOST_LINES]
            if _HANDLING.match(lines[at]) or (known.where and not re.search(known.where, "\n".join(around))):
                continue
            told = [line.strip() for line in lines[at : at + MOST_LINES]]
            whole = (" ".join(" ".join(told).split()), "".join(told))  # a window breaks lines amid a word
            found = next((found for text in whole if (found := re.search(known.pattern, text)) is not None), None)
            if found is not None and _begins(lines[at], all_words):
                said = lines[at].strip() if re.search(known.pattern, lines[at]) else found[0]
                number = lines.numbers[at]
                failure = Failure(SAID, said, (), number, begin=number, log=lines)
                if known.is_seen(failure):
                    yield failure, known
                    break


def _begins(line: str, words: Iterable[str]) -> bool:
    """Whether the first known words stand where a message begins, and not amid a sentence of somebody."""
    place = min(at for word in words if (at := f"{line}\n".find(word)) >= 0)  # some end the line
    before = _BEFORE.sub("", line[:place])
    return sum(_PROSE.fullmatch(word) is not None for word in before.split()) <= MOST_PROSE
