"""The list of configs found outside: each named once, halved by a hash that nobody chose, and a fresh draw."""

from __future__ import annotations

import hashlib
from pathlib import Path

LINES = (Path(__file__).parent.parent / "benchmarks" / "corpus.tsv").read_text(encoding="utf-8").splitlines()[1:]


def test_the_list_of_configs() -> None:
    rows = [line.split("\t") for line in LINES]
    assert len(rows) >= 400 and len({(repository, path, block) for _, _, repository, _, path, block in rows}) == len(
        rows
    )
    later: dict[str, set[str]] = {}  # G took files that E had left in some of its repositories
    for draw, _, repository, *_ in rows:
        if draw not in "AB":
            later.setdefault(repository, set()).add(draw)
    assert all([half for half, *_ in rows].count(draw) >= 40 for draw in set().union(*later.values()))
    for half, _, repository, commit, path, block in rows:
        name = f"{repository}/{path}" + (f"/{block[4:]}" if block.startswith("job ") else "")
        by_hash = "AB"[hashlib.sha256(name.encode()).digest()[0] % 2]
        assert half in later.get(repository, ()) or half == by_hash, name
        assert len(commit) == 40
