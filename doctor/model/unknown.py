"""The answer of whoever could not find out."""

from __future__ import annotations

from .record import dataclass


@dataclass(frozen=True)
class Unknown:
    """A fact that could not be established, and why. A rule that needs it is unknown too, never passed."""

    reason: str
