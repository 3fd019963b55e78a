"""The failures of a log: its tracebacks, and the ends that leave none."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

from ..model.crashes import Failure
from ..model.record import replace
from .known import lines as printed
from .lines import Stream, streams
from .tracebacks import CHAINED, FATAL, START, traceback

# What a message of a trainer is called that stands for itself, with no exception.
SAID = "Said"
# A message whose exception is shown elsewhere, or nowhere.
REPORTED = "Reported"
_CODE = r"(?:(?:[Ee]xit|[Rr]eturn) ?[Cc]ode|\b[Ee]xit(?:ed)?(?: with)?(?: code| status)?)[\"']?[:=]? *\(?"


def _code(*codes: int | str) -> str:
    return rf"{_CODE}(?:{'|'.join(map(str, codes))})(?!\d|\.\d|%)"


# (what it is called here, words of which such a line has one, what the line looks like).
_ENDS = (
    (
        "Killed",
        ("illed", "SIGKILL", "xit", "return code", "9/KILL", "oom", "OOM"),
        rf"^(?:\S+: line \d+: +\d+ )?Killed\b|{_code(137, -9)}|SIGKILL|code=killed, status=9/KILL|result 'oom-kill'"
        r"|Out of memory: Killed process|Memory cgroup out of memory|killed by the OOM killer|oom-kill:constraint="
        r"|\bOOMKilled\"?: *true|Reason: +OOMKilled|^\[?\d*\]? *\+ +\d+ killed\b|\d+ Killed +\S+$",
    ),
    (
        "OutOfRam",
        ("more memory than is available", "all available RAM"),
        r"Your notebook tried to allocate more memory than is available|after using all available RAM",
    ),
    (
        "SegmentationFault",
        ("egmentation", "SIGSEGV", "xit"),
        rf"Segmentation fault|segfault at |SIGSEGV|{_code(139, -11)}",
    ),
    ("BusError", ("Bus error", "SIGBUS", "xit"), rf"\bBus error\b|SIGBUS|{_code(135, -7)}"),
    (
        "Aborted",
        ("Abort", "SIGABRT", "xit", "3221226505", "1073740791"),
        rf"^Aborted\b|SIGABRT|{_code(134, -6)}|\b3221226505\b|-1073740791\b",
    ),
    (
        "IllegalInstruction",
        ("llegal instruction", "SIGILL", "xit", "3221225501", "-1073741795"),
        rf"^Illegal instruction\b|SIGILL|{_code(132, -4, 3221225501, -1073741795)}",
    ),
    (
        "AccessViolation",
        ("3221225477", "1073741819", "0xC0000005", "0xc0000005", "access violation"),
        r"\b3221225477\b|-1073741819\b|0x[cC]0000005\b|^Windows fatal exception: access violation",
    ),
    ("StackOverflow", ("3221225725", "1073741571"), r"\b3221225725\b|-1073741571\b"),
    ("MissingLibrary", ("3221225781", "1073741515"), r"\b3221225781\b|-1073741515\b"),
    ("Interrupted", ("^C",), r"^\^C\s*$"),
)
_ARGPARSE = re.compile(
    r"^(?:\S+: )?error: (?P<message>argument .+|unrecognized arguments: .+|the following arguments are required: .+"
    r"|ambiguous option: .+|one of the arguments .+)$"
)
_LOADING = re.compile(r"\s*Loading (?:checkpoint shards|weights|pipeline components\.*): +(?!100%)\d+%")
_REPORTED = re.compile(r"Error running job: (?P<message>.+)$")
MOST_LINES = 2000


def failures(lines: Sequence[str]) -> tuple[Failure, ...]:
    """Every failure of a log, in the order in which they were printed; a chain of exceptions is one, its last."""
    found = [failure for stream in streams(lines) for failure in _tracebacks(stream)]
    return tuple(sorted([*found, *_endings(lines)], key=lambda failure: failure.at))


def _tracebacks(stream: Stream) -> list[Failure]:
    found: list[Failure] = []
    read = 0
    for at in [at for at, line in enumerate(stream) if START in line or (line[:1] in "FW" and FATAL.match(line))]:
        if at < read:
            continue
        failure, read = traceback(stream, at)
        if failure is None:
            continue
        between = " ".join(stream[found[-1].at : at] if found else ())
        if " ".join(between.split()).startswith(CHAINED):
            failure = replace(failure, cause=found.pop())
        found.append(failure)
    return [_placed(stream, failure) for failure in found]


def _placed(stream: Stream, failure: Failure) -> Failure:
    cause = _placed(stream, failure.cause) if failure.cause is not None else None
    return replace(failure, at=stream.place(failure.at - 1) + 1, cause=cause)


def _endings(lines: Sequence[str]) -> Iterator[Failure]:
    """Every line that tells of an end, as a failure without frames."""
    log = Log(lines)
    for name, words, pattern in _ENDS:
        for at in log.holding(*words):
            if re.search(pattern, lines[at]):
                yield Failure(name, lines[at].strip(), (), at + 1)
    for at in log.holding("error: "):
        if (refused := _ARGPARSE.match(lines[at])) is not None:
            yield Failure("ArgumentError", refused["message"], (), at + 1)
    for at in log.holding("Error running job: "):
        if (reported := _REPORTED.search(lines[at])) is not None:
            yield Failure(REPORTED, reported["message"], (), at + 1)
    last = next((at for at in range(len(lines) - 1, -1, -1) if lines[at].strip()), 0)
    if lines and _LOADING.match(lines[last]):
        yield Failure("EndsLoading", lines[last].strip(), (), last + 1)
    for known in printed():
        places = [at for at in log.holding(known.line) if re.search(known.text, lines[at])]
        if len(places) >= known.least:
            yield Failure(SAID, lines[places[-1]].strip(), (), places[-1] + 1)


class Log:
    """A log as one text, in which words are found faster than line by line."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._text = "\n".join(lines)
        self._starts = list(accumulate((len(line) + 1 for line in lines), initial=0))

    def holding(self, *words: str) -> list[int]:
        """The numbers of the lines with one of the words, for each word of the last MOST_LINES places."""
        found: set[int] = set()
        for word in words:
            at = self._text.rfind(word)
            for _ in range(MOST_LINES):
                if at < 0:
                    break
                line = bisect_right(self._starts, at) - 1
                found.add(line)
                at = self._text.rfind(word, 0, self._starts[line])
        return sorted(found)
