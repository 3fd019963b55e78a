"""The line that names an exception, and the lines over which its message goes on."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .lines import IS_BAR, NAME, Lines
from .reading import START
from .streams import FRAME

CHAINED = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
# A traceback of which the log does not show the end.
CUT_OFF = "CutOff"
_CHAINED = ("During handling of the above exception", "The above exception was the direct")
MOST_LINES = 40
MOST_BARS = 3
ERROR = re.compile(r"(?P<type>(?:[A-Za-z_]\w*\.)*[A-Z]\w*|(?:[a-z_]\w*\.)+\w+(?=:))(?:: ?(?P<message>.*)|)$")
CERTAIN = re.compile(rf"(?P<type>{NAME})(?:: ?(?P<message>.*)|)$")
# A line that some logger or launcher wrote, which is not the exception's any more.
LOGGED = re.compile(
    r"\[?\d{4}-\d\d-\d\d[ T]|\[\d\d:\d\d:\d\d|[WEI]\d{4} \d\d:|wandb: |\[(?:RANK|rank|default|INFO|WARN|ERROR)|"
    r"(?:INFO|WARNING|ERROR|DEBUG)\b[ :]|={20}|-{20}|\+[-+]{8}|Segmentation fault|Aborted"
    r"|(?:\S+: line \d+: +\d+ )?Killed|## [A-Z]|\S+\.py:\d+: \w*Warning: |[\w.]+ *:\d+ +\d{4}-\d\d-\d\d "
)
PROMPT = re.compile(r"(?:\([\w.-]+\) ?)?(?:(?:PS )?[A-Za-z]:\\[^>]*>|[\w.-]+@[\w.-]+[: ][^$#]*[$#])|```|[$%] ")


def message(lines: Sequence[str], at: int, first: str) -> tuple[str, int]:
    """The text of an exception, which may go on for lines, and the number of its last line.

    What follows an empty line belongs to it where the log, or what is said of the exception, ends after it.
    """
    kept, paragraph = [first], 0
    end = at + 1
    for place in range(at + 1, min(at + MOST_LINES, len(lines))):
        text = lines[place].strip()
        if text.startswith(_CHAINED) or START in text or PROMPT.match(text):
            return "\n".join(kept), end
        if FRAME.match(lines[place]) or IS_BAR.search(text) or LOGGED.match(text) or _went_on(lines, place):
            break
        if text:
            kept.append(text)
            end = place + 1
        else:
            paragraph = paragraph or len(kept)
    else:
        if at + MOST_LINES >= len(lines):
            return "\n".join(kept), end
    return ("\n".join(kept[:paragraph]), at + paragraph) if paragraph else ("\n".join(kept), end)


def _went_on(lines: Sequence[str], place: int) -> bool:
    """Whether so many bars were left out before it that the run went on."""
    return isinstance(lines, Lines) and lines.numbers[place] - lines.numbers[place - 1] > MOST_BARS
