"""Of cases that are much alike some are tried each time, the others where `-m thorough` asks for them."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil
from random import Random
from typing import Any

import pytest


def often(cases: Iterable[Any], one_in: int = 3) -> list[Any]:
    """One of so many, the first and others that were drawn once; the rest are marked thorough."""
    each = [case if isinstance(case, tuple) else (case,) for case in cases]
    kept = {0, *Random(0).sample(range(1, len(each)), ceil(len(each) / one_in) - 1)}
    return [pytest.param(*case, marks=[] if at in kept else [pytest.mark.thorough]) for at, case in enumerate(each)]
