"""The terminal: text out, how wide and whether in colour."""

from __future__ import annotations

import codecs
import errno
import io
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from ..errors import UserError
from ..model.printable import printable
from ..model.said import said

if TYPE_CHECKING:
    from ...reports.painting import Line, Screen

LINKING = ("iTerm.app", "WezTerm", "ghostty", "mintty")  # values of TERM_PROGRAM


# What a terminal without Unicode shows in the place of a character, as old consoles of Windows have their own.
LIKE = {"\u2026": "...", "\xb7": "-", "\u2014": "-", "\u2013": "-", "\xd7": "x", "\u2192": "->", "\u2019": "'"}
PLAIN = "zdoctor.plain"


def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(LIKE.get(one, "?") for one in error.object[error.start : error.end]), error.end


codecs.register_error(PLAIN, _plain)


def make_printable(*streams: TextIO | None) -> None:
    """What a stream cannot show becomes what is like it, and is no reason to fail."""
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=PLAIN)


def emit(text: str, file: str | None = None, spare: str | Sequence[str] = ()) -> None:
    """To standard output or to a file, which must be none of `spare`."""
    if file is None:
        _write_out(text)
        return
    for looked_at in (spare,) if isinstance(spare, str) else spare:
        with suppress(OSError):
            if os.path.samefile(file, looked_at):
                raise UserError(
                    f"{file} is what was looked at; the report would replace it.", "Name another file after -o."
                )
    try:
        Path(file).write_text(text, encoding="utf-8", errors="replace")
    except OSError as error:
        raise UserError(f"{file} cannot be written: {error.strerror}.") from None


def _write_out(text: str) -> None:
    """To standard output. A reader who has gone away or was never there changes no exit code."""
    if sys.stdout is None:
        return
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.write(text.encode(encoding, PLAIN).decode(encoding))
        sys.stdout.flush()
    except OSError as error:
        # what is still buffered would fail once more at the end of the process
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        # Windows says of a pipe that nobody reads: invalid argument
        gone = isinstance(error, BrokenPipeError) or (sys.platform == "win32" and error.errno == errno.EINVAL)
        if not gone:
            raise UserError(f"The output cannot be written: {error.strerror}.") from None


def say(text: str) -> None:
    """A line for a person, in their language, to standard output; empty lines may stand around it."""
    core = text.strip("\n")
    _write_out(f"{text.replace(core, printable(said(core)), 1)}\n")


def tell(text: str) -> None:
    """What zdoctor says beside its report, to standard error."""
    print(f"zdoctor: {printable(said(text))}", file=sys.stderr, flush=True)


def complain(error: UserError) -> None:
    """What is wrong and what to type, to standard error."""
    tell(str(error))
    if error.hint:
        print(f"  {printable(said(error.hint))}", file=sys.stderr)


def show(lines: Iterable[Line]) -> None:
    """A report for a person, to standard output."""
    from ...reports.painting import paint

    emit(paint(lines, screen()))


def screen(stream: TextIO | None = None) -> Screen:
    """The terminal of a stream, of standard output where none is named."""
    from ...reports.painting import Screen

    stream = stream or sys.stdout
    columns, height = _size()
    if not _shows(stream, "\u2026"):
        columns -= len(LIKE["\u2026"]) - 1  # of a line that is cut off at the last column
    # a pipe has no width that a command must be broken for, and cmd and PowerShell go on by other characters
    goes_on = "\\" if os.name != "nt" and stream is not None and stream.isatty() else ""
    folder = os.getcwd() if stream is not None and stream.isatty() and has_links(os.environ) else ""
    return Screen(columns, height, color(stream), goes_on, folder)


def has_links(environ: Mapping[str, str]) -> bool:
    """Whether the terminal, by what it sets, is one that shows links (OSC 8); multiplexers may not pass them on.

    VS Code's opens a file at the line that stands behind its name, and only where that is no link already.
    """
    editor = environ.get("TERM_PROGRAM") == "vscode"
    if editor or "TMUX" in environ or environ.get("TERM", "").startswith(("screen", "dumb")):
        return False
    version = environ.get("VTE_VERSION", "")  # of GNOME's and others, from 0.50 on
    named = environ.get("TERM_PROGRAM") in LINKING or "WT_SESSION" in environ or "KITTY_WINDOW_ID" in environ
    return named or (version.isdecimal() and int(version) >= 5000)


def _shows(stream: TextIO | None, character: str) -> bool:
    try:
        character.encode(getattr(stream, "encoding", None) or "utf-8")
    except (UnicodeError, LookupError):
        return False
    return True


def is_terminal() -> bool:
    """Whether somebody reads standard output as it comes."""
    return sys.stdout is not None and sys.stdout.isatty()


def clear() -> None:
    """An empty screen, where the terminal can; what was on it before is not kept above it."""
    if shows_color(sys.stdout):
        print("\x1b[H\x1b[2J\x1b[3J", end="", flush=True)


def width() -> int:
    return _size()[0]


def _size() -> tuple[int, int]:
    from shutil import get_terminal_size  # brings three compression libraries along

    columns, height = get_terminal_size((100, 24))
    return max(20, min(columns, 120)), height


def color(stream: TextIO | None) -> bool:
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or shows_color(stream)


def shows_color(stream: TextIO | None) -> bool:
    """Whether it is a terminal that colours what is between escape sequences."""
    return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb" and _takes_escapes(stream)


def _takes_escapes(stream: TextIO) -> bool:
    """The older console of Windows shows them as they are unless it is asked to obey them."""
    if sys.platform == "win32":
        import ctypes
        import msvcrt
        from ctypes import wintypes

        kernel, mode = ctypes.WinDLL("kernel32"), wintypes.DWORD()
        screen = wintypes.HANDLE(msvcrt.get_osfhandle(stream.fileno()))
        asked = kernel.GetConsoleMode(screen, ctypes.byref(mode))
        return bool(asked and kernel.SetConsoleMode(screen, mode.value | 4))  # ENABLE_VIRTUAL_TERMINAL_PROCESSING
    return True
