"""A log as a person read it on the screen: no escape codes, and of each progress bar the first and the last state."""

from __future__ import annotations

import html
import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate

from .reading import GAP, START

LONGEST = 4000
MOST_PLACES = 4000
# CSI and OSC sequences, and the two-character ones; the codes of colours also where the escape itself was lost.
_ESCAPES = re.compile(r"(?:\x1b|\u241b|\^\[)(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_COLOURS = re.compile(r"\[(?:0?[0-4]|[39][0-7]|4[0-7])?(?:;\d{1,3})*m")
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1b\x1d-\x1f\x7f\u200b\ufeff]+")
# A frame with which a paste begins, of whose line it has only the end.
_CUT_FRAME = re.compile(r'\A\s*(?P<file>[^\n"]{1,200}\.py)"?, line (?=\d+, in )')
_ENTITY = re.compile(r"&(?:lt|gt|quot|apos|amp|nbsp|#\d{2,5}|#x[0-9a-fA-F]{2,4});")
_TAG = re.compile(r"</?(?:span|div|pre|code|p|b|i|em|strong|font|a|td|tr)\b[^<>\n]{0,200}>")
_TYPOGRAPHY = (("“", '"'), ("”", '"'), ("„", '"'), ("‘", "'"), ("’", "'"), ("´", "'"), ("\xa0", " "))
_CONTAINER = re.compile(r'^\{"log":"(?:[^"\\]|\\.)*".*\}$', re.M)
# What can be nothing but the name of an exception.
NAME = (
    r"(?:[A-Za-z_]\w*\.)*(?:_?[A-Z]\w*(?:Error|Exception|Interrupt|ExceptionGroup)|Exception)"
    r"|(?:[a-z_]\w*\.)+(?:errors?|exceptions?|exc)\.[A-Z]\w+"
    r"|(?:[a-z_]\w*\.)+(?:\w*Timeout|BrokenProcessPool|OutOfResources|\w*pybind11_state\.[A-Z]\w+)"
    r"|(?:re|struct|zlib|cv2)\.error"
)
# A traceback as the value of a string: its line ends are written out.
_WRITTEN_OUT = re.compile(re.escape(START) + r".*?\\n.*\\n")
_ESCAPED = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))")
_QUOTE = re.compile(r'(?<!\\)"')
_SPELLED = {"n": "\n", "t": "\t", "r": ""}
# What torchrun writes before each line, in a text whose line ends were lost.
_RANKS = re.compile(r" ?\[(?:rank|default)\d+\]: ")
# A traceback whose line ends were lost.
_RUN_ON = re.compile(
    r'.*\(most recent call last\):\s+File ".*|.* File "[^"]+", line \d+, .* File "[^"]+", line \d+, '
)
_FRAME, MOST_FRAMES = ' File "', 2  # as many in one line are of a traceback that lost its line ends
_FRAME_IN = re.compile(r' +(File "[^"]+", line \d+(?:, in (?:<\w+>|\w+))?) *')
_NAMED_LAST = re.compile(rf" (?=(?:{NAME})(?:: (?!.*\w(?:Error|Exception): )|:?$))")
_BAR = re.compile(r"\d+%\|[^|\n]*\| *[\d.?]+\w*/[^\[\]\n]*\[[^\]\n]*\]|\d+it \[[^\]\n]*(?:it/s|s/it)[^\]\n]*\]")
# A bar, or what a training shows of its steps.
IS_BAR = re.compile(r"it/s\b|s/it\b|\d+%\||\d+/\d+ \[\d|\bloss[\"']?\s*[:=]\s*-?\d")


# ComfyUI's report names the exception above its traceback, which stands in a block and ends without it.
_REPORT = re.compile(
    r"^(?P<before>\W*Exception Type:\W*(?P<type>[\w.]+)\W*\n)\W*Exception Message:[* ]*(?P<message>.*)"
    r"(?:(?P<more>(?:\n(?!#).*){0,40}?)(?P<between>\n+#+ Stack Trace\n+(?:```[^\n]*\n+)?(?:(?!```|#).*\n){1,400}?)"
    r"(?:```|(?P<last>(?!```|#).*)\Z))?",
    re.M,
)


