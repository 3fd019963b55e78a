"""TensorBoard where it is installed, others when the config asks; a tracker that is missing or fails is said once."""

from __future__ import annotations

import importlib
import importlib.util
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from zdoctor.doctor.train import TrainError
from zdoctor.doctor.train.output.trackers import LOGINS, Trackers, requested_trackers, tracker_refusal

from ..patient import Recorder, go, run_with, written

# What a tracker's client is asked, written to a file. W&B's and trackio's take the same calls; none needs an account.
CLIENT = """
import json, signal
LOG = {log!r}
class Run:
    def log(self, values, step):
        if step == 2 and {dies}: raise OSError("the server is gone")
        put("log", step, sorted(values))
    def finish(self): put("finish")
class Config:
    def update(self, values, allow_val_change): put("config", values["rank"], values["datasets"])
def put(*what):
    with open(LOG, "a") as file: file.write(json.dumps(what) + chr(10))
config = Config()
def init(**words):
    if words["project"] == "forbidden": raise RuntimeError("api_key not configured")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    put("init", words["project"], words["name"], words["resume"], words.get("id"))
    return Run()
"""
RECORD = {
    "starts": [{"at": "2026-01-01", "step": 0}],
    "settings": {"rank": 8, "datasets": [{"folder": "circles"}], "seed": None},
}


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Puts a module of this name in place; gives what it was asked."""

    def put(name: str, dies: bool = False) -> Any:
        log = tmp_path / "asked.jsonl"
        (tmp_path / "client").mkdir()
        (tmp_path / "client" / f"{name}.py").write_text(CLIENT.format(log=str(log), dies=dies))
        monkeypatch.syspath_prepend(str(tmp_path / "client"))
        monkeypatch.delitem(sys.modules, name, raising=False)
        importlib.invalidate_caches()
        names.append(name)
        return lambda: [json.loads(line) for line in log.read_text().splitlines()]

    names: list[str] = []
    yield put
    for name in names:
        sys.modules.pop(name, None)


@pytest.mark.parametrize(("settings", "times"), [({}, 0), ({"logging__report_to": "tensorboard"}, 1)])
def test_without_tensorboard_a_run_that_asks_for_it_says_so_once(
    settings: dict[str, Any], times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "tensorboard" else here(name))
    recorder = Recorder()
    Trackers(run_with(settings=written(**settings)), tmp_path, {"starts": [{"step": 0}]}, recorder.note)
    assert sum("pip install tensorboard" in note for note in recorder.notes) == times


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


def test_tensorboard_that_cannot_write_is_said_once(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    (tmp_path / "tensorboard").write_text("a file where the folder should be")
    notes: list[str] = []
    trackers = Trackers(run_with(), tmp_path, RECORD, notes.append)
    for step in (1, 2):
        trackers.log(step, {"loss": 0.5})
    trackers.close()
    assert len(notes) == 1 and "TensorBoard fails" in notes[0]


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({}, []),
        ({"logging__use_wandb": True}, ["wandb"]),
        ({"logging__use_wandb": False, "logging__report_to": "none"}, []),
        ({"logging__report_to": "tensorboard"}, []),
        ({"logging__report_to": False}, []),
        ({"logging__report_to": "simpletuner, mlflow"}, ["mlflow"]),
        ({"logging__report_to": ["mlflow", "wandb", "mlflow"], "logging__use_wandb": True}, ["mlflow", "wandb"]),
    ],
)
def test_what_a_config_asks_for(settings: dict[str, Any], names: list[str]) -> None:
    assert requested_trackers(run_with(settings=written(**settings))) == names


def test_a_tracker_that_is_unknown_or_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def said(**settings: Any) -> str:
        return tracker_refusal(run_with(settings=written(**settings)))

    here = importlib.util.find_spec
    assert "tensorboard, aim, clearml, comet_ml" in said(logging__report_to="custom-tracker")
    assert "(report_to, config.yaml:1), which is not supported" in said(logging__report_to="all")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in LOGINS else here(name))
    assert "pip install comet-ml, or take comet_ml out of report_to" in said(logging__report_to="comet_ml")
    assert "pip install wandb, or set use_wandb: false" in said(logging__use_wandb=True)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "accelerate" else here("json"))
    assert "which needs accelerate, which is not installed here" in said(logging__report_to="mlflow")
    assert said() == said(logging__report_to="tensorboard") == ""


def test_a_tracker_that_is_not_there_ends_the_start(tiny: Path, circles: Path, tmp_path: Path) -> None:
    recorder = Recorder()
    with pytest.raises(TrainError, match="asks for the tracker nobody's"):
        go(run_with(settings=written(logging__report_to="nobody's")), tiny, circles, tmp_path, progress=recorder)
    assert recorder.phases == []


def test_wandb_gets_every_log_everyth_step_and_one_run_for_all_starts(
    tiny: Path, circles: Path, tmp_path: Path, client: Any
) -> None:
    log = client("wandb")
    settings = written(logging__use_wandb=True, logging__log_every=2, logging__project_name="loras")
    for steps in (3, 4):
        go(run_with(steps=steps, settings=settings), tiny, circles, tmp_path / "out")
    begins = [line for line in log() if line[0] == "init"]
    assert len(begins) == 2 and begins[0] == begins[1] == ["init", "loras", "circles", "allow", begins[0][4]]
    assert [line[1] for line in log() if line[0] == "log"] == [2, 4]
    assert [line[1] for line in log() if line[0] == "config"] == [8, 8]
    assert sum(line[0] == "finish" for line in log()) == 2


def test_a_tracker_that_does_not_start_says_what_to_type(tmp_path: Path, client: Any) -> None:
    client("wandb")
    settings = written(logging__use_wandb=True, logging__project_name="forbidden")
    with pytest.raises(TrainError, match=r"does not start \(api_key not configured\)\. Type: wandb login, or set"):
        Trackers(run_with(settings=settings), tmp_path, RECORD, print)


def test_a_tracker_does_not_get_the_signals(tmp_path: Path, client: Any) -> None:
    client("wandb")
    before = signal.getsignal(signal.SIGINT)
    Trackers(run_with(settings=written(logging__use_wandb=True)), tmp_path, RECORD, print)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_tracker_that_dies_does_not_end_the_run(tiny: Path, circles: Path, tmp_path: Path, client: Any) -> None:
    log, recorder = client("trackio", dies=True), Recorder()
    settings = written(logging__report_to="trackio", logging__log_every=1)
    result = go(run_with(steps=4, settings=settings), tiny, circles, tmp_path / "out", progress=recorder)
    assert result.stopped == "finished" and result.steps == 4
    assert [line[1] for line in log() if line[0] == "log"] == [1]
    assert [note for note in recorder.notes if "trackio" in note] == [
        "trackio fails (the server is gone) and gets no more numbers. The training goes on; losses.jsonl and "
        "report.html hold all of them."
    ]


@pytest.mark.parametrize("name", ["aim", "dvclive", "mlflow", "swanlab", "trackio", "wandb"])
def test_the_real_trackers_take_the_numbers(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(name)
    pytest.importorskip("accelerate")
    monkeypatch.chdir(tmp_path)
    for variable, value in (("HOME", str(tmp_path)), ("WANDB_MODE", "offline"), ("SWANLAB_MODE", "offline")):
        monkeypatch.setenv(variable, value)
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    notes: list[str] = []
    run = run_with(settings=written(logging__report_to=name, logging__log_every=1))
    for start in (0, 2):
        record = {**RECORD, "starts": [*RECORD["starts"], {"at": "2026-01-02", "step": start}]}
        trackers = Trackers(run, tmp_path / "out", record, notes.append)
        trackers.log(start + 1, {"loss": 0.5, "lr": 1e-4})
        trackers.log(start + 2, {"loss": 0.4, "lr": 1e-4})
        trackers.log(start + 2, {"eval_loss": 0.6}, always=True)
        trackers.close()
    assert not [note for note in notes if "fails" in note]
    if name == "dvclive":
        losses = (tmp_path / "out" / "dvclive" / "plots" / "metrics" / "loss.tsv").read_text().splitlines()
        assert [line.split()[0] for line in losses] == ["step", "1", "2", "3", "4"]


def test_accelerate_is_imported_for_a_tracker_only() -> None:
    code = (
        "import sys; from zdoctor.doctor.train.output.trackers import Trackers; "
        "from zdoctor.tests.doctor.train.patient import run_with; from pathlib import Path; "
        "run = run_with(); before = 'accelerate' in sys.modules; "
        f"Trackers(run, Path('nowhere'), {RECORD!r}, lambda text: None); "
        "assert before or 'accelerate' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
