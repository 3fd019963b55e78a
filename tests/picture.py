"""The picture of a terminal in the README: what a check of the example really prints, drawn by rich as SVG."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from zdoctor.doctor.commands.examined import examined
from zdoctor.doctor.model.record import replace
from zdoctor.reports import terminal
from zdoctor.reports.painting import Screen, paint

CONFIG, MACHINE = "examples/kaggle_zimage.yaml", "examples/kaggle_t4x2.json"
COLUMNS, ROWS = 80, 24
MILLISECONDS = 241.0  # measured once; each check takes another time
# Background, text, eight colours and the eight brighter ones: each readable (4.5 : 1) on the background.
THEME = TerminalTheme(
    (27, 29, 34),
    (222, 222, 216),
    [
        *((108, 112, 120), (255, 110, 106), (126, 200, 110), (226, 182, 80)),
        *((112, 170, 240), (208, 140, 232), (92, 196, 200), (222, 222, 216)),
    ],
)


def picture() -> str:
    """The first error with its line and repair, and the last screen's end, as an SVG that loads nothing."""
    seen = examined(CONFIG, machine=MACHINE)
    report = replace(seen.report, elapsed_ms=MILLISECONDS)
    screen = Screen(COLUMNS, ROWS, color=True, goes_on="\\")
    lines = paint(terminal.lines(report, screen, config=seen.written), screen).splitlines()
    plain = [Text.from_ansi(line).plain for line in lines]
    first = next(n for n, line in enumerate(plain) if line.startswith("error "))
    end = plain.index("", first)
    last = max(n for n, line in enumerate(plain) if line.startswith("error ") and plain[n - 1] == "")
    return _drawn([*lines[first:end], "…", *lines[last:]])


def _drawn(lines: Sequence[str]) -> str:
    console = Console(
        record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, legacy_windows=False, highlight=False
    )
    console.print(Text(f"$ zdoctor check {CONFIG} --machine {MACHINE}", "bold"), soft_wrap=True)
    console.print()
    for line in lines:
        console.print(Text.from_ansi(line), soft_wrap=True)
    drawn = console.export_svg(title="zdoctor", theme=THEME, unique_id="zdoctor")
    # rich loads its font from elsewhere; any other that is monospaced is stretched to the columns
    drawn = re.sub(r"<!--.*?-->\s*", "", drawn, flags=re.S)
    drawn = re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.S)
    drawn = drawn.replace("Fira Code, monospace", "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace")
    return "\n".join(line.rstrip() for line in drawn.splitlines()) + "\n"


def words_of(drawn: str) -> list[str]:
    """What is written in such a picture, piece by piece."""
    return re.findall(r"<text[^>]*>(.*?)</text>", drawn)
