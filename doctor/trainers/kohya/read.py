"""The reader of sd-scripts and musubi-tuner: a config to the starts of a training script, and these to runs."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ...configs.node import Node
from ...configs.reading import MOST_RUNS, Beside, Reading, failed, text_of, tree_of, values_of, wrong
from ...model import Config, Problem, Run
from ...model.record import replace
from .gui import from_gui, is_gui
from .run import LAUNCH, Own, run_of
from .starts import Start, datasets_of, flat, is_datasets, offers_a_choice, starts


def reading_of(
    config: Config, environment: Mapping[str, str], beside: Beside, script: re.Pattern[str], own: Own
) -> Reading:
    """One Run for each start of a script that `script` matches in a shell script; one for any other file."""
    found: tuple[Start, ...] | Problem
    if config.format == "shell":
        found = starts(config, environment, beside, script)
        if isinstance(found, Problem):
            return _failed(config, found, beside)
        if not found:
            return Reading(config, reason=f"no start of a training by {config.trainer} is seen in it")
        if len(found) > MOST_RUNS:
            return wrong(
                config, f"The file starts {len(found)} trainings; zdoctor reads at most {MOST_RUNS} of a file."
            )
    else:
        root = tree_of(config)
        if isinstance(root, Problem):
            return failed(config, root)
        if not isinstance(root.children, dict):
            return wrong(config, "The file is no table of settings.")
        if offers_a_choice(root):
            return Reading(
                config, reason="its sections give the same options: a program of its own chooses one of them"
            )
        config = replace(config, values=values_of(root, config))
        found = (_start(root, config),)
    runs: list[Run] = []
    others: dict[str, Config] = {}
    for index, start in enumerate(found):
        made = run_of(config, start, index, beside, own)
        if isinstance(made, Problem):
            return _failed(config, made, beside)
        run, described = made
        runs.append(run)
        others |= {file.path: file for file in (*start.files, described) if file is not None}
    settings = config.values or {f"/{name}": value for name, value in runs[0].settings.items()}
    return Reading(replace(config, values=settings, beside=tuple(others.values())), tuple(runs))


def _failed(config: Config, problem: Problem, beside: Beside) -> Reading:
    """The reading that a problem ends, with the file that it lies in."""
    other = beside(problem.where.path) if problem.where.path != config.path else None
    files = () if other is None else (text_of(other.path, other.data),)
    return failed(replace(config, beside=files), problem)


def _start(root: Node, config: Config) -> Start:
    """What any other file than a script says."""
    if is_datasets(root):
        return Start("datasets", datasets_of(root, config), {})
    if config.trainer != "sd-scripts" or not is_gui(root.value):
        return Start("", flat(root, config), {})
    given = {name: config.values[f"/{name}"].value for name in LAUNCH if f"/{name}" in config.values}
    return Start(*from_gui(config.values), {name: value for name, value in given.items() if value is not None})
