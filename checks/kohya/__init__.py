"""kohya's trainers, sd-scripts and musubi-tuner: what they are told on a command line or in a config file."""

from __future__ import annotations

import re

from ...doctor.model import Run
from ...doctor.trainers.kohya.starts import options_of

TRAINERS = ("sd-scripts", "musubi-tuner")
# of a config file alone: a command line may give what it leaves out
ELSEWHERE = " The command line may give it: check that, and this file is read with it."
_INSIDE = re.compile(r"datasets/\d+/(subsets/\d+/)?")  # what a setting of a dataset file belongs to


def number(run: Run, key: str, default: float = 0.0) -> float:
    return options_of(run).number(key, default=default)


def on(run: Run, key: str) -> bool:
    """Whether a flag is set: any text counts as true."""
    return options_of(run).flag(key)


def anywhere(run: Run, name: str) -> str | None:
    """The first place that counts and where a dataset setting is on.

    A subset's own value goes before its dataset's, that before the general section's, and all before an option's.
    """
    inside = dict.fromkeys(found[0] for key in run.settings if (found := _INSIDE.match(key)))
    divided = {place.partition("subsets/")[0] for place in inside if "subsets/" in place}
    for place in [one for one in inside if one not in divided] or [""]:
        around = (place, place.partition("subsets/")[0], "general/", "")
        key = next((one + name for one in around if one + name in run.settings), None)
        if key is not None and run.settings[key].value not in (None, False, 0, "0", "", 0.0, "0.0"):
            return key
    return None


def trains(run: Run) -> bool:
    """Whether the run is a training, not a file of datasets alone."""
    return run.process_type != "datasets"
