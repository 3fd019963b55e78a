"""Crash logs: (the log, the first rule that finds its cause before the run, a word of what is said of it).

The rule or the word is "" where there is none.
"""

from __future__ import annotations

from . import ai_toolkit_files, ai_toolkit_values, machine, others

CASES = {**ai_toolkit_files.CASES, **ai_toolkit_values.CASES, **others.CASES, **machine.CASES}
