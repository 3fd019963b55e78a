"""What it costs to know a trainer's keys: the shipped table, a checkout mined, a checkout that was mined before.

    python benchmarks/schema.py path/to/ai-toolkit [path/to/SimpleTuner …]

CPU and wall time in milliseconds, in a process that has everything imported, as in a check; medians of 9 (max).
"""

from __future__ import annotations

import gc
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from zdoctor.doctor.schema.checkouts import recognised
from zdoctor.doctor.schema.tables import cached, shipped
from zdoctor.doctor.trainers import names

LOOKED_AT = ("", "train", "model", "network", "save", "sample", "datasets/*")


def timed(action: Callable[[], object], rounds: int = 9) -> str:
    cpu: list[float] = []
    wall: list[float] = []
    for _ in range(rounds):
        gc.collect()
        gc.disable()
        started = time.process_time(), time.perf_counter()
        action()
        cpu.append((time.process_time() - started[0]) * 1000)
        wall.append((time.perf_counter() - started[1]) * 1000)
        gc.enable()
    return f"{statistics.median(cpu):.1f} ({max(cpu):.1f}) CPU, {statistics.median(wall):.1f} ({max(wall):.1f}) wall"


def table(trainer: str) -> None:
    schema = shipped(trainer)
    assert schema is not None
    for at in LOOKED_AT:
        schema.section(at)


def main(checkouts: list[Path]) -> None:
    for trainer in names():
        print(f"{trainer}, shipped table: {timed(lambda name=trainer: table(name))}")  # type: ignore[misc]
    for root in checkouts:
        trainer = recognised(root) or ""
        print(f"{trainer}, mined: {timed(lambda at=root: checkouts.mine(at))}")  # type: ignore[misc]
        with tempfile.TemporaryDirectory() as state:
            again = lambda at=root, name=trainer: cached(at, name, Path(state))  # noqa: E731
            again()
            print(f"{trainer}, mined before: {timed(again)}")


if __name__ == "__main__":
    main([Path(word) for word in sys.argv[1:]])
