"""Seconds per step of zdoctor, diffusers' own Z-Image example and ai-toolkit, step by step in turn.

    python benchmarks/turns.py [--diffusers DIR] [--ai-toolkit DIR [--ai-toolkit-python PYTHON]] [--steps N]

Who runs and what: contenders.py. All are started, and each is stopped (SIGSTOP) but while its turn lasts, which is
one step; the order turns round each time. So each step is compared with one of the others from the same seconds, and
a machine whose memory is now faster and now slower, as with other guests on one host, is so for all of them. The
first two steps of each are left out. Seconds are those that a contender was let run. Linux only.
"""

from __future__ import annotations

import os
import signal
import statistics
import tempfile
import time
from pathlib import Path

from contenders import Contender, Running, asked, build, contenders, spread, told

DROPPED = 2


class Turns:
    """A contender that runs only in its turns; `done` are its own seconds at the end of each step."""

    def __init__(self, contender: Contender, folder: Path, threads: int) -> None:
        self.running = Running(contender, folder, threads)
        self.done: list[float] = []
        self.before = 0.0

    def turn(self, step: int) -> None:
        """Let it run until it has done so many steps. RuntimeError with the end of its output when it ends."""
        group = self.running.process.pid
        begin = time.monotonic()
        os.killpg(group, signal.SIGCONT)
        while self.running.steps() < step:
            if self.running.process.poll() is not None:
                raise RuntimeError(self.running.last_words())
            time.sleep(0.003)
        self.done.append(self.before + time.monotonic() - begin)
        os.killpg(group, signal.SIGSTOP)
        self.before += time.monotonic() - begin

    def seconds(self) -> list[float]:
        return [after - before for before, after in zip(self.done, self.done[1:], strict=False)]


def main() -> None:
    words = asked(("--steps", 40, "of each"))
    steps, words.steps = words.steps, words.steps + DROPPED + 2  # none comes to its end
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print(told(build(folder)))
        wanted = contenders(folder, folder / "kept", words)
        del wanted["zdoctor int8, second start"]  # trains as the first does
        found: dict[str, Turns] = {}
        try:
            for what, contender in wanted.items():
                found[what] = Turns(contender, folder / what.replace(" ", "-"), words.threads)
                found[what].turn(DROPPED)
            for step in range(DROPPED + 1, DROPPED + 1 + steps):
                for what in list(found)[:: 1 if step % 2 else -1]:
                    found[what].turn(step)
        finally:
            for turns in found.values():
                turns.running.end()
        seconds = {what: turns.seconds() for what, turns in found.items()}
    print("\nseconds a step, median (min, max)")
    for what, own in seconds.items():
        print(f"    {what:16} {spread(own)}, n={len(own)}")
    for theirs in (name for name in seconds if not name.startswith("zdoctor")):
        for mine in (name for name in seconds if name.startswith("zdoctor")):
            ratios = [a / b for a, b in zip(seconds[mine], seconds[theirs], strict=True)]
            middle = statistics.median(ratios)
            low, _, high = statistics.quantiles(ratios, n=4)
            verdict = "met" if middle <= 1 else "MISSED"
            print(f"{mine} / {theirs}: {middle:.3f} (quarters {low:.3f}, {high:.3f})  bar 1  {verdict}")


if __name__ == "__main__":
    main()
