"""Of cases that are much alike some are tried each time, the others where `-m thorough` asks for them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def often(cases: Iterable[Any], one_in: int = 3) -> list[Any]:
    """One of so many, the first among them; the others are marked thorough."""
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)), marks=[pytest.mark.thorough] if at % one_in else []
        )
        for at, case in enumerate(cases)
    ]
