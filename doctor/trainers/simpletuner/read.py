"""SimpleTuner's dialect: its options as JSON, TOML or shell variables, and the file of its datasets (bc8e6ab7)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...configs.reading import Beside, Found, Reading, failed, text_of, tree_of, values_of, wrong
from ...configs.written import Written
from ...model import Config, Problem, Where
from ...model.record import replace
from .options import PARSED, from_mapping, from_variables
from .run import run

DATASETS = "multidatabackend.json"
IS_DATASETS = "this is a file of datasets; check the config whose data_backend_config names it"
_OF_DATASETS = frozenset(("datasets", "instance_data_dir", "instance_data_root", "cache_dir_vae"))
_OF_CONFIGS = frozenset(("model_family", "model_type", "data_backend_config", "output_dir", "optimizer"))
_OF_SIMPLETUNER = "a SimpleTuner config is a mapping of options, such as model_family and model_type"


def read(config: Config, environment: Mapping[str, str], beside: Beside) -> Reading:
    """One Run. The dataset file is found beside the config; without it the run has no datasets."""
    if config.format == "shell":
        return Reading(config, reason="it is a script; SimpleTuner takes its options from a file: check that")
    if config.format not in ("json", "toml", "env"):
        what = "SimpleTuner reads files named .json, .toml or .env; by its name this is none of them."
        return failed(replace(config, trainer=None), Problem(what, Where(config.path, 1, 1), "foreign"))
    root = tree_of(config)
    if isinstance(root, Problem):
        return failed(config, root)
    if isinstance(root.value, list) or _is_of_datasets(root.value):
        return Reading(config, reason=IS_DATASETS)
    if not isinstance(root.value, dict):
        return wrong(config, f"The file holds one value, but {_OF_SIMPLETUNER}.")
    config = replace(config, values=values_of(root, config))
    if config.format == "env":
        file = from_variables(config.values)
        if "model_family" not in file.settings and "model_type" not in file.settings:
            return Reading(
                config, reason="these variables only say how the trainer is started; its options are elsewhere"
            )
    else:
        wrapped = isinstance(root.value.get("config"), dict) and "_metadata" in root.value
        file = from_mapping(config.values, "/config" if wrapped else "")
    if not file.settings:
        return wrong(config, f"The file holds no option: {_OF_SIMPLETUNER}.")
    options = Written(file.settings, PARSED)
    backend = _beside(options.text("data_backend_config") or DATASETS, beside, is_list=True)
    named = options.text("lycoris_config")
    of_lycoris = named and options.text("lora_type", default="standard") == "lycoris"
    lycoris = _beside(named, beside, is_list=False) if of_lycoris else None
    config = replace(config, beside=tuple(file for file in (backend, lycoris) if file is not None))
    return Reading(config, (run(config, file, options.read, backend, lycoris),))


def _is_of_datasets(value: Any) -> bool:
    """Whether a mapping is one dataset, or holds some, and no options: a part of a file of datasets."""
    names = {name.removeprefix("--") for name in value} if isinstance(value, dict) else set()
    return bool(names & _OF_DATASETS) and not names & _OF_CONFIGS


def _beside(name: str, beside: Beside, is_list: bool) -> Config | None:
    """A JSON file that the config names, parsed; its `problem` says why it could not be."""
    found = _find(name, beside)
    if found is None:
        return None
    made = replace(text_of(found.path, found.data), trainer="SimpleTuner", format="json")
    root = tree_of(made)
    if isinstance(root, Problem):
        return replace(made, problem=root)
    entries = root.children if isinstance(root.children, list) else None
    if is_list and entries is None:
        shape = Problem("The file of datasets must be a list.", Where(made.path, 1, 1), "shape")
        return replace(made, problem=shape)
    return replace(made, values=values_of(root, made))


def _find(name: str, beside: Beside) -> Found | None:
    """`config/examples/…` is also looked up among the examples that come with the trainer."""
    found = beside(name)
    for prefix in ("config/", "config/examples/"):
        if found is None and name.startswith("config/examples/"):
            found = beside(name.removeprefix(prefix))
    return found
