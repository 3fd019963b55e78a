"""Tracebacks as rich draws them in a panel, and as a notebook shows them under a cell."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..model.crashes import Failure, Frame
from ..model.record import replace
from .messages import CUT_OFF, ERROR, message
from .reading import START

POINTER = "❱"
PANEL = re.compile(r"\s*[╭┏+][─━-]+.*" + re.escape(START) + r".*[─━-]+[╮┓+]\s*$")
_PANEL_END = re.compile(r"\s*[╰┗+][─━-]+[╯┛+]\s*$")
_PANEL_FRAME = re.compile(r"(?P<file>(?:[A-Za-z]:)?[^:]*):(?P<line>\d+) in (?P<where>\S+)\s*$")
# Of a file that is not there, as that of a relative path.
_PANEL_PLACE = re.compile(r"in (?P<where>[\w<>.]+):(?P<line>\d+)\s*$")
_PANEL_CODE = re.compile(r"[❱>] +\d+ (?P<code>.*)$")
_GUIDES = re.compile(r"^(?:[│|] ?\s*)+")
_SIDES = ("│", "┃", "|")

CELL = re.compile(r"(?P<type>[A-Z]\w*)\s{2,}" + re.escape(START) + r"\s*$")
_LINKED = re.compile(r"\[([^\]]+)\]\(https?://[^)]*\)")  # as Colab's page is copied
_CELL_FRAMES = (
    re.compile(r"(?P<file>Cell In ?\[\d+\]), line (?P<line>\d+)(?:, in (?P<where>.+))?\s*$"),
    re.compile(r"File (?P<file>.+?):(?P<line>\d+), in (?P<where>.+)$"),
    re.compile(r"(?P<file>Input In \[\d+\]|\S*[/\\<]\S+), in (?P<where>.+)$"),
    re.compile(r"(?P<file>\S*[/\\<]\S+) in (?P<where>.+)$"),
)
_CELL_CODE = re.compile(r"-+> ?(?P<line>\d+) (?P<code>.*)$")


def panel(lines: Sequence[str], at: int) -> tuple[Failure | None, int]:
    """A panel of rich, as accelerate and the trainers' loggers draw it; a long path goes on in the next line.

    Where its upper edge is cut off, it begins with the first line that has a side.
    """
    while not PANEL.match(lines[at]) and at > 0 and lines[at - 1].strip()[:1] in _SIDES:
        at -= 1
    begin = at
    frames: list[Frame] = []
    broken = ""
    at += 1 if PANEL.match(lines[at]) else 0
    while at < len(lines) and not _PANEL_END.match(lines[at]):
        inner = lines[at].strip().strip("│┃|").strip()
        path = broken + inner, f"{broken} {inner}"
        frame = _PANEL_FRAME.match(path[0]) or _PANEL_FRAME.match(path[1]) or _PANEL_PLACE.match(inner)
        code = _PANEL_CODE.match(inner)
        if code is not None and frames:
            frames[-1] = replace(frames[-1], code=_GUIDES.sub("", code["code"]).strip())
        elif frame is not None:
            frames.append(Frame(frame.groupdict().get("file", ""), int(frame["line"]), frame["where"]))
        broken = broken + inner if inner[:1] in ("/", "~") or (broken and inner and not frame) else ""
        broken = "" if frame is not None or len(broken) > 400 else broken
        at += 1
    at += 1
    if at < len(lines) and (error := ERROR.match(lines[at].strip())) is not None:
        text, end = message(lines, at, error["message"] or "")
        return Failure(error["type"], text, tuple(frames), end, begin=begin + 1), end
    return (Failure(CUT_OFF, "", tuple(frames), min(at, len(lines)), begin=begin + 1) if frames else None), at


def cell(lines: Sequence[str], at: int) -> tuple[Failure | None, int]:
    """What a notebook shows under a cell that failed."""
    head = CELL.match(lines[at])
    name = head["type"] if head is not None else ""
    frames: list[Frame] = []
    begin = at
    at += 1
    while at < len(lines):
        line = _LINKED.sub(r"\1", lines[at])
        error = ERROR.match(line)
        if error is not None and error["type"].rpartition(".")[2] == name:
            text, end = message(lines, at, error["message"] or "")
            return Failure(error["type"], text, tuple(frames), end, begin=begin + 1), end
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
    return (Failure(name, "", tuple(frames), at, begin=begin + 1) if frames else None), at
