"""Lines for a person become the text of a screen. Without colour that is plain text, and rich is not imported."""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from ..doctor.model.columns import cells, cut, padded
from ..doctor.model.printable import printable
from ..doctor.model.record import dataclass
from ..doctor.model.said import said

WIDEST = 110  # columns of prose that an eye follows back
_NARROWEST = 16
_WORDS = re.compile(r"""(?:"[^"]*"|'[^']*'|\S)+""")
WIDE = "\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef"
# What stays in one line: a character of East Asia or a word, with the marks that open and close a clause around it.
# Compiled where a text needs it, as that takes 2 ms.
_CHUNKS = f"\\s*[（「『《“([]*(?:[{WIDE}]|[^\\s{WIDE}]+)[，。；：、！？）」』》”…)\\]]*\\s*"


@dataclass(frozen=True)
class Screen:
    """Where text is shown: its columns and rows, whether in colour, and what a shell there takes at the end of a line
    for "it goes on" ("" where commands are left in one piece). `folder` is where names of files are counted from,
    which become links then; "" where a terminal has none, or is none."""

    width: int = 100
    height: int = 24
    color: bool = False
    goes_on: str = ""
    folder: str = ""


PAGE = Screen(height=1 << 30)
"""What has no screen: a file, a pipe."""


@dataclass(frozen=True)
class Wrapped:
    """Text that is broken into lines as wide as the screen, each behind `lead` or blanks in its place."""

    text: str
    lead: str
    style: str = ""


@dataclass(frozen=True)
class Typed:
    """A command, broken between its words where it is too wide, and what it does, beside it or below."""

    command: str
    lead: str
    about: str = ""
    style: str = ""


Spans = Sequence[tuple[str, str]]
"""One line: (style, text) pairs."""
Line = Spans | Wrapped | Typed


def paint(lines: Iterable[Line], screen: Screen = PAGE) -> str:
    """Lines to text. Control characters of file names never reach the terminal."""
    spans = (spans for line in lines for spans in _broken(line, screen))
    cleaned = [[(style, printable(text.replace("\n", "\0"))) for style, text in line] for line in spans]
    if not screen.color:
        return "".join("".join(text for _, text in line).rstrip() + "\n" for line in cleaned)
    from rich.console import Console
    from rich.text import Text

    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=screen.width, highlight=False, legacy_windows=False)
    for line in cleaned:
        console.print(Text.assemble(*((text, style) for style, text in line)), soft_wrap=True)
    return out.getvalue()


def rows(lines: Iterable[Line], screen: Screen) -> int:
    """How many lines of the screen these take, those that it breaks itself counted."""
    texts = ("".join(text for _, text in spans) for line in lines for spans in _broken(line, screen))
    return sum(max(1, -(-cells(text) // screen.width)) for text in texts)


def shortened(text: str, room: int) -> str:
    """The beginning of a text in one line of so many columns, with … where it goes on."""
    text = " ".join(text.split())
    if cells(text) <= room:
        return text
    return f"{cut(text, max(room - 1, 1)).rstrip()}…"


def _broken(line: Line, screen: Screen) -> Iterator[Spans]:
    """The line in the reader's language, as lines of the screen."""
    match line:
        case Wrapped(text, lead, style):
            yield from _wrapped(Wrapped(said(text), spoken(lead), style), min(screen.width, WIDEST))
        case Typed(command, lead, about, style):
            yield from _typed(Typed(command, spoken(lead), said(about), style), screen)
        case _:
            yield [(style, spoken(text)) for style, text in line]


def spoken(text: str) -> str:
    """A part of a line in the reader's language: where blanks end it for a column, as wide as it was, or with one."""
    made = said(text)
    return made if made == text or not text.endswith("  ") else padded(f"{made.rstrip()} ", cells(text))


def _wrapped(line: Wrapped, width: int) -> Iterator[Spans]:
    lead, blank = line.lead, " " * min(cells(line.lead), max(2, width // 5))
    for paragraph in line.text.splitlines() or [""]:
        for piece in broken(paragraph, max(width, cells(lead) + _NARROWEST), cells(lead), len(blank)):
            yield [("dim" if line.lead.strip() else "", lead), (line.style, piece)]
            lead = blank


@lru_cache  # lines are counted before they are shown
def broken(text: str, width: int, first: int = 0, rest: int = 0) -> Sequence[str]:
    """The text in lines of so many columns, of which `first` and `rest` are taken in the first line and the others.

    Lines are broken at blanks and, as Chinese has none, between its characters; but no line begins with what closes a
    clause there, nor ends with what opens one.
    """
    if cells(text) == len(text):
        lead, blank = " " * first, " " * rest
        lines = textwrap.wrap(
            text,
            width,
            initial_indent=lead,
            subsequent_indent=blank,
            break_long_words=False,
            break_on_hyphens=False,
        )
        return [lines[0][first:], *(line[rest:] for line in lines[1:])] if lines else [""]
    made, taken = [""], first
    for piece in re.findall(_CHUNKS, text):
        if made[-1] and taken + cells(piece.rstrip()) > width:
            made.append("")
            taken = rest
        made[-1] += piece
        taken += cells(piece)
    return [line.rstrip() for line in made]


def _typed(line: Typed, screen: Screen) -> Iterator[Spans]:
    pieces = [line.command]
    room = max(_NARROWEST, screen.width - cells(line.lead))
    if screen.goes_on and cells(line.command) > room:
        pieces = [""]
        for word in _WORDS.findall(line.command):
            if pieces[-1] and cells(f"{pieces[-1]} {word}") > room - 2:
                pieces[-1] += f" {screen.goes_on}"
                pieces.append(f"  {word}")
            else:
                pieces[-1] = f"{pieces[-1]} {word}".lstrip() if len(pieces) == 1 else f"{pieces[-1]} {word}"
    lead = line.lead
    for piece in pieces[:-1]:
        yield [("bold", lead), (line.style, piece)]
        lead = " " * cells(line.lead)
    last = [("bold", lead), (line.style, pieces[-1])]
    if line.about and cells(f"{lead}{pieces[-1]}   {line.about}") <= screen.width:
        yield [*last, ("dim", f"   {line.about}")]
        return
    yield last
    if line.about:
        yield from _wrapped(Wrapped(line.about, " " * cells(line.lead), "dim"), screen.width)
