"""What is said before a run starts about settings that do something else here, or nothing."""

from __future__ import annotations

from zdoctor.doctor.train.settings.explain import explain

from ..patient import run_with, written


def test_a_validation_that_is_not_made_is_said() -> None:
    asked = {"validate_every_n_steps": 100, "validation_items": []}
    assert any("--eval N" in said for said in explain(run_with(settings=written(train__validation_config=asked))))
    assert not any("--eval" in said for said in explain(run_with()))