class Lines(list[str]):
    """Lines of a log, in order, and for each its number in the log, from 1."""

    def __init__(self, lines: Iterable[str], numbers: Sequence[int] | None = None) -> None:
        super().__init__(lines)
        self.numbers: Sequence[int] = range(1, len(self) + 1) if numbers is None else numbers

    def numbered(self) -> Iterator[tuple[int, str]]:
        return zip(self.numbers, self, strict=True)

    def between(self, first: int, last: int | None = None) -> list[str]:
        """The lines after the number `first` and before `last`."""
        end = len(self) if last is None else bisect_left(self.numbers, last)
        return self[bisect_right(self.numbers, first) : end]

    def after(self, number: int) -> Lines:
        place = bisect_right(self.numbers, number)
        return Lines(self[place:], self.numbers[place:])

    def last(self, count: int) -> Lines:
        return Lines(self[-count:], self.numbers[-count:])

    def holding(self, *words: str) -> list[int]:
        """The indices of the lines with one of the words, for each word of the last MOST_PLACES."""
        found: set[int] = set()
        for word in words:
            at = self.text.rfind(word)
            for _ in range(MOST_PLACES):
                if at < 0:
                    break
                line = bisect_right(self._starts, at) - 1
                found.add(line)
                at = self.text.rfind(word, 0, self._starts[line])
        return sorted(found)

    @cached_property
    def text(self) -> str:
        return "\n".join(self)

    @cached_property
    def _starts(self) -> list[int]:
        return list(accumulate((len(line) + 1 for line in self), initial=0))


def clean(text: str) -> Lines:
    """The lines of a log without escape codes, control characters and what a web page adds, LONGEST long."""
    lines: list[str] = []
    numbers: list[int] = []
    number = 0
    for line in _CONTROLS.sub("", _copied(text).replace("\r\r\n", "\n").replace("\r\n", "\n")).split("\n"):
        number += 1
        if line.startswith(GAP) and line[1:].isdecimal():
            number = int(line[1:])
            continue
        for part in _parts(line):
            lines.append(part[:LONGEST])
            numbers.append(number)
    return Lines(lines, numbers)


def _copied(text: str) -> str:
    """Without the signs of the terminal, the web page or the container's log that the text went through."""
    if "\x1b" in text or "\u241b" in text or "^[[" in text:
        text = _ESCAPES.sub("", text)
    if "[0m" in text:
        text = _COLOURS.sub("", text)
    if '{"log":"' in text:
        text = _CONTAINER.sub(lambda line: _logged(line[0]), text)
    if "</" in text or "<br" in text:
        text = _TAG.sub("", text.replace("<br>", "\n").replace("<br/>", "\n").replace("<br />", "\n"))
    if "Exception Message:" in text:
        text = _REPORT.sub(_with_its_end, text)
    if "&" in text:
        text = _ENTITY.sub(lambda entity: html.unescape(entity[0]), text)
    for sign, plain in _TYPOGRAPHY:
        text = text.replace(sign, plain)
    return re.sub(_CUT_FRAME, r'  File "\g<file>", line ', text)


def _with_its_end(report: re.Match[str]) -> str:
    """A report with the exception where it belongs, in as many lines."""
    error = f"{report['type']}: {report['message'].strip()}"
    if report["between"] is None:
        return f"{report['before']}{error}"
    rest = " ".join(report["more"].split())
    lines = "\n" * (1 + report["more"].count("\n"))
    last = f"{report['last']}\n" if report["last"] else ""  # the log was copied only to there
    return f"{report['before']}{lines[1:]}{report['between']}{last}{error} {rest}".rstrip()


def _logged(line: str) -> str:
    try:
        return str(json.loads(line)["log"]).rstrip("\n")
    except (ValueError, KeyError):
        return line


def _parts(line: str) -> list[str]:
    """What stood one after the other, or one below the other, in what is one line of the file."""
    if not any(word in line for word in ("\r", START, "it/s", "s/it")) and line.count(_FRAME) < MOST_FRAMES:
        return [line]
    states = [state for state in line.split("\r") if state.strip()]
    passed = set([at for at, state in enumerate(states[:-1]) if IS_BAR.search(state)][1:])
    shown = [state for at, state in enumerate(states) if at not in passed] or [""]
    return [part for state in shown for whole in _unfolded(state) for part in _after_bar(whole)]


def _unfolded(line: str) -> list[str]:
    """The lines of a traceback that is written in one."""
    if START not in line and line.count(_FRAME) < MOST_FRAMES:
        return [line]
    if len(_RANKS.findall(line)) > 1:
        return [text for part in _RANKS.split(line) for text in _unfolded(part)]
    if _WRITTEN_OUT.search(line):
        return [text for part in _QUOTE.split(line) for text in _ESCAPED.sub(_spelled, part).split("\n")]
    if _RUN_ON.match(line):
        return _NAMED_LAST.sub("\n", _FRAME_IN.sub(r"\n  \1\n    ", line.rstrip())).split("\n")
    return [line]


def _spelled(escape: re.Match[str]) -> str:
    return chr(int(escape[1], 16)) if escape[1] else _SPELLED.get(escape[2], escape[2])


def _after_bar(line: str) -> list[str]:
    """A bar that was not ended, and what another program wrote behind it."""
    end = max((bar.end() for bar in _BAR.finditer(line)), default=0)
    return [line[:end], line[end:]] if end and line[end:].strip() else [line]
