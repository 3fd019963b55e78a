"""Every precision of SimpleTuner has a size, but for one that keeps more than the weights."""

from __future__ import annotations

import pytest

from zdoctor.doctor.memory.bytes import QUANTIZED
from zdoctor.doctor.schema.tables import shipped
from zdoctor.tests.doctor.trainers.simpletuner.runs import run_of

SCHEMA = shipped("SimpleTuner")
assert SCHEMA is not None
LEVELS = SCHEMA.sections[""]["base_model_precision"].choices


@pytest.mark.parametrize("level", LEVELS)
def test_the_size_of_a_precision(level: str) -> None:
    kind = run_of({"base_model_precision": level}).recipe.precision.quantization
    assert kind is None if level == "no_change" else (kind in QUANTIZED) == (level != "fp8-transformerengine")
    bits = next((bits for bits in (16, 8, 6, 5, 4, 3, 2) if f"int{bits}" in level or f"fp{bits}" in level), 8)
    if kind in QUANTIZED and "int8dq-int4" not in level and "fp8-int4" not in level and "nf4" not in level:
        assert QUANTIZED[kind] == pytest.approx(bits / 8, abs=0.08)
