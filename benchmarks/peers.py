"""A LoRA run of zdoctor beside diffusers' own Z-Image example and ai-toolkit, on the CPU, whole processes in turn.

    python benchmarks/peers.py [--diffusers DIR] [--ai-toolkit DIR [--ai-toolkit-python PYTHON]]
                               [--repeats N] [--steps N] [--threads N]

Who runs and what: contenders.py. Each run takes --steps steps (14), the first two intervals left out. Every start
finds files in the page cache, but none of its own caches; only "second start" finds the quantized weights that an
earlier zdoctor run kept. Steps are better compared by turns.py, which has the same weather for all.

Seconds are those of the wall and of the processor; "first step" is from the start of the process to the end of the
first step. Peaks are of the whole process: resident memory from the kernel (VmHWM), anonymous (RssAnon) sampled every
10 ms. Processes that a contender starts are counted with it: their processor time, and what they do not share with
others of their memory, sampled four times a second. Linux only.
"""

from __future__ import annotations

import contextlib
import os
import re
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from contenders import Contender, Running, asked, build, contenders, ours, spread, told
from load import status

DROPPED = 2
TICKS = os.sysconf("SC_CLK_TCK")
# Seconds between two looks at the memory of a contender's own processes: each stops them for milliseconds.
RARELY = 0.25


@dataclass
class Result:
    """One whole process: when each step was done and how much processor time had gone by then (from its start)."""

    done: dict[int, tuple[float, float]] = field(default_factory=dict)
    resident: int = 0
    anonymous: int = 0

    @property
    def first(self) -> tuple[float, float]:
        return self.done[1]

    @property
    def steps(self) -> list[tuple[float, float]]:
        """Wall and CPU seconds of each step after the first ones."""
        pairs = [(self.done[n - 1], self.done[n]) for n in sorted(self.done) if n - 1 in self.done]
        return [(b[0] - a[0], b[1] - a[1]) for a, b in pairs[DROPPED:]]


def measure(contender: Contender, folder: Path, threads: int) -> Result:
    """Run one contender to its end. RuntimeError with the end of its output when it fails."""
    result = Result()
    begin = time.monotonic()
    running = Running(contender, folder, threads)
    process = running.process
    own: list[tuple[int, int]] = []
    due = 0.0
    try:
        while process.poll() is None:
            with contextlib.suppress(OSError, KeyError):  # it ends
                memory = status(process.pid)
                if time.monotonic() >= due:
                    own = [alone(helper) for helper in helpers(process.pid)]
                    due = time.monotonic() + RARELY
                beside = memory["VmRSS"] + sum(private for private, _ in own)
                result.resident = max(result.resident, memory["VmHWM"], beside)
                result.anonymous = max(result.anonymous, memory["RssAnon"] + sum(anonymous for _, anonymous in own))
            if running.steps() > len(result.done):
                at = (time.monotonic() - begin, cpu(process.pid))
                for number in range(len(result.done) + 1, running.steps() + 1):
                    result.done[number] = at
            time.sleep(0.01)
    finally:
        running.end()
    if process.returncode or not result.steps:
        raise RuntimeError(running.last_words())
    return result


def helpers(process: int) -> list[int]:
    """The processes that its main thread has started and that have not ended."""
    return [int(word) for word in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def alone(process: int) -> tuple[int, int]:
    """Bytes of its memory that no other process shares, and of its anonymous memory; none when it is gone."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()[1:]
    except OSError:
        return 0, 0
    fields = {line.split(":")[0]: int(line.split()[1]) << 10 for line in lines}
    return fields["Private_Clean"] + fields["Private_Dirty"], fields["Anonymous"]


def cpu(process: int) -> float:
    """Processor seconds of a process and of those it started so far; NaN when it is gone."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        running = sum(map(cpu, helpers(process)))
    except OSError:
        return float("nan")
    return sum(map(int, fields[11:15])) / TICKS + running


def show(found: dict[str, list[Result]]) -> None:
    print("\nmedian (min, max)")
    for name, results in found.items():
        wall, used = zip(*[pair for result in results for pair in result.steps], strict=True)
        first, first_used = zip(*[result.first for result in results], strict=True)
        print(f"{name}, {len(results)} runs")
        print(f"    step           {spread(wall)} s, CPU {spread(used)} s, n={len(wall)}")
        print(f"    first step     {spread(first, 2)} s, CPU {spread(first_used, 2)} s")
        print(f"    peak resident  {spread([r.resident / 2**20 for r in results], 0)} MiB")
        print(f"    peak anonymous {spread([r.anonymous / 2**20 for r in results], 0)} MiB")


def compare(found: dict[str, list[Result]], mine: str, theirs: str, start: float) -> None:
    """Ratios of runs of the same round against the bars; `start`: the bar for the first step."""
    if mine not in found or theirs not in found:
        return
    middle: Callable[[Result], float] = lambda result: statistics.median(s for s, _ in result.steps)  # noqa: E731
    used: Callable[[Result], float] = lambda result: statistics.median(c for _, c in result.steps)  # noqa: E731
    measures: list[tuple[str, Callable[[Result], float], float]] = [
        ("step, wall", middle, 1.0),
        ("step, CPU", used, 1.0),
        ("first step, wall", lambda result: result.first[0], start),
        ("first step, CPU", lambda result: result.first[1], start),
        ("peak resident", lambda result: result.resident, 0.75),
        ("peak anonymous", lambda result: result.anonymous, 0.75),
    ]
    print(f"\n{mine} / {theirs}")
    for name, of, bar in measures:
        ratios = [of(a) / of(b) for a, b in zip(found[mine], found[theirs], strict=False)]
        verdict = "met" if statistics.median(ratios) <= bar else "MISSED"
        print(f"    {name:18} {spread(ratios, 2):22} bar {bar:.2f}  {verdict}")


def main() -> None:
    words = asked(("--repeats", 3, "of each"), ("--steps", 14, "at least 5"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        kept = folder / "kept"
        print(told(build(folder)))
        wanted = contenders(folder, kept, words)
        time.sleep(2.5)  # files younger than two seconds are not taken for settled
        measure(ours(folder, 5, "int8", kept), folder / "warm", words.threads)  # fills the page cache and `kept`
        found: dict[str, list[Result]] = {}
        for turn in range(words.repeats):
            order = list(wanted.items())
            for what, contender in order if turn % 2 == 0 else order[::-1]:
                load = os.getloadavg()[0]
                try:
                    result = measure(contender, folder / f"{turn}-{re.sub('[ ,]+', '-', what)}", words.threads)
                except RuntimeError as error:
                    print(f"skipped: {what} does not run here: {error}", flush=True)
                    del wanted[what]
                    found.pop(what, None)
                    continue
                found.setdefault(what, []).append(result)
                print(
                    f"round {turn + 1}  {what:28} step {statistics.median(s for s, _ in result.steps):.3f} s  "
                    f"first {result.first[0]:6.2f} s  resident {result.resident >> 20} MiB  "
                    f"anonymous {result.anonymous >> 20} MiB  load before {load:.2f}",
                    flush=True,
                )
        show(found)
        for mine in ("zdoctor bf16", "zdoctor int8", "zdoctor int8, second start"):
            compare(found, mine, "diffusers bf16", 0.8)
        for mine in ("zdoctor bf16", "zdoctor int8"):
            compare(found, mine, "ai-toolkit bf16", 0.3)


if __name__ == "__main__":
    main()
