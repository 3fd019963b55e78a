"""Which of several known failures answers, where a message has the words of all: the one that knows more of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache, lru_cache

from ..model.crashes import Failure, Known
from ..model.record import replace
from . import table
from .by_words import ByWords
from .failures import REPORTED, SAID, failures
from .lines import clean


def closest(failure: Failure) -> Known | None:
    """The one that knows most of a failure; None where there is none."""
    return next(iter(by_closeness(fitting(failure))), None)


@lru_cache(maxsize=8)  # asked once for which failure ended a run, and once for what is known of it
def fitting(failure: Failure) -> tuple[Known, ...]:
    """All that match a failure, in the table's order."""
    entries, message = _by_needed(), failure.message
    asked = entries.having(entries.said(f"{message}\n{' '.join(message.split())}"))
    return tuple(one for one in asked if one.matches(failure))


@cache
def _by_needed() -> ByWords:
    return ByWords(table.known(), lambda one: one.needed)


def by_closeness(fitting: Iterable[Known]) -> list[Known]:
    """Those that fit one failure, the one that knows most of it first.

    What is true of any failure of a shape comes last, and before it what only came after another one. What is told by
    other lines of the log, too, comes before what knows the words alone. Of two others the general one is that whose
    words the other's sample has, too. Where that is so of both or of neither, what names the place in the code comes
    first; of equals the table's order tells.
    """
    told = list(fitting)
    return sorted(told, key=lambda one: _generality(one, told)) if len(told) > 1 else told


def _generality(known: Known, others: Sequence[Known]) -> tuple[bool, bool, bool, int, bool]:
    anywhere = replace(known, where="")
    taken_in = sum(anywhere.matches(_example(other)) for other in others if other is not known)
    return table.is_general(known), known.messenger, not known.seen, taken_in, not known.where


@cache
def _example(known: Known) -> Failure:
    """The failure that an entry is written for."""
    if not known.sample:
        return Failure(SAID if known.line else REPORTED, known.line or "".join(known.words[:1]), (), 1)
    found = failures(clean(known.sample))
    return found[-1] if found else Failure(SAID, known.sample, (), 1)
