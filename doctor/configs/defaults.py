"""Whether a written value is one that changes nothing, and how it is named in a sentence."""

from __future__ import annotations

from typing import Any


def same(value: Any, other: Any) -> bool:
    """Whether two values are the same words of a command line; false, 0 and none are nothing."""
    nothing: tuple[Any, ...] = (None, False, "false", "False", "0", "none", "None", "", [], {})
    if value in nothing:
        return other in nothing or other == 0
    try:
        return float(value) == float(other)
    except (TypeError, ValueError):
        return str(value).lower() == str(other).lower()


def short(value: Any) -> str:
    """A value in a sentence."""
    return (
        "…" if isinstance(value, dict | list) else str(value).lower() if isinstance(value, bool) else str(value)[:40]
    )
