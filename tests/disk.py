"""Whether what tests write is forced to the disk, which takes milliseconds each time."""

from __future__ import annotations

import os
from typing import Any

forced = os.fsync


def unforced(descriptor: Any) -> None:
    """In the place of os.fsync in the tests' own process; a program that they start forces to the disk as ever."""
