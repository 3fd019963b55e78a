"""TensorBoard where it is installed, W&B when the config asks; a program that is missing is said once."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from zdoctor.doctor.train import TrainError

from .patient import Recorder, go, run_with, written

# What W&B's client is asked, written to a file; no account is needed for that.
CLIENT = """
import json
LOG = {log!r}
class Run:
    def log(self, values, step): put("log", step, sorted(values))
    def finish(self): put("finish")
def put(*what):
    with open(LOG, "a") as file: file.write(json.dumps(what) + chr(10))
def init(**words):
    if words["project"] == "forbidden": raise RuntimeError("api_key not configured")
    put("init", words["project"], words["name"], words["id"], words["resume"], words["config"]["rank"])
    return Run()
"""


def test_without_tensorboard_the_run_says_so_once(tiny: Path, circles: Path, tmp_path: Path) -> None:
    if importlib.util.find_spec("tensorboard"):
        pytest.skip("TensorBoard is installed here")
    recorder = Recorder()
    go(run_with(steps=2), tiny, circles, tmp_path, progress=recorder)
    assert sum("pip install tensorboard" in note for note in recorder.notes) == 1


def test_tensorboard_has_every_step_once(tiny: Path, circles: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    accumulator: Any = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")
    for steps in (2, 4):
        result = go(run_with(steps=steps), tiny, circles, tmp_path, held_out=1)
    events = accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [event.step for event in events.Scalars("loss")] == [1, 2, 3, 4]
    assert [event.value for event in events.Scalars("loss")] == pytest.approx(result.losses)
    assert events.Scalars("eval_loss")[0].step == 0


def test_wandb_that_is_asked_for_and_not_there_ends_the_start(tiny: Path, circles: Path, tmp_path: Path) -> None:
    if importlib.util.find_spec("wandb"):
        pytest.skip("W&B is installed here")
    recorder = Recorder()
    run = run_with(settings=written(logging__use_wandb=True))
    with pytest.raises(TrainError, match="pip install wandb, or set use_wandb: false"):
        go(run, tiny, circles, tmp_path, progress=recorder)
    assert recorder.phases == []
    go(run_with(steps=1, settings=written(logging__use_wandb=False)), tiny, circles, tmp_path)


def test_wandb_gets_every_log_everyth_step_and_one_run_for_all_starts(
    tiny: Path, circles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "asked.jsonl"
    (tmp_path / "client").mkdir()
    (tmp_path / "client" / "wandb.py").write_text(CLIENT.format(log=str(log)))
    monkeypatch.syspath_prepend(str(tmp_path / "client"))
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    settings = written(logging__use_wandb=True, logging__log_every=2, logging__project_name="loras")
    for steps in (3, 4):
        go(run_with(steps=steps, settings=settings), tiny, circles, tmp_path / "out")
    asked = [json.loads(line) for line in log.read_text().splitlines()]
    begins = [line for line in asked if line[0] == "init"]
    assert len(begins) == 2 and begins[0] == begins[1] == ["init", "loras", "circles", begins[0][3], "allow", 8]
    assert [line[1] for line in asked if line[0] == "log"] == [2, 4]
    assert sum(line[0] == "finish" for line in asked) == 2
    settings = {**settings, **written(logging__project_name="forbidden")}
    with pytest.raises(TrainError, match=r"does not start \(api_key not configured\)"):
        go(run_with(settings=settings), tiny, circles, tmp_path / "other")
    monkeypatch.delitem(sys.modules, "wandb")
