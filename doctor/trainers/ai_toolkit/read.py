"""ai-toolkit's dialect: YAML or JSON with a job and its processes, which become Runs (commit 27a03a91)."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import Literal

from ...configs.node import Node, named
from ...configs.reading import FILES, MOST_RUNS, Beside, Reading, failed, nobodys, tree_of, values_of
from ...configs.text import Lines
from ...configs.words import joined
from ...configs.written import Written
from ...model import Config, Problem, Run, Value, Where
from ...model.record import replace
from .recipe import keys_of, recipe_of

JOBS = ("extension", "train", "extract", "generate", "mod")
TRAINERS = ("sd_trainer", "diffusion_trainer", "ui_trainer")
OTHER_TRAINING = (
    "textual_inversion_trainer",
    "concept_slider",
    "image_reference_slider_trainer",
    "ultimate_slider_trainer",
    "concept_replacer",
    "slider",
    "slider_old",
    "vae",
    "lora_hack",
    "rescale_sd",
    "esrgan",
    "reference",
)
_KEYS = {"job", "config"}


def read(config: Config, environment: Mapping[str, str], beside: Beside) -> Reading:
    """One Run for each process that trains. A config that nobody's keys are in (its trainer is None) is read, too."""
    if config.format not in ("yaml", "json"):
        if config.trainer is None:
            broken = tree_of(config) if config.format == "toml" else None
            return failed(config, broken if isinstance(broken, Problem) else nobodys(config, ""))
        if config.format == "shell":
            return Reading(config, reason="it is a script; ai-toolkit takes its settings from a file: check that")
        root = tree_of(config)
        if isinstance(root, Problem) or not _is_its_own(root):
            return failed(config, nobodys(config, ""))
        said = f"ai-toolkit reads YAML and JSON; by its name this is a {FILES[config.format]}."
        return failed(config, Problem(said, Where(config.path, 1, 1), "shape"))
    root = tree_of(config, environment if config.trainer else None)
    if isinstance(root, Problem):
        return failed(config, root)
    lines = Lines(config.path, config.text)
    is_blank = root.value is None
    if not is_blank and not _is_its_own(root):
        held = ", ".join(_names(root)[:6]) or ("a list" if isinstance(root.value, list) else "one piece of text")
        return failed(config, nobodys(config, held))
    shape = _shape(config.path, root, lines)
    if shape is not None:
        known = set(_names(root)) >= _KEYS
        return failed(replace(config, trainer="ai-toolkit" if known else config.trainer), shape)
    name = root.value["config"]["name"]
    values = values_of(named(root, name), config)
    made, reason = runs(config.path, values)
    return Reading(replace(config, trainer="ai-toolkit", values=values), made, reason)


def _names(root: Node) -> list[str]:
    return list(root.children) if isinstance(root.children, dict) else []


def _is_its_own(root: Node) -> bool:
    """Whether a file that does not hold what a job does may be one with a slip in it.

    Many programs have files with `config` or `job` in them; this trainer's have processes, or one of its jobs.
    """
    keys = root.children if isinstance(root.children, dict) else {}
    inner = keys["config"].children if "config" in keys else {}
    names = [*keys, *(inner if isinstance(inner, dict) else ())]
    job = keys["job"].value if "job" in keys else None
    from difflib import get_close_matches

    return bool(get_close_matches("process", names, 1, 0.7)) or job == "extension"


