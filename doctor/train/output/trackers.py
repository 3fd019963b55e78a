"""Trackers are TensorBoard, where it is installed, and those that the config asks for, through accelerate."""

from __future__ import annotations

import importlib
import importlib.util
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ...files import fingerprints
from ...model.run import Run
from ..runtime.stop_signals import own_signals
from ..runtime.train_error import TrainError, first_line

# accelerate's names, which are those of the modules, and what to type where the tracker wants somebody to log in.
LOGINS = {
    **dict.fromkeys(("aim", "dvclive", "mlflow", "trackio"), ""),
    "clearml": "clearml-init",
    "comet_ml": "comet login",
    "swanlab": "swanlab login, or set SWANLAB_MODE=offline",
    "wandb": "wandb login, or set WANDB_MODE=offline",
}
# What every run has: event files, and the charts of report.html, which SimpleTuner draws under its own name.
ALWAYS = ("tensorboard", "simpletuner", "none", "")


class Trackers:
    """The trackers of a run; one that fails gets no more numbers, which is said once."""

    def __init__(self, run: Run, output: Path, record: Mapping[str, Any], note: Callable[[str], None]) -> None:
        self.note = note
        self.every = run.recipe.logging.every
        with own_signals():  # SwanLab takes Ctrl-C for itself when it starts
            self.trackers: dict[str, Any] = {
                name: _started(name, run, output, record) for name in requested_trackers(run)
            }
        if importlib.util.find_spec("tensorboard") is None:
            if "tensorboard" in run.recipe.logging.report_to:
                note(
                    "TensorBoard, which the config asks for, is not installed, so its event files are not written; "
                    "losses.jsonl and report.html hold the same. To get it: pip install tensorboard"
                )
        else:
            self.trackers["TensorBoard"] = _Board(output / "tensorboard", int(record["starts"][-1]["step"]) + 1)

    def log(self, step: int, values: Mapping[str, float], *, always: bool = False) -> None:
        """Logs numbers after `step`.

        TensorBoard gets all, the others every log_every-th step and what is `always`.
        """
        for name in list(self.trackers):
            if always or name == "TensorBoard" or step % self.every == 0:
                self._ask(name, "log", dict(values), step=step)

    def close(self) -> None:
        for name in list(self.trackers):
            self._ask(name, "finish")

    def _ask(self, name: str, what: str, *values: Any, **options: Any) -> None:
        try:
            getattr(self.trackers[name], what)(*values, **options)
        except Exception as error:  # the network, a full disk, a server: each with a type of its own
            del self.trackers[name]
            self.note(
                f"{name} fails ({first_line(error)}) and gets no more numbers. The training goes on; losses.jsonl "
                "and report.html hold all of them."
            )


class _Board:
    """TensorBoard's event files, imported at the first number: nothing waits for it before.

    What an earlier start has written from the step `first` on counts no more.
    """

    def __init__(self, folder: Path, first: int) -> None:
        self.folder = folder
        self.first = first
        self.writer: Any = None

    def log(self, values: Mapping[str, float], step: int) -> None:
        if self.writer is None:
            from torch.utils.tensorboard import SummaryWriter

            make: Any = SummaryWriter
            self.writer = make(log_dir=str(self.folder), purge_step=self.first)
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)

    def finish(self) -> None:
        if self.writer is not None:
            self.writer.close()


def requested_trackers(run: Run) -> list[str]:
    """Returns the trackers that the config asks for beside those of every run, as accelerate names them."""
    logging = run.recipe.logging
    names = [*logging.report_to, *(["wandb"] if logging.wandb else [])]
    return [name for name in dict.fromkeys(names) if name not in ALWAYS]


def tracker_refusal(run: Run) -> str:
    """Returns why a tracker that the config asks for cannot be, "" when all can. Imports none of them."""
    return next(_refusals(run), "")


def _refusals(run: Run) -> Iterator[str]:
    for name in requested_trackers(run):
        key = _key(run, name)
        where = run.where(key)
        asks = f"The config asks for the tracker {name} ({key.rpartition('/')[2]}"
        asks += ")" if where.line is None else f", {where.path}:{where.line})"
        if name not in LOGINS:
            yield f"{asks}, which is not supported. These are: tensorboard, {', '.join(sorted(LOGINS))}."
            continue
        for package in (name, "accelerate"):
            if importlib.util.find_spec(package) is None:
                pip = f"pip install {package.replace('_', '-')}"
                needs = "which" if package == name else f"which needs {package}, which"
                yield f"{asks}, {needs} is not installed here. Type: {pip}, or {_without(run, name)}."


def _key(run: Run, name: str) -> str:
    """Returns the settings key that asks for a tracker."""
    own = "logging.wandb" if name == "wandb" and run.recipe.logging.wandb else "logging.report_to"
    return run.keys.get(own, own)


def _without(run: Run, name: str) -> str:
    key = _key(run, name).rpartition("/")[2]
    return f"set {key}: false" if name == "wandb" and run.recipe.logging.wandb else f"take {name} out of {key}"


def _started(name: str, run: Run, output: Path, record: Mapping[str, Any]) -> Any:
    """A tracker of accelerate that has begun or gone on with its run. Raises TrainError."""
    project = run.recipe.logging.project
    title = run.recipe.logging.run_name or run.name
    identity = fingerprints.of_texts(f"{output.absolute()} {record['starts'][0]['at']}", length=64)
    settings = {
        key: value if isinstance(value, str | int | float) else json.dumps(value, ensure_ascii=False)
        for key, value in record["settings"].items()
        if value not in (None, [], {})
    }
    try:
        accelerate: Any = importlib.import_module("accelerate")
        known: Any = importlib.import_module("accelerate.tracking").LOGGER_TYPE_TO_CLASS
        accelerate.PartialState(cpu=True)  # accelerate's loggers, which its trackers use, raise where there is none
        if name not in known:
            raise LookupError("this accelerate does not know it; type: pip install -U accelerate")
        make = known[name]
        place = (str(output),) if make.requires_logging_directory else ()
        own = _options(name, project, title, identity, output)
        tracker = make(title if name == "aim" else project, *place, **own)
        tracker.start()
        tracker.store_init_configuration(settings)
        return tracker
    except Exception as error:  # no login, no network, no such project: each with a type of its own
        login = f"Type: {LOGINS[name]}, or" if LOGINS[name] else "To train without it,"
        raise TrainError(
            f"The tracker {name} does not start ({first_line(error)}). {login} {_without(run, name)} in the config."
        ) from error


def _options(name: str, project: str, title: str, identity: str, output: Path) -> dict[str, Any]:
    """How each tracker takes the name, the place and, where it can go on with a run, the identity of a run."""
    options: dict[str, dict[str, Any]] = {
        "aim": {"experiment": project},
        "clearml": {"task_name": title},
        "comet_ml": {"experiment_key": identity[:32]},
        "dvclive": {"dir": str(output / "dvclive"), "dvcyaml": str(output / "dvclive" / "dvc.yaml"), "resume": True},
        "mlflow": {"run_name": title},
        "swanlab": {
            "experiment_name": title,
            "logdir": str(output / "swanlog"),
            "id": identity[:21],
            "resume": "allow",
        },
        "trackio": {"name": f"{title} {identity[:6]}", "resume": "allow"},
        "wandb": {"name": title, "dir": str(output), "id": identity[:16], "resume": "allow"},
    }
    return options[name]
