"""Milliseconds from a keystroke to the marks of `zdoctor lsp`, in a config of 200 lines.

    python benchmarks/editor.py [CHANGES]

A real session by pygls' own client: each change is sent when the marks of the one before are there. Bar: 100 ms.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path

from zdoctor.tests.configs_on_disk import write_config
from zdoctor.tests.doctor.editor.test_server import Editor

LINES = 200


def long_config(folder: Path) -> Path:
    """A config with as many datasets as make it so long."""
    file = write_config(folder)
    head, first, rest = file.read_text().partition("        - folder_path:")
    dataset, mark, tail = (first + rest).partition("      train:")
    count = (LINES - head.count("\n") - tail.count("\n")) // dataset.count("\n")
    file.write_text(head + dataset * count + mark + tail)
    return file


async def measured(file: Path, changes: int) -> list[float]:
    editor = Editor(file)
    await editor.begin()
    await editor.open()
    taken = []
    for number in range(changes):
        started = time.perf_counter()
        editor.write(editor.text.replace("steps: 4", f"steps: {40 + number}").replace("name: tiny", "name: tinyer"))
        await editor.marks()
        taken.append(1000 * (time.perf_counter() - started))
    await editor.end()
    return taken


def main() -> None:
    changes = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    with tempfile.TemporaryDirectory() as name:
        file = long_config(Path(name))
        lines = file.read_text().count("\n")
        taken = sorted(asyncio.run(measured(file, changes)))
    print(
        f"{lines} lines, {changes} changes: median {statistics.median(taken):.0f} ms, "
        f"least {taken[0]:.0f}, most {taken[-1]:.0f}"
    )


if __name__ == "__main__":
    main()
