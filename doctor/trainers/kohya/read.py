"""The reader of sd-scripts and musubi-tuner: a config to the starts of a training script, and these to runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from ...configs.node import Node
from ...configs.reading import MOST_RUNS, Beside, Reading, failed, text_of, tree_of, values_of, wrong
from ...configs.written import Setting, Written, fields_of
from ...model import Config, Dataset, Problem, Run, Value, Where
from ...model.cards import CHOSEN
from ...model.field_names import with_fields
from ...model.recipe import Recipe
from ...model.record import replace
from .gui import from_gui, is_gui, is_of_another_tab, is_of_the_gui_itself
from .names import RENAMED
from .samples import samples_of
from .starts import (
    DATASET_SECTIONS,
    PARSED,
    Start,
    datasets_of,
    flat,
    is_datasets,
    offers_a_choice,
    options_of,
    starts,
    tree_beside,
)

# What of accelerate's options is known of a run.
LAUNCH = ("num_processes", "gpu_ids")
# The fields that one option says; `run_of` adds what is left.
_FIELDS = {
    "steps": Setting("max_train_steps", Written.whole, 1600),
    "gradient_accumulation": Setting("gradient_accumulation_steps", Written.whole, 1),
    "gradient_checkpointing": Setting("gradient_checkpointing", Written.flag),
    "max_grad_norm": Setting("max_grad_norm", Written.number, 1.0),
    "rank": Setting("network_dim", Written.whole, 4),
    "alpha": Setting("network_alpha", Written.number, 1.0),
    "optimizer_settings": Setting("optimizer_args", Written.pairs),
    "scheduler": Setting("lr_scheduler", Written.text, "constant"),
    "scheduler_settings": Setting("lr_scheduler_args", Written.pairs),
    "timestep_type": Setting("timestep_sampling", Written.text, "sigma"),
    "offload.swapped": Setting("blocks_to_swap", Written.whole),
    "save_every": Setting("save_every_n_steps", Written.whole),
    "save_dtype": Setting("save_precision", Written.text, "float"),
    "sample_every": Setting("sample_every_n_steps", Written.whole),
}
_BATCH_SIZES = ("datasets/0/batch_size", "general/batch_size")
_KEYS = {
    **{name: setting.key for name, setting in _FIELDS.items()},
    "output_folder": "output_dir",
    "name": "output_name",
    "datasets": "dataset_config",
    "dtype": "mixed_precision",
    "quantization": "fp8_base",
    "network_type": "network_module",
    "process_type": "network_module",
    "batch_size": _BATCH_SIZES[0],
    "optimizer": "optimizer_type",
    "samples": "sample_prompts",
    "network.dropout": "network_dropout",
    "network.initial_weights": "network_weights",
    "offload.share": "blocks_to_swap",
    "logging.report_to": "log_with",
}


class OfTrainer(NamedTuple):
    """What only one of the trainers says of a start: fields, and the settings behind some."""

    script: str
    fields: Mapping[str, Any]
    keys: Mapping[str, str]


Own = Callable[[Start, Written], OfTrainer]


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
        if config.format == "json" and not (config.trainer == "sd-scripts" and is_gui(root.value)):
            return Reading(
                config, reason="it is a JSON file that kohya's GUI did not write, and the trainer reads none"
            )
        if config.format == "json" and is_of_another_tab(root.value):
            return Reading(config, reason="it is of a tab of kohya's GUI whose script zdoctor does not know")
        if is_of_the_gui_itself(root.value):
            return Reading(config, reason="it holds what the fields of kohya's GUI begin with; no trainer reads it")
        if offers_a_choice(root):
            return Reading(
                config,
                reason="its sections are a model's each, or give the same options: a program of its own takes one",
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
    if config.format != "json":
        return Start("", flat(root, config), {})
    given = {name: config.values[f"/{name}"].value for name in LAUNCH if f"/{name}" in config.values}
    return Start(*from_gui(config.values), {name: value for name, value in given.items() if value is not None})


def run_of(config: Config, start: Start, index: int, beside: Beside, own: Own) -> tuple[Run, Config | None] | Problem:
    """The run of one start, and the file of its datasets."""
    options = _with_datasets(start, beside)
    if isinstance(options, Problem):
        return options
    settings, described = options
    if config.trainer == "musubi-tuner":
        settings = _renamed(settings)
    w = Written(settings, PARSED, {"dataset_config"})
    script, fields, own_keys = own(start, w)
    keys = _KEYS | dict(own_keys)
    sizes = (*_BATCH_SIZES, keys["batch_size"])
    keys["batch_size"] = next((key for key in sizes if key in settings), sizes[-1])
    if w.whole("max_train_epochs") > 0:
        keys["steps"] = "max_train_epochs"
    trainer = config.trainer or ""
    more = {
        "batch_size": w.whole(*sizes, default=1),
        "seed": w.whole("seed") if w.has("seed") else None,
        "optimizer": w.text("optimizer_type", default="adamw").lower(),
        "disable_sampling": not w.has("sample_prompts"),
        "samples": samples_of(w.text("sample_prompts"), trainer, fields["architecture"], beside),
    }
    made = Run(
        trainer=trainer,
        config=config.path,
        root="",
        index=index,
        kind=_kind(script),
        process_type=script,
        name=w.text("output_name", default="last"),
        recipe=with_fields(Recipe(), {**fields_of(w, _FIELDS), **more, **fields}),
        output_folder=w.maybe("output_dir"),
        settings={key: value for key, value in settings.items() if key not in DATASET_SECTIONS},
        keys=keys,
        homes={} if described is None else {name: (described.path, f"/{name}") for name in sorted(DATASET_SECTIONS)},
        read=frozenset(w.read),
        unread=start.unread,
    )
    return made, described


def _kind(script: str) -> Literal["lora", "finetune", "other"]:
    if script.endswith("_inversion"):
        return "other"
    return "lora" if script.endswith("network") or script in ("", "datasets") else "finetune"


def _with_datasets(start: Start, beside: Beside) -> tuple[dict[str, Value], Config | None] | Problem:
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
    if named is None or not isinstance(named.value, str) or not named.value or named.unknown:
        return settings, None
    tree = tree_beside(named.value, beside)
    if tree is None or isinstance(tree, Problem):
        return tree or (settings, None)
    return settings | datasets_of(*tree), tree[1]


def _renamed(settings: dict[str, Value]) -> dict[str, Value]:
    """The settings with those of a dataset file that have an old name by the new one, which goes before."""
    old = {
        key: f"{key[: -len(name)]}{RENAMED[name]}" for key in settings if (name := key.rpartition("/")[2]) in RENAMED
    }
    made = {old.get(key, key): value for key, value in settings.items() if old.get(key) not in settings}
    return made if old else settings


def of_dataset(trainer: str, key: str, w: Written) -> Written:
    """The settings of a dataset: its own, then those above it, as the trainer looks for them."""
    above, inside, _ = key.partition("/subsets/")
    places = [*([above] if inside else []), "general"] if key.startswith("datasets/") else []
    return w.below(key, *places, *([] if trainer == "musubi-tuner" else [""]))


def settings_of_datasets(run: Run) -> Iterator[Written]:
    """The settings of each dataset, those above it behind its own; the options alone where none is written."""
    w = options_of(run)
    yield from [of_dataset(run.trainer, dataset.key, w) for dataset in run.recipe.datasets] or [w]


def keys_of(datasets: tuple[Dataset, ...], folder: str) -> dict[str, str]:
    """What a dataset's folder and captions are called here, by the names that rules ask for."""
    made: dict[str, str] = {}
    for dataset in datasets:
        inside = dataset.key.startswith("datasets/")
        made[f"{dataset.key}/folder_path"] = f"{dataset.key}/{folder}" if inside else dataset.key
        if not inside:
            made[f"{dataset.key}/caption_extension"] = "caption_extension"
    return made