def _shape(path: str, root: Node, lines: Lines) -> Problem | None:
    """Why the tree is no ai-toolkit config, in the order in which the trainer would notice."""

    def wrong(message: str, node: Node | None = None) -> Problem:
        return Problem(message, lines.where(node.start) if node is not None else Where(path, 1, 1), "shape")

    if root.value is None:
        return wrong("The file is empty: it holds no job.")
    if not isinstance(root.children, dict):
        kind = "a list" if isinstance(root.value, list) else "one piece of text"
        return wrong(f"The file holds {kind}, but a config is a mapping with the keys job and config.")
    keys = root.children
    if "job" not in keys or "config" not in keys:
        if isinstance(keys.get("config"), Node) and "job" not in keys and "process" not in keys:
            return wrong(_stops("config file must have a job key") + '. For LoRA training write job: "extension".')
        shown = ", ".join(list(keys)[:6]) or "nothing"
        missing = "job" if "job" not in keys else "config section"
        return wrong(f"{_stops(f'config file must have a {missing}')}: this one holds {shown}.")
    inner = keys["config"]
    if not isinstance(inner.children, dict):
        return wrong("config must be a section with the keys name and process.", inner)
    name = inner.children.get("name")
    if name is None:
        return wrong(_stops("config file must have a config.name key") + ".", inner)
    if not isinstance(name.value, str):
        return wrong(f"config.name must be text, but {name.value!r} is not. Put it in quotes.", name)
    job = keys["job"]
    if job.value not in JOBS:
        return wrong(f"{_stops(f'Unknown job type {job.value}')}. It knows {', '.join(JOBS)}.", job)
    process = inner.children.get("process")
    if process is None:
        return wrong(_stops('config file is invalid. Missing "config.process" key') + ".", inner)
    if not isinstance(process.children, list) or not process.children:
        return wrong(_stops('config file is invalid. "config.process" must be a list of processes') + ".", process)
    if len(process.children) > MOST_RUNS:
        message = (
            f"config.process holds {len(process.children)} processes; zdoctor reads at most {MOST_RUNS} of a file."
        )
        return Problem(message, lines.where(process.start), "size")
    for index, entry in enumerate(process.children):
        if not isinstance(entry.children, dict) or entry.value.get("type") is None:
            said = _stops(f'config file is invalid. Missing "config.process[{index}].type" key')
            return wrong(f"{said}.", entry)
        written = entry.children["type"]
        if not isinstance(written.value, str):
            said = f"config.process[{index}].type must be the name of a process, such as sd_trainer"
            return wrong(f"{said}, not {reprlib.repr(written.value)}.", written)
        near = misspelt(written.value) if job.value == "extension" else None
        if near is not None:
            said = _stops(f"config file is invalid. Unknown process type: {written.value}")
            return wrong(f"{said}. Did you mean {near}?", written)
    return None


def _stops(error: str) -> str:
    return f"The trainer stops with '{error}'"


def misspelt(process_type: object) -> str | None:
    """The trainer that was meant by a process type that is none; extensions of one's own stay as they are."""
    if not isinstance(process_type, str) or process_type in TRAINERS + OTHER_TRAINING:
        return None
    from difflib import get_close_matches

    near = get_close_matches(process_type, (*TRAINERS, *OTHER_TRAINING[:5]), 1, 0.85)
    return near[0] if near else None


def runs(path: str, values: Mapping[str, Value]) -> tuple[tuple[Run, ...], str]:
    """The training runs of a parsed config by its values, and why there are none."""
    job = values["/job"].value
    processes = values["/config/process"].value
    if job not in ("extension", "train"):
        return (), f"this is an {job} job: nothing is trained" if job == "extract" else f"a {job} job trains nothing"
    trained = [index for index, process in enumerate(processes) if process["type"] in TRAINERS + OTHER_TRAINING]
    if not trained:
        return (), f"the process type {processes[0]['type']} trains nothing that zdoctor knows"
    return tuple(_run(path, values, index) for index in trained), ""


def _run(path: str, values: Mapping[str, Value], index: int) -> Run:
    root = f"/config/process/{index}"
    prefix = root + "/"
    settings = {pointer[len(prefix) :]: value for pointer, value in values.items() if pointer.startswith(prefix)}
    w = Written(settings)
    whole = Written(values)
    keys = keys_of(w)
    recipe = recipe_of(w, keys)
    job_name = str(whole.raw("/config/name"))
    name = w.text("name", default=job_name)
    folder = w.maybe("training_folder")
    if folder is None and whole.raw("/job") == "train":
        folder = whole.maybe("/config/training_folder")
    return Run(
        trainer="ai-toolkit",
        config=path,
        root=root,
        index=index,
        kind=_kind(w),
        process_type=w.text("type"),
        name=name,
        device=w.text("device", default="cuda"),
        output_folder=None if folder is None else joined(folder, name),
        metadata=whole.mapping("/meta"),
        settings=settings,
        keys=keys,
        recipe=recipe,
        read=frozenset(w.read),
    )


def _kind(w: Written) -> Literal["lora", "finetune", "other"]:
    if w.text("type") not in TRAINERS:
        return "other"
    if w.has("network"):
        return "lora"
    if w.has("embedding") or w.has("decorator") or w.below("adapter").flag("train"):
        return "other"
    return "finetune"
