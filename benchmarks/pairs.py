"""Plant every two of a trainer's faults together in one patient, and count what is found, said and repaired.

    python benchmarks/pairs.py [SETUP …] [--from NUMBER]

Without a name, all setups, minutes each on one core; from the pair of that number on, where a run was stopped there.
Nothing is synchronized to the disk: no kill is measured here. Two faults that are found and repaired as if each were
alone, in files of their own or each by other keys of one, are not repaired once more.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from zdoctor.tests.pairs.judge import Setup, Ward, serve
from zdoctor.tests.pairs.setups import SETUPS


def count(setup: Setup, folder: Path, first: int) -> None:
    """Try every pair of a setup from that number on, and print the counts and all that is wrong."""
    begun = time.perf_counter()
    ward = Ward(setup, folder)
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    with serve(ward) as hub:
        os.environ["HF_ENDPOINT"] = hub.url
        gc.collect()
        gc.freeze()  # what stays is not searched for garbage
        for verdict in ward.pairs(lambda number: number >= first):
            if isinstance(verdict, tuple):
                counts["apart"] += 1
                continue
            counts["pairs"] += 1
            counts[", ".join(sorted(verdict.fates))] += 1
            counts["objections"] += bool(verdict.objections)
            names = " + ".join(fault.name for fault in verdict.faults)
            for fault, fate in zip(verdict.faults, verdict.fates, strict=True):
                if fate == "missed":
                    wrong.append(f"{names}: {fault.name} is missed")
            wrong += [f"{names}: {text}" for text in verdict.objections]
            if counts["pairs"] % 50 == 0:
                print(f"{counts['pairs']} pairs, {len(wrong)} lines about them", *wrong, file=sys.stderr, flush=True)
    missed = sum(number for what, number in counts.items() if "missed" in what)
    print(f"{setup.name}: {len(setup.faults)} faults; {time.perf_counter() - begun:.0f} s")
    print(f"  {counts['pairs']} pairs, {counts['apart']} that cannot be together")
    print(f"  both found: {counts['found, found']}")
    print(f"  one found, the other said not to be looked at: {counts['found, not looked at']}")
    print(f"  neither looked at: {counts['not looked at, not looked at']}")
    print(f"  one missed: {missed}")
    print(f"  objections to the repairs: {counts['objections']}")
    print(*(f"  {line}" for line in wrong), sep="\n")


def main(names: list[str], first: int) -> None:
    os.fsync = lambda fd: None
    with tempfile.TemporaryDirectory(prefix="zdoctor-pairs-") as folder:
        os.environ["ZDOCTOR_STATE"] = f"{folder}/state"
        for setup in SETUPS:
            if not names or setup.name in names:
                count(setup, Path(folder) / setup.name, first)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--from", type=int, default=0, dest="first")
    asked = parser.parse_args()
    main(asked.names, asked.first)
