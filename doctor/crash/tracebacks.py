"""Tracebacks in a log: Python's own, rich's panels and those of a notebook's cell."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..model.crashes import Failure, Frame
from ..model.record import replace

START = "Traceback (most recent call last)"
# A traceback of which the log does not show the end.
CUT_OFF = "CutOff"
CHAINED = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
MOST_MESSAGE = 40
MOST_LINES = 4000
MOST_BETWEEN = 12
_FRAME = re.compile(r'\s*File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<where>.+))?\s*$')
_ERROR = re.compile(r"(?P<type>(?:[A-Za-z_]\w*\.)*[A-Z]\w*|(?:[a-z_]\w*\.)+\w+(?=:))(?:: ?(?P<message>.*)|)$")
# What may stand before it on its line: nothing, a logger's words, a progress bar that was not ended.
_PYTHON = re.compile(r"(?P<before>.*?)(?:Original )?Traceback \(most recent call last\):\s*$")
_BEFORE = re.compile(r"\s*$|.*(?:\]|: |[|] |[-] )\s*$")
_BAR = re.compile(r"it/s\b|s/it\b|\d+%\||\d+/\d+ \[\d|\bloss[\"']?\s*[:=]\s*-?\d")
# A line that some logger wrote, which is not the exception's any more.
_LOGGED = re.compile(
    r"\[?\d{4}-\d\d-\d\d[ T]|\[\d\d:\d\d:\d\d|[WEI]\d{4} \d\d:|wandb: |\[(?:RANK|rank|default|INFO|WARN|ERROR)|"
    r"(?:INFO|WARNING|ERROR|DEBUG)\b[ :]|={20}|-{20}"
)

FATAL = re.compile(r"^(?:Fatal Python error|Windows fatal exception): ")
_FATAL_FRAME = re.compile(r'\s+File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<where>.+)$')
_FATAL_NAMES = (
    ("Segmentation fault", "SegmentationFault"),
    ("Bus error", "BusError"),
    ("Aborted", "Aborted"),
    ("Illegal instruction", "IllegalInstruction"),
    ("access violation", "AccessViolation"),
    ("stack overflow", "StackOverflow"),
)

_PANEL = re.compile(r"\s*[╭┏+][─━-]+.*" + re.escape(START) + r".*[─━-]+[╮┓+]\s*$")
_PANEL_END = re.compile(r"\s*[╰┗+][─━-]+[╯┛+]\s*$")
_PANEL_FRAME = re.compile(r"(?P<file>(?:[A-Za-z]:)?[^:]*):(?P<line>\d+) in (?P<where>\S+)\s*$")
_PANEL_CODE = re.compile(r"[❱>] +\d+ (?P<code>.*)$")
_GUIDES = re.compile(r"^(?:[│|] ?\s*)+")

_CELL = re.compile(r"(?P<type>[A-Z]\w*)\s{2,}" + re.escape(START) + r"\s*$")
_LINKED = re.compile(r"\[([^\]]+)\]\(https?://[^)]*\)")  # as Colab's page is copied
_CELL_FRAMES = (
    re.compile(r"(?P<file>Cell In ?\[\d+\]), line (?P<line>\d+)(?:, in (?P<where>.+))?\s*$"),
    re.compile(r"File (?P<file>.+?):(?P<line>\d+), in (?P<where>.+)$"),
    re.compile(r"(?P<file>Input In \[\d+\]|\S*[/\\<]\S+), in (?P<where>.+)$"),
    re.compile(r"(?P<file>\S*[/\\<]\S+) in (?P<where>.+)$"),
)
_CELL_CODE = re.compile(r"-+> ?(?P<line>\d+) (?P<code>.*)$")


def traceback(lines: Sequence[str], at: int) -> tuple[Failure | None, int]:
    """The traceback that begins at `at`, and where the log goes on. None where the line only speaks of one."""
    line = lines[at]
    if FATAL.search(line):
        return _fatal(lines, at)
    if _PANEL.match(line):
        return _panel(lines, at)
    if _CELL.match(line):
        return _cell(lines, at)
    begun = _PYTHON.match(line)
    if begun is None:
        return None, at + 1
    before = begun["before"]
    if before.strip() and at + 1 < len(lines) and _FRAME.match(lines[at + 1][len(before) :]):
        # the journal, or `docker logs -t`, has put the same words before each line
        failure, end = _python([line[len(before) :] for line in lines[at : at + MOST_LINES]], 0, 0)
        return (replace(failure, at=failure.at + at) if failure is not None else None), end + at
    return _python(lines, at, 0 if before.strip() else len(before)) if _BEFORE.match(before) else (None, at + 1)


def _python(lines: Sequence[str], at: int, indent: int) -> tuple[Failure | None, int]:
    frames: list[Frame] = []
    at, begun = at + 1, at
    while at < len(lines):
        line = lines[at][indent:] if lines[at][:indent].isspace() else lines[at]
        frame = _FRAME.match(line)
        if frame is not None:
            frames.append(Frame(frame["file"], int(frame["line"]), frame["where"] or ""))
        elif line.startswith("    ") and frames and not frames[-1].code:
            frames[-1] = replace(frames[-1], code=line.strip())
        elif not frames and at - begun < MOST_BETWEEN:
            pass  # PowerShell puts words of its own after the first line that goes to standard error
        elif line.strip() and not line[0].isspace() and not _BAR.search(line):
            error = _ERROR.match(line)
            if error is None or not frames:
                return None, at
            message, end = _message(lines, at, error["message"] or "")
            return Failure(error["type"], message, tuple(frames), end), end
        at += 1
    return (Failure(CUT_OFF, "", tuple(frames), at) if frames else None), begun + 1 if not frames else at


def _fatal(lines: Sequence[str], at: int) -> tuple[Failure | None, int]:
    """What faulthandler says of a process that the system ends: the last frame comes first."""
    message = lines[at].strip()
    name = next((name for word, name in _FATAL_NAMES if word in message), "")
    frames: list[Frame] = []
    begun = at
    for at in range(begun + 1, len(lines)):
        frame = _FATAL_FRAME.match(lines[at])
        if frame is not None:
            frames.insert(0, Frame(frame["file"], int(frame["line"]), frame["where"]))
        elif frames or (lines[at].strip() and "most recent call first" not in lines[at]):
            break
    return (Failure(name, message, tuple(frames), at) if name and frames else None), at


def _panel(lines: Sequence[str], at: int) -> tuple[Failure | None, int]:
    """A panel of rich, as accelerate and the trainers' loggers draw it; a long path goes on in the next line."""
    frames: list[Frame] = []
    broken = ""
    at += 1
    while at < len(lines) and not _PANEL_END.match(lines[at]):
        inner = lines[at].strip().strip("│┃|").strip()
        frame = _PANEL_FRAME.match(broken + inner) or _PANEL_FRAME.match(f"{broken} {inner}")
        code = _PANEL_CODE.match(inner)
        if code is not None and frames:
            frames[-1] = replace(frames[-1], code=_GUIDES.sub("", code["code"]).strip())
        elif frame is not None:
            frames.append(Frame(frame["file"], int(frame["line"]), frame["where"]))
        broken = broken + inner if inner[:1] in ("/", "~") or (broken and inner and not frame) else ""
        broken = "" if frame is not None or len(broken) > 400 else broken
        at += 1
    at += 1
    if at < len(lines) and (error := _ERROR.match(lines[at].strip())) is not None:
        message, end = _message(lines, at, error["message"] or "")
        return Failure(error["type"], message, tuple(frames), end), end
    return (Failure(CUT_OFF, "", tuple(frames), min(at, len(lines))) if frames else None), at


