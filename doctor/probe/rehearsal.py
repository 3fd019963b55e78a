"""A training step without data, made in a child process: torch may be absent, or of another version."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from ..memory.rehearsal import Question
from ..model import Unknown
from ..model.memory import Rehearsed

_TAIL = 300


def rehearse(question: Question, deadline: float) -> Rehearsed | Unknown:
    """What the step held; Unknown with the reason where it could not be made in `deadline` seconds."""
    words = [sys.executable, "-m", "zdoctor.doctor.train.rehearsal.program"]
    try:
        child = subprocess.run(words, input=question.as_json(), capture_output=True, text=True, timeout=deadline)
    except subprocess.TimeoutExpired:
        return Unknown(f"the rehearsal did not end within {deadline:g} s")
    try:
        told: dict[str, Any] = json.loads(child.stdout)
    except ValueError:
        return Unknown(f"the rehearsal ended with code {child.returncode}: {child.stderr.strip()[-_TAIL:]}")
    if failed := told.get("failed"):
        return Unknown(f"the step could not be rehearsed here: {failed}")
    return Rehearsed(told["peak"], told["static"], told["at_peak"], told["seconds"], told["reserved"])
