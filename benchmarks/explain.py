"""What `zdoctor explain` costs on logs of 100 MB: CPU seconds of the whole command, the least of three runs.

python benchmarks/explain.py FOLDER      FOLDER gets four logs of 100 MB, which are removed again
"""

from __future__ import annotations

import os
import random
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

SIZE = 100 << 20
END = b"""
Traceback (most recent call last):
  File "/x/ai-toolkit/run.py", line 3, in main
    transformer.to(device)
NotImplementedError: Cannot copy out of meta tensor; no data!
"""


def lines() -> Iterator[bytes]:
    """Bars, coloured lines, ranks and numbers that are exit codes elsewhere."""
    dice = random.Random(0)
    while True:
        n = dice.randrange(10**6)
        yield (
            f"steps:  {n % 100}%|#####     | {n}/1000000 [1:02:03<4:05:06,  1.21it/s, avr_loss=0.{n}]\r"
            f"\x1b[32m2026-11-21 10:00:00\x1b[0m INFO     epoch {n} step {n} loss: 0.{n} gpu 137 -9 exit\n"
            f"[rank{n % 4}]: step {n} grad_norm 0.{n} Traceback none\nWARNING: odd error: {n}\n"
        ).encode()


def training() -> Iterator[bytes]:
    size = 0
    for line in lines():
        yield line
        size += len(line)
        if size > SIZE:
            break
    yield END


LOGS = {
    "a training's output": training,
    "random bytes": lambda: (os.urandom(1 << 20) for _ in range(SIZE >> 20)),
    "zeros": lambda: (b"\0" * (1 << 20) for _ in range(SIZE >> 20)),
    "one line": lambda: (b"a" * (1 << 20) for _ in range(SIZE >> 20)),
}


def cpu(log: Path) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "zdoctor", "explain", str(log)], stdout=subprocess.DEVNULL, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(folder: Path) -> None:
    for name, made in LOGS.items():
        log = folder / "zdoctor-benchmark.log"
        with log.open("wb") as file:
            file.writelines(made())
        size = log.stat().st_size
        print(f"{name:<20} {size / 2**20:6.0f} MiB  {min(cpu(log) for _ in range(3)):5.2f} CPU-s", flush=True)
        log.unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
