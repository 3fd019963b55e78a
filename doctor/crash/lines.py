"""A log as a person read it on the screen: no escape codes, of each progress bar the last state."""

from __future__ import annotations

import re

# CSI and OSC sequences, and the two-character ones.
_ESCAPES = re.compile(r"\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_CONTROLS = dict.fromkeys((*range(8), 11, 12, *range(14, 32), 127))
LONGEST = 4000
# "[rank0]: ", "2026-11-21 10:00:00,123 ", "worker-1 | ": what launchers put before each line.
_LEAD = re.compile(r"(?:\[rank\d+\]:\s?|\[default\d+\]:\s?|\S{1,40} \| )")


def clean(text: str) -> list[str]:
    """The lines of a log without escape codes and control characters; each shortened to LONGEST characters."""
    made = []
    for line in _ESCAPES.sub("", text).replace("\r\n", "\n").split("\n"):
        seen = line.rstrip("\r").rpartition("\r")[2].translate(_CONTROLS)[:LONGEST]
        made.append(_LEAD.sub("", seen, count=1) if seen[:1] == "[" or " | " in seen[:44] else seen)
    return made
