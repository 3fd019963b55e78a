"""What the readers of sd-scripts and musubi-tuner share: from a config to its starts, and from these to runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from ...configs.node import Node
from ...configs.reading import MOST_RUNS, Beside, Reading, failed, tree_of, values_of, wrong
from ...configs.text import Lines
from ...model import Config, Problem, Run, Value, Where
from ...model.cards import CHOSEN
from ...model.record import replace
from .starts import Start, datasets_of, starts, tree_beside

# What of accelerate's options is known of a run.
LAUNCH = ("num_processes", "gpu_ids")
# A run and the file of its datasets, or why there is none.
Made = tuple[Run, Config | None] | Problem


def starts_in_script(
    config: Config, environment: Mapping[str, str], beside: Beside, script: re.Pattern[str]
) -> tuple[Start, ...] | Reading:
    """The starts of a shell script, at least one; or the reading that says why there are none."""
    found = starts(config, environment, beside, script)
    if isinstance(found, Problem):
        return failed(config, found)
    if not found:
        return Reading(config, reason=f"it starts no training script of {config.trainer}")
    if len(found) > MOST_RUNS:
        return wrong(config, f"The file starts {len(found)} trainings; zdoctor reads at most {MOST_RUNS} of a file.")
    return found


def table_of(config: Config) -> tuple[Node, Config] | Reading:
    """The settings of any other file, and the config with its values; or the reading that says why there are none."""
    root = tree_of(config)
    if isinstance(root, Problem):
        return failed(config, root)
    if not isinstance(root.children, dict):
        return wrong(config, "The file is no table of settings.")
    return root, replace(config, values=values_of(root, Lines(config.path, config.text)))


def reading_of(config: Config, found: Sequence[Start], run: Callable[[Start, int], Made]) -> Reading:
    """One run for each start, made by `run`."""
    runs: list[Run] = []
    others: dict[str, Config] = {}
    for index, start in enumerate(found):
        made = run(start, index)
        if isinstance(made, Problem):
            return failed(config, made)
        runs.append(made[0])
        others |= {file.path: file for file in (*start.files, made[1]) if file is not None}
    settings = config.values or {f"/{name}": value for name, value in runs[0].settings.items()}
    return Reading(replace(config, values=settings, beside=tuple(others.values())), tuple(runs))


def with_datasets(start: Start, beside: Beside) -> tuple[dict[str, Value], Config | None] | Problem:
    """The options of a start with those of the dataset file that they name, and that file.

    "accelerate/num_processes" says how many processes it is of and "accelerate/gpu_ids" on which cards, where
    accelerate or the script around it is told.
    """
    settings = dict(start.options)
    first = next(iter(settings.values()), None)
    if first is not None:
        place = Where(first.where.path)
        processes, cards = (str(start.launch.get(name, "")) for name in LAUNCH)
        if re.fullmatch(r"\d{1,4}", processes):
            settings["accelerate/num_processes"] = Value(int(processes), place, 0, 0)
        if cards not in ("", "all") or start.visible is not None:
            settings[CHOSEN] = Value(start.visible if cards in ("", "all") else cards, place, 0, 0)
    named = settings.get("dataset_config")
    if named is None or not isinstance(named.value, str) or not named.value:
        return settings, None
    tree = tree_beside(named.value, named, beside)
    if isinstance(tree, Problem):  # one that is not there is told by a rule
        return tree if tree.where.path != named.where.path else (settings, None)
    return settings | datasets_of(*tree), tree[1]
