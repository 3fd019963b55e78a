"""kohya's trainers, sd-scripts and musubi-tuner: what they are told on a command line or in a config file."""

from __future__ import annotations

from ...doctor.model import Run

TRAINERS = ("sd-scripts", "musubi-tuner")
# of a config file alone: a command line may give what it leaves out
ELSEWHERE = " The command line may give it: check that, and this file is read with it."


def number(run: Run, key: str, default: float = 0.0) -> float:
    """A number as the trainer's parser makes it, also of text."""
    written = run.setting(key)
    try:
        return default if isinstance(written, bool) else float(written)
    except (TypeError, ValueError):
        return default


def on(run: Run, key: str) -> bool:
    """Whether a flag is set: any text counts as true."""
    return bool(run.setting(key))


def anywhere(run: Run, name: str) -> str | None:
    """The first place where a dataset setting is on: an option, the general section, a dataset or a subset."""
    for key, written in run.settings.items():
        if key.rpartition("/")[2] == name and written.value not in (None, False, 0, "0", "", 0.0, "0.0"):
            return key
    return None


def trains(run: Run) -> bool:
    """Whether the run is a training, not a file of datasets alone."""
    return run.process_type != "datasets" and run.kind in ("lora", "finetune")
