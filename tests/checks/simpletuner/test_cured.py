"""What the repairs make of a config of SimpleTuner, in every format."""

from __future__ import annotations

import json
from typing import Any

import pytest

from zdoctor.doctor.configs.edit import apply_edits
from zdoctor.doctor.model import ReplaceText, Report, SetValue

from .runs import HEALTHY, ids, looked_at


def cured(
    config: dict[str, Any], path: str = "/st/config/config.json", text: str | None = None
) -> tuple[str, Report]:
    """The config's text after every repair that needs no asking, or would be said yes to; and what is said then."""
    text = text or json.dumps({name: value for name, value in config.items() if value is not ...}, indent=1)
    for _ in range(3):
        report = looked_at({}, path=path, text=text)
        steps = [fix.steps for finding in report.findings for fix in finding.fixes if fix.steps]
        mine = [step for step in (steps[0] if steps else ()) if isinstance(step, SetValue | ReplaceText)]
        if not mine:
            break
        text = apply_edits(text, mine)
    return text, looked_at({}, path=path, text=text)


def test_the_quickstart_is_put_right() -> None:
    """The trainer's own guide, with what its parser refuses."""
    quickstart = {**HEALTHY, "model_family": "z-image", "base_model_precision": "int8", "num_train_epochs": ...}
    text, after = cured(quickstart)
    made = json.loads(text)
    assert (made["model_family"], made["num_train_epochs"]) == ("z_image", 0)
    assert made["base_model_precision"] == "int8-torchao"
    assert ids(after) == []


@pytest.mark.parametrize(
    ("path", "before", "after"),
    [
        ("c/config.json", '{"--model_family": "flux", "--max_train_steps": 5}', '"--num_train_epochs": 0'),
        ("c/config.toml", 'model_family = "flux"\nmax_train_steps = 5 # few\n', "\nnum_train_epochs = 0\n"),
        ("c/config.env", "export MODEL_FAMILY=flux\nMAX_NUM_STEPS=5\n", "\nexport NUM_EPOCHS='0'\n"),
        (
            "c/config.toml",
            'model_family = "flux"\ngradient_checkpointing = "false"\n',
            "\ngradient_checkpointing = false",
        ),
    ],
)
def test_repairs_in_every_format(path: str, before: str, after: str) -> None:
    text, report = cured({}, path, before)
    assert after in text
    assert not {"SIM001", "SIM002"} & set(ids(report))
