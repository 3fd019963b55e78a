"""Lines for a person become the text of a screen. Without colour that is plain text, and rich is not imported."""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence

from ..doctor.model.printable import printable
from ..doctor.model.record import dataclass

WIDEST = 110  # columns of prose that an eye follows back
_NARROWEST = 16
_WORDS = re.compile(r"""(?:"[^"]*"|'[^']*'|\S)+""")


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


def cells(text: str) -> int:
    """How many columns of a terminal a text takes: characters of East Asia are two wide, marks above others none."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(one) else 2 if east_asian_width(one) in "WF" else 1 for one in text)


def shortened(text: str, room: int) -> str:
    """The beginning of a text in one line of so many columns, with … where it goes on."""
    text = " ".join(text.split())
    if cells(text) <= room:
        return text
    kept = text[: max(room - 1, 1)]
    while len(kept) > 1 and cells(kept) > room - 1:
        kept = kept[:-1]
    return f"{kept.rstrip()}…"


def _broken(line: Line, screen: Screen) -> Iterator[Spans]:
    match line:
        case Wrapped():
            yield from _wrapped(line, min(screen.width, WIDEST))
        case Typed():
            yield from _typed(line, screen)
        case _:
            yield line


def _wrapped(line: Wrapped, width: int) -> Iterator[Spans]:
    lead, blank = line.lead, " " * min(len(line.lead), max(2, width // 5))
    for paragraph in line.text.splitlines() or [""]:
        pieces = textwrap.wrap(
            paragraph,
            max(width, len(lead) + _NARROWEST),
            initial_indent=" " * len(lead),
            subsequent_indent=blank,
            break_long_words=False,
            break_on_hyphens=False,
        )
        for piece in pieces or [lead]:
            yield [("dim" if line.lead.strip() else "", lead), (line.style, piece[len(lead) :])]
            lead = blank


def _typed(line: Typed, screen: Screen) -> Iterator[Spans]:
    pieces = [line.command]
    room = max(_NARROWEST, screen.width - len(line.lead))
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
        lead = " " * len(line.lead)
    last = [("bold", lead), (line.style, pieces[-1])]
    if line.about and cells(f"{lead}{pieces[-1]}   {line.about}") <= screen.width:
        yield [*last, ("dim", f"   {line.about}")]
        return
    yield last
    if line.about:
        yield from _wrapped(Wrapped(line.about, " " * len(line.lead), "dim"), screen.width)
