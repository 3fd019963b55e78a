"""The lines of a log as each process wrote them: whole, without what launchers and loggers put before, and once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from .lines import NAME, Lines
from .reading import START

FRAME = re.compile(r'\s*File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in(?: (?P<where>.+))?)?\s*$')
_FRAME_BEGUN = re.compile(r'\bFile "')
_LED_FRAME = re.compile(r'(?P<lead>.*?)(?:  )?File "[^"]+", line \d+')
# "[rank0]: ", "[default0]:", "worker-1  | ", "(worker pid=12) ": whose line it is.
_OWNER = re.compile(r"(\[(?:rank|default)\d+\]):\s?|([\w.-]{1,40} +)\| |(\([\w.-]* ?pid=\d+[^)\n]{0,60}\)) ?")
_BOX = "╭│╰┃┏┗+|"
_BAR_ALONE = re.compile(r"[^|]{0,80}\d+%\|[^|]*\|[^|\[]*\[[^\]]*\]?\s*$")
_NARROWEST, _WIDEST = 48, 400
_USUAL_WIDTHS = (80, 100, 120)
_CODE = "    "  # what a line of code below its frame begins with
_MAY_GO_ON = re.compile(rf'\s*File "|(?:{NAME}): |(?:\w+ )?(?:ERROR|[Ee]rror|fatal)\b')
_BEGINS = re.compile(r'\s*File "|\[|\d{4}-\d\d|' + re.escape(START) + r"|(?:[A-Za-z_]\w*\.)*[A-Z]\w*: ")
_LEVEL = re.compile(r"\b(?:DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL|FATAL)\b")
_DIGITS = re.compile(r"\d+")
_LONGEST_LEAD = 120
# What can be a time, a level or a name before a line; of a few lines a name alone is none, for it may be an error's.
_SYSLOG = r"[A-Z][a-z]{2} +\x01 [\x01:]+ [\w.\x01-]+ [\w./\x01-]+(?:\[\x01\])?: "
_SURE = rf"{_SYSLOG}|\[[^\]\n]*\]:? *|[\x01:.,T/+-]+Z? +|\w+ STD(?:ERR|OUT): |> ?"
_LEADS = (
    re.compile(rf"(?:{_SURE})+"),
    re.compile(rf"(?:{_SURE}|\(\w[^)\n]*\) *|(?![\w.]*[Ee]rror)[\w.-]+: +|[A-Z] )+"),
)
_FEW = 3
_LAST = 40
# "ValueErrorValueError: : ", "torchtorch..OutOfMemoryErrorOutOfMemoryError: : ", "ValueError: ValueError: ".
_NAMED_TWICE = re.compile(r"(?:(?P<pieces>[\w.]+): : |(?P<once>(?:\w+\.)*[A-Z]\w+): (?P=once): )")
_DOUBLED = re.compile(r"(?P<name>[A-Z]\w+)(?P=name): : |\b(?P<once>[A-Z]\w+: )(?P=once)")
MOST_MESSAGE = 40


def streams(lines: Lines) -> list[Lines]:
    """The log of each process. Where several write into one, their tracebacks are mixed line by line."""
    kept = [at for at, line in enumerate(lines) if "%|" not in line or not _BAR_ALONE.match(line)]
    return [_once(_bare(stream)) for stream in _apart(_joined(_some(lines, kept)))]


def _some(lines: Lines, kept: Sequence[int]) -> Lines:
    if len(kept) == len(lines):
        return lines
    return Lines([lines[at] for at in kept], [lines.numbers[at] for at in kept])


def bare(line: str) -> str:
    """A line without what the launcher put before it."""
    return _OWNER.sub("", line, count=1) if _owned(line) else line


def _owned(line: str) -> bool:
    return line[:2] in ("[r", "[d") or (" | " in line[:44] and line[:1] not in _BOX) or "pid=" in line[:60]


def _lines(numbered: Iterable[tuple[int, str]]) -> Lines:
    kept = list(numbered)
    return Lines([line for _, line in kept], [number for number, _ in kept])


def _apart(lines: Lines) -> list[Lines]:
    owned: dict[str, list[int]] = {}
    rest, said = [], list(lines)
    for at, line in enumerate(lines):
        if _owned(line) and (found := _OWNER.match(line)) is not None:
            owned.setdefault(found[1] or found[2] or found[3], []).append(at)
            said[at] = line[found.end() :]
        else:
            rest.append(at)
    if rest[:1] == [0] and len(lines) > 1 and FRAME.match(lines[0]) and (owner := _OWNER.match(lines[1])) is not None:
        owned[owner[1] or owner[2] or owner[3]].insert(0, rest.pop(0))  # a paste that begins behind the owner's name
    bare_lines = Lines(said, lines.numbers)
    return [_some(bare_lines, kept) for kept in (rest, *owned.values()) if kept]


def _joined(lines: Lines) -> Lines:
    """The lines that a window or a mail has broken at its width."""
    begun = [at for at in lines.holding('File "') if not FRAME.match(lines[at]) and _FRAME_BEGUN.search(lines[at])]
    width = max(map(len, lines), default=0)
    full = {at for at, line in enumerate(lines) if len(line) == width}
    if not (_NARROWEST <= width <= _WIDEST and len(full) > 1 and any(at in full for at in begun)):
        full = _going_on(lines, full) if width in _USUAL_WIDTHS else set()
    broken = {at + 1: "" for at in full} | _broken_frames(lines, [at for at in begun if at not in full])
    if not broken:
        return lines
    made: list[tuple[int, str]] = []
    for at, (number, line) in enumerate(lines.numbered()):
        goes_on = made and made[-1][1].strip("=-─━ #*") and not (line[:4] == _CODE and _whole(made[-1][1]))
        if at in broken and goes_on and not _BEGINS.match(line):
            made[-1] = made[-1][0], made[-1][1] + broken[at] + line
        else:
            made.append((number, line))
    return _lines(made)


def _going_on(lines: Lines, full: set[int]) -> set[int]:
    """Those of the lines as wide as a window that begin a frame or an exception, or go on with one."""
    found: set[int] = set()
    for at in sorted(full):
        if at - 1 in found or any(map(_MAY_GO_ON.match, lines[max(0, at - 1) : at + 1])):
            found.add(at)
    return found


def _broken_frames(lines: Lines, begun: Iterable[int]) -> dict[int, str]:
    """The lines in which a frame goes on, and what stood between them."""
    broken = {}
    for at in begun:
        for between in ("", " "):
            if at + 1 < len(lines) and _whole(lines[at] + between + lines[at + 1]):
                broken[at + 1] = between
                break
    return broken


def _whole(line: str) -> bool:
    return re.search(r'File "[^"]+", line \d+(?:, in \S+)?\s*$', line) is not None


def _bare(lines: Lines) -> Lines:
    """Without the times, quotes and names that stand before the frames, and before other lines that begin alike."""
    leads = {found["lead"] for at in lines.holding('File "') if (found := _LED_FRAME.match(lines[at])) is not None}
    leads.add(_common_lead(lines))
    shapes = [
        _shape(lead) for lead in sorted(leads, key=lambda one: (-len(one), one)) if 0 < len(lead) <= _LONGEST_LEAD
    ]
    if not shapes:
        return lines
    pattern = re.compile("|".join(dict.fromkeys(shapes)))
    return Lines((line[found.end() :] if (found := pattern.match(line)) else line for line in lines), lines.numbers)


def _common_lead(lines: Lines) -> str:
    """What stands before each of the last lines, if that can be a name, a time or a level."""
    masks = [_mask(line[:_LONGEST_LEAD]) for line in lines[-_LAST:] if len(line.split()) > 1]
    low, high = min(masks, default=""), max(masks, default="")
    alike = next((at for at, sign in enumerate(low) if high[at : at + 1] != sign), len(low))
    lead = _LEADS[len(set(masks)) > _FEW].match(low[:alike])
    return lead[0].replace("\0", "INFO").replace("\1", "1") if lead is not None else ""


def _mask(text: str) -> str:
    return _LEVEL.sub("\0", _DIGITS.sub("\1", text))


def _shape(lead: str) -> str:
    """What matches the lead of other lines, with another time and level; an empty line has lost its spaces."""
    text = _mask(lead)
    whole = re.escape(text.rstrip()).replace("\0", "[A-Z]+").replace("\1", r"\d+")
    spaces = len(text) - len(text.rstrip())
    return f"{whole}(?: {{{spaces}}}|$)" if spaces else whole


def _once(lines: Lines) -> Lines:
    """What two writers have put into the log one after the other, word by word, line by line; once."""
    heads = lines.holding(START)
    twice = any(at + 1 in heads and lines[at].strip() == lines[at + 1].strip() for at in heads)
    if not twice and not any(_DOUBLED.search(lines[at]) for at in lines.holding("Error: ", "Exception: ")):
        return lines
    return _lines(_without_doubles(lines))


def _without_doubles(lines: Lines) -> Iterator[tuple[int, str]]:
    at, last, ended = 0, "", False
    while at < len(lines):
        named = _NAMED_TWICE.match(lines[at])
        ended = named is not None or (ended and START not in lines[at])
        if named is not None:
            head = named["once"] or _pieces(named["pieces"])
            message, taken = _halved("\n".join([lines[at][named.end() :], *lines[at + 1 : at + MOST_MESSAGE]]))
            halves = f"{head}: {message}".split("\n")
        else:
            halves, taken = [_pieces(lines[at].rstrip())], 1
        for half in halves:
            if (half.strip() or ended) and half.strip() != last:  # a message has empty lines, a traceback none
                yield lines.numbers[at], half
                last = half.strip()
        at += taken


def _halved(text: str) -> tuple[str, int]:
    """The message with which a text begins twice, and how many lines both take; else its first line."""
    first = text.partition("\n")[0]
    start = text[: max(1, min(24, len(first) // 2))]
    at = text.find(start, 1)
    while at > 0:
        if text.startswith(text[:at], at):
            return text[:at].rstrip("\n"), text[: 2 * at].count("\n") + 1
        at = text.find(start, at + 1)
    return first, 1


def _pieces(line: str) -> str:
    """A line in which each piece stands twice: "    " "    " "main()" "main()"."""
    made, at = "", 0
    while at < len(line):
        sizes = range((len(line) - at) // 2, 0, -1)
        size = next((size for size in sizes if line.startswith(line[at : at + size], at + size)), 0)
        if not size:
            return line
        made, at = made + line[at : at + size], at + 2 * size
    return made
