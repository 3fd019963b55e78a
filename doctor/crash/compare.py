"""Two logs, of a run that worked and of one that did not: where they part, and what is not the same before that."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from ..model.crashes import Changed, Comparison
from .failure import START, failures
from .lines import clean

# Bars, rates and steps, which are of no two runs the same.
_PROGRESS = re.compile(
    r"it/s\b|s/it\b|\d%\||\bstep[s ]*[:=]?\s*\d+|\bepoch\b|\beta\b|elapsed|remaining|\bloss\b", re.I
)
_CLOCK = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?|\b\d{1,2}:\d\d(?::\d\d)?(?:[.,]\d+)?\b"
    r"|\b[\d.]+ ?(?:ms|s|sec|secs|seconds?|minutes?|min)\b|\b0x[0-9a-fA-F]+\b|\bpid[ =:]*\d+"
)
_NUMBER = re.compile(r"\d+(?:\.\d+)*")
_LOSS = re.compile(r"\bloss(?:/\w+)?[\"']?\s*[:=]\s*(-?(?:\d+(?:\.\d+)?(?:e[+-]?\d+)?|nan|inf))\b", re.I)
_WARNING = re.compile(r"warn|error|fail|deprecat|fallback|falling back|not found|unable|cannot|skipp|missing", re.I)


def compare(good: str, bad: str) -> Comparison:
    """What the second log has that the first has not, up to the failure that ended it. Pure."""
    worked, failed = clean(good), clean(bad)
    end = _end(failed)
    before = list(_told(failed[:end]))
    known, seen = _by_mask(_told(worked)), _by_mask(before)
    common = [at for at, line in before if _mask(line) in known]
    parted = max(common, default=-1)
    changed = tuple(
        Changed(known[mask][0][1], seen[mask][0][1], seen[mask][0][0] + 1)
        for mask in seen
        if mask in known
        and len(seen[mask]) == len(known[mask]) == 1
        and _differs(known[mask][0][1], seen[mask][0][1])
    )
    new = [(at, line) for at, line in before if _mask(line) not in known]
    fresh = {line: at + 1 for at, line in reversed(new)}
    only = sorted(fresh.items(), key=lambda item: item[1])
    return Comparison(
        parted + 1 or None,
        failed[parted].strip() if parted >= 0 else "",
        changed,
        tuple((at, line) for line, at in only if _WARNING.search(line)),
        tuple((at, line) for line, at in only if not _WARNING.search(line)),
        tuple(_after(worked, failed, parted)),
        _first_bad_loss(failed),
        sum(1 for _ in _losses(worked)),
        sum(1 for _ in _losses(failed)),
    )


def _end(lines: Sequence[str]) -> int:
    """Where the failure that ended the run begins: its first traceback, or the line that tells of the signal."""
    found = failures(lines)
    if not found:
        return len(lines)
    first = found[-1].chain[-1]
    starts = [at for at, line in enumerate(lines[: first.at]) if line.strip().startswith(START)]
    return starts[-1] if first.frames and starts else first.at - 1


def _told(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """The lines that say something, by their place."""
    for at, line in enumerate(lines):
        text = line.strip()
        if len(text) > 2 and any(map(str.isalpha, text)) and not _PROGRESS.search(text):
            yield at, text


def _mask(line: str) -> str:
    return _NUMBER.sub("0", _CLOCK.sub("", line))


def _differs(one: str, other: str) -> bool:
    return _CLOCK.sub("", one) != _CLOCK.sub("", other)


def _by_mask(lines: Sequence[tuple[int, str]] | Iterator[tuple[int, str]]) -> dict[str, list[tuple[int, str]]]:
    made: dict[str, list[tuple[int, str]]] = {}
    for at, line in lines:
        made.setdefault(_mask(line), []).append((at, line))
    return made


def _after(worked: Sequence[str], failed: Sequence[str], parted: int) -> Iterator[str]:
    """What the run that worked said next, after the last line that both have."""
    if parted < 0:
        return
    mask = _mask(failed[parted].strip())
    count = Counter(_mask(line.strip()) for line in failed[: parted + 1])[mask]
    told = 0
    for at, line in enumerate(worked):
        count -= _mask(line.strip()) == mask
        if count == 0:
            for _, text in _told(worked[at + 1 :]):
                if _mask(text) != mask:
                    yield text
                    told += 1
                if told == 3:
                    return
            return


def _losses(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    for at, line in enumerate(lines):
        for found in _LOSS.finditer(line):
            yield at + 1, found[1]


def _first_bad_loss(lines: Sequence[str]) -> int | None:
    return next((at for at, value in _losses(lines) if value.lower().lstrip("-") in ("nan", "inf")), None)
