"""What a path is by the look of it."""

from __future__ import annotations

import re

from .pattern import pattern

PLACEHOLDER = pattern(r"^/?path/to\b|^[A-Za-z]:[\\/]+path[\\/]+to\b|\byour[-_ ]|^<.*>$|\bpath/to/", re.IGNORECASE)
DRIVE = pattern(r"^[A-Za-z]:[\\/]|^\\\\")
