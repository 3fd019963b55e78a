"""Two logs, of a run that worked and of one that did not: where they part, and what is not the same before that."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from ..model.crashes import Changed, Comparison
from .failures import failures
from .lines import Lines, clean
from .streams import bare

# Bars, rates and steps, which are of no two runs the same.
_PROGRESS = re.compile(
    r"it/s\b|s/it\b|\d%\||\bstep[s ]*[:=]?\s*\d+|\bepoch\b|\beta\b|elapsed|remaining|\bloss\b", re.I
)
_CLOCK = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?|\b\d{1,2}:\d\d(?::\d\d)?(?:[.,]\d+)?\b"
    r"|\b[\d.]+ ?(?:ms|s|sec|secs|seconds?|minutes?|min)\b|\b0x[0-9a-fA-F]+\b|\bpid[ =:]*\d+"
)
MOST_NEXT = 3
_DIGIT = re.compile(r"\d")
_NUMBER = re.compile(r"\d+(?:\.\d+)*")
_LOSS = re.compile(r"\bloss(?:/\w+)?[\"']?\s*[:=]\s*(-?(?:\d+(?:\.\d+)?(?:e[+-]?\d+)?|nan|inf))\b", re.I)
_WARNING = re.compile(r"warn|error|fail|deprecat|fallback|falling back|not found|unable|cannot|skipp|missing", re.I)


class _Told(NamedTuple):
    """A line that says something: its place, its text, and the text without its numbers and times."""

    at: int
    text: str
    mask: str


def compare(good: str, bad: str) -> Comparison:
    """What the second log has that the first has not, up to the failure that ended it. Pure."""
    lines, failed = (Lines(map(bare, log), log.numbers) for log in (clean(good), clean(bad)))
    end = _end(failed)
    worked, before = list(_told(lines)), [told for told in _told(failed) if told.at < end]
    known, seen = _by_mask(worked), _by_mask(before)
    last = next((told for told in reversed(before) if told.mask in known), None)
    changed = tuple(
        Changed(known[mask][0].text, said[0].text, said[0].at)
        for mask, said in seen.items()
        if len(said) == len(known.get(mask, ())) == 1 and _differs(known[mask][0].text, said[0].text)
    )
    fresh = {told.text: told.at for told in reversed(before) if told.mask not in known}
    only = sorted((at, text) for text, at in fresh.items())
    return Comparison(
        last.at if last else None,
        last.text if last else "",
        changed,
        tuple(line for line in only if _WARNING.search(line[1])),
        tuple(line for line in only if not _WARNING.search(line[1])),
        _next(worked, sum(told.mask == last.mask for told in before), last.mask) if last else (),
        next((at for at, value in _losses(failed) if value.lower().lstrip("-") in ("nan", "inf")), None),
        sum(1 for _ in _losses(lines)),
        sum(1 for _ in _losses(failed)),
    )


def _end(lines: Lines) -> int:
    """The number of the line with which the failure that ended the run begins."""
    found = failures(lines)
    return found[-1].chain[-1].begin if found else lines.numbers[-1] + 1


def _told(lines: Lines) -> Iterator[_Told]:
    for number, line in lines.numbered():
        text = line.strip()
        if len(text) > 2 and any(map(str.isalpha, text)) and not _PROGRESS.search(text):
            yield _Told(number, text, _NUMBER.sub("0", _CLOCK.sub("", text)) if _DIGIT.search(text) else text)


def _differs(one: str, other: str) -> bool:
    return _CLOCK.sub("", one) != _CLOCK.sub("", other)


def _by_mask(lines: Sequence[_Told]) -> dict[str, list[_Told]]:
    made: dict[str, list[_Told]] = {}
    for told in lines:
        made.setdefault(told.mask, []).append(told)
    return made


def _next(worked: Sequence[_Told], times: int, mask: str) -> tuple[str, ...]:
    """What the run that worked said after it had said a line as often as the failed one."""
    places = [place for place, told in enumerate(worked) if told.mask == mask]
    after = worked[places[min(times, len(places)) - 1] + 1 :]
    return tuple(islice((told.text for told in after if told.mask != mask), MOST_NEXT))


def _losses(lines: Lines) -> Iterator[tuple[int, str]]:
    for number, line in lines.numbered():
        if "loss" in line.lower():
            for found in _LOSS.finditer(line):
                yield number, found[1]
