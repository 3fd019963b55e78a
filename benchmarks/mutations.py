"""Misspell every key and every choice of the trainers' own example configs, one at a time, and count what is caught.

    python benchmarks/mutations.py ../shared/corpus

Each name in four ways: a letter lost, two swapped, one doubled, - for _. Minutes.
"""

from __future__ import annotations

import sys
from pathlib import Path

from zdoctor.tests.checks.mutations import KINDS, Score, judge, slips


def main(corpus: Path) -> None:
    for trainer, pattern in (("ai-toolkit", "*.y*ml"), ("simpletuner", "config.json")):
        scores = {"key": Score(), "value": Score()}
        for path in sorted((corpus / trainer).rglob(pattern)):
            for slip in slips(path, KINDS, scores["key"]):
                judge(slip, scores[slip.what])
        for what, score in scores.items():
            print(f"{trainer}, {what}s: {score}")
            if "-v" in sys.argv:
                print(*sorted(set(score.missed)), sep="\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
