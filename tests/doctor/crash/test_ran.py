"""How far the training came before it failed, where the log certainly shows it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from zdoctor.doctor.cli import main
from zdoctor.doctor.crash import explain
from zdoctor.doctor.model.crashes import Ran

from .shapes import OOM, launcher, traceback
from .test_cases import SIGNATURES
from .worked import WORKED

FAILED = traceback(OOM, ("/t/train.py", "step", "loss.backward()"))
ODD = traceback("ValueError: it is odd", ("/t/train.py", "step", "mine(x)"))
STEPS = {
    "steps:   2%|2         | 12/520 [01:45<1:14:33,  8.81s/it, avr_loss=0.116]": (12, 520),
    "steps: 2% 12/520 [01:45<1:14:33, 8.81s/it, loss=0.116]": (12, 520),
    "[2026-01-01 10:00:00] [INFO] steps:   2%|2  | 12/520 [01:45<1:14:33,  8.81s/it, avr_loss=0.116]": (12, 520),
    "Steps: 100%|##########| 400/400 [10:00<00:00,  1.5s/it, loss=0.0312, lr=0.0001]": (400, 400),
    "cat:  37%|###7      | 740/2000 [20:00<30:00,  1.6s/it, lr: 1.0e-04 loss: 3.2e-01]": (740, 2000),
    "Epoch 1/16, Steps:  12%|#2  | 12/100 [00:30<03:00,  2.5s/it, lr=0.0001, step_loss=0.0123]": (12, 100),
    "59/5250[17:13<25:17:52,17.54s/it,lr=0.00035,step_loss=0.182]": (59, 5250),
    "steps:   0%|          | 0/1000 [00:00<?, ?it/s]": (0, 1000),
    "step 12/3000 loss: 0.231 lr: 1e-4": (12, 3000),
}
EPOCHS = {
    "epoch:   3%|3         | 3/100 [10:45<5:45:00, 215s/it]\nstep:  38%|###8      | 5/13 [00:45<01:10, 8.9s/it]": (
        3,
        100,
    ),
}
NO_STEPS = (
    "Loading checkpoint shards: 100%|##########| 2/2 [00:11<00:00,  5.6s/it]",
    "caching latents: 100%|##########| 20/20 [00:11<00:00,  1.6it/s]",
    "Generating Images: 100%|##########| 5/5 [00:35<00:00,  7.03s/it]",
    "100%|##########| 25/25 [00:56<00:00,  2.25s/it]",
    "Denoising steps:  50%|#####     | 10/20 [00:11<00:11,  1.1s/it]",
    "Epoch 2: 100%|##########| 40/40 [01:00<00:00,  1.5s/it, loss=0.11]",
    "Fetching 23 files:  13%|#3        | 3/23 [00:02<00:14,  1.35it/s]",
    "Epoch 2, step 12/40, loss 0.2",
    "evaluation step 3/10 val_loss 0.2",
)


def ran(log: str) -> Ran | None:
    told = explain(log, SIGNATURES)
    assert told.failure is not None
    return told.ran


@pytest.mark.parametrize("bar", STEPS)
@pytest.mark.parametrize("failure", [FAILED, ODD + launcher(1)])
def test_the_steps_that_were_done(bar: str, failure: str) -> None:
    assert ran(f"Loading\n{bar}\n{failure}") == Ran("steps", *STEPS[bar])
    assert ran(f"{bar}\nsaving checkpoint: o/cat.safetensors\n{NO_STEPS[2]}\n{failure}") == Ran("steps", *STEPS[bar])


@pytest.mark.parametrize("bar", list(STEPS)[:2])
def test_a_bar_that_is_left_behind_the_failure(bar: str) -> None:
    assert ran(f"{FAILED}\n{bar}\n") == Ran("steps", *STEPS[bar])
    assert ran(f"{FAILED.rstrip()} {bar}\n") == Ran("steps", *STEPS[bar])


@pytest.mark.parametrize("bar", EPOCHS)
def test_the_epochs_where_bars_of_steps_begin_anew_in_each(bar: str) -> None:
    assert ran(f"{bar}\n{FAILED}") == Ran("epochs", *EPOCHS[bar])


@pytest.mark.parametrize("bar", NO_STEPS)
def test_a_bar_of_anything_else_tells_nothing(bar: str) -> None:
    assert ran(f"{bar}\n{FAILED}") is None


@pytest.mark.parametrize(
    "start",
    [
        "(venv) ana@pc:~/sd-scripts$ accelerate launch train_network.py",
        "2026-11-21 10:00:00 INFO     Loading settings from config.toml           train_util.py:4745",
        "# Running job: dog",
        "***** Running training *****",
    ],
)
def test_the_steps_of_a_run_before_are_not_those_of_this_one(start: str) -> None:
    assert ran(f"{next(iter(STEPS))}\n{start}\nLoading the model\n{FAILED}") is None


@pytest.mark.parametrize("name", list(WORKED)[::7])
def test_without_a_failure_nothing_is_told(name: str) -> None:
    assert explain(WORKED[name], SIGNATURES).ran is None


@pytest.mark.parametrize(
    ("bar", "said"),
    [
        (0, "The run had done 12 of 520 steps."),
        (3, "All 400 steps were done before it failed: the training was complete."),
        (7, "The run ended before the first of its 1000 steps was done."),
    ],
)
def test_what_is_told_of_it(bar: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = list(STEPS)[bar]
    (log := tmp_path / "train.log").write_text(f"{line}\n{FAILED}")
    main(["explain", str(log)])
    assert said in " ".join(capsys.readouterr().out.split())
    main(["explain", str(log), "--format", "json"])
    done, of = STEPS[line]
    assert json.loads(capsys.readouterr().out)["ran"] == {"unit": "steps", "done": done, "of": of, "resumed": False}
    log.write_text(FAILED)
    main(["explain", str(log), "--format", "json"])
    assert json.loads(capsys.readouterr().out)["ran"] is None