def _cell(lines: Sequence[str], at: int) -> tuple[Failure | None, int]:
    """What a notebook shows under a cell that failed."""
    head = _CELL.match(lines[at])
    name = head["type"] if head is not None else ""
    frames: list[Frame] = []
    at += 1
    while at < len(lines):
        line = _LINKED.sub(r"\1", lines[at])
        error = _ERROR.match(line)
        if error is not None and error["type"].rpartition(".")[2] == name:
            message, end = _message(lines, at, error["message"] or "")
            return Failure(error["type"], message, tuple(frames), end), end
        frame = next((found for pattern in _CELL_FRAMES if (found := pattern.match(line))), None)
        code = _CELL_CODE.match(line)
        if frame is not None:
            parts = frame.groupdict()
            function = (parts["where"] or "").partition("(")[0].strip()
            frames.append(Frame(parts["file"], int(parts.get("line") or 0), function))
        elif code is not None and frames and not frames[-1].code:
            frames[-1] = replace(frames[-1], line=frames[-1].line or int(code["line"]), code=code["code"].strip())
        elif START in line:
            break
        at += 1
    return (Failure(name, "", tuple(frames), at) if frames else None), at


def _message(lines: Sequence[str], at: int, first: str) -> tuple[str, int]:
    """The text of an exception, which may go on for lines, and the number of its last line."""
    kept, end = [first], at + 1
    for line in lines[at + 1 : at + MOST_MESSAGE]:
        text = line.strip()
        if not text or START in text or text in CHAINED or _FRAME.match(line) or _BAR.search(line):
            break
        if _LOGGED.match(text):
            break
        kept.append(text)
        end += 1
    return "\n".join(kept), end
