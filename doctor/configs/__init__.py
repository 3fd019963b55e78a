"""Reading a trainer's config: bytes in, records out. Nothing here opens a file."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from ..model import Config, Problem, Run, Value, Where
from ..model.record import dataclass
from . import ai_toolkit
from .node import MOST_VALUES, TOO_MANY, Node, named
from .text import Lines, decode, expand
from .tree import parse

MOST_RUNS = 32
_FOREIGN = (
    ("SimpleTuner", ("model_family", "pretrained_model_name_or_path", "data_backend_config", "--model_family")),
    ("sd-scripts", ("network_module", "sdpa", "dataset_config", "general", "pretrained_model_name_or_path")),
    ("musubi-tuner", ("dit", "vae", "text_encoder")),
)
_OTHER_FILES = {
    ".toml": "TOML file, as sd-scripts and musubi-tuner use",
    ".env": "file of shell variables, as SimpleTuner uses",
}


@dataclass(frozen=True)
class Reading:
    """A config and the training runs it asks for. `reason` says why there are none."""

    config: Config
    runs: tuple[Run, ...] = ()
    reason: str = ""


def read_config(path: str, data: bytes, environment: Mapping[str, str]) -> Reading:
    """Read a config file's bytes as the trainer would; never raises for what is in them.

    `environment` fills the `${NAME}` of the text. What the trainer's own reader would refuse is
    `config.problem`; then there are no runs.
    """
    source = decode(path, data)
    format: Literal["yaml", "json"] = "json" if path.lower().endswith((".json", ".jsonc")) else "yaml"
    trainer = "ai-toolkit" if _looks_like_ai_toolkit(source.text, format) else None
    config = Config(
        path, source.text, trainer, source.problem, source.encoding, source.newline, source.byte_order_mark, format
    )
    if config.problem is not None:
        return _failed(config, config.problem)
    for ending, kind in _OTHER_FILES.items():
        if path.lower().endswith(ending):
            message = f"This is a {kind}; this version of zdoctor reads ai-toolkit configs, in YAML or JSON."
            return _failed(replace(config, trainer=None), Problem(message, Where(path, 1, 1), "shape"))
    expanded = expand(path, source.text, environment)
    if isinstance(expanded, Problem):
        return _failed(config, expanded)
    lines = Lines(path, source.text)
    root = parse(path, expanded, format, lines)
    if isinstance(root, Problem):
        return _failed(config, root)
    shape = _shape(path, root, lines)
    if shape is not None:
        known = isinstance(root.value, dict) and {"job", "config"} <= root.value.keys()
        return _failed(replace(config, trainer="ai-toolkit" if known else None), shape)
    name = root.value["config"]["name"]
    if _too_many(root):
        return _failed(config, Problem(TOO_MANY, Where(path), "size"))
    if "[name]" in expanded.text:
        root = named(root, name)
    values = _values(root, lines)
    config = replace(config, trainer="ai-toolkit", values=values)
    runs, reason = ai_toolkit.runs(path, values)
    return Reading(config, runs, reason)


def _failed(config: Config, problem: Problem) -> Reading:
    return Reading(replace(config, problem=problem), reason=problem.message)


def _looks_like_ai_toolkit(text: str, format: str) -> bool:
    if format == "json":
        return all(re.search(rf'"{key}"\s*:', text) for key in ("job", "config", "process"))
    return all(re.search(rf"^[\ufeff]?[\"']?{key}[\"']?[ \t]*:", text, re.M) for key in ("job", "config"))


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
        inside = keys["config"].children if "config" in keys else None
        wrapped = inside if isinstance(inside, dict) and "process" not in inside else {}
        for trainer, names in _FOREIGN:
            seen = [name for name in names if name in keys or name in wrapped or f"--{name}" in wrapped]
            if len(seen) >= 2 or (seen and seen[0] == names[0]):
                return wrong(f"This looks like a {trainer} config; this version of zdoctor reads ai-toolkit configs.")
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
    if job.value not in ai_toolkit.JOBS:
        return wrong(f"{_stops(f'Unknown job type {job.value}')}. It knows {', '.join(ai_toolkit.JOBS)}.", job)
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
        near = ai_toolkit.misspelt(written.value) if job.value == "extension" else None
        if near is not None:
            said = _stops(f"config file is invalid. Unknown process type: {written.value}")
            return wrong(f"{said}. Did you mean {near}?", written)
    return None


def _stops(error: str) -> str:
    return f"The trainer stops with '{error}'"


def _too_many(root: Node) -> bool:
    """Whether anchors unfold into far more values than any config has."""
    stack, seen = [root], 0
    while stack and seen <= MOST_VALUES:
        stack.extend(child for _, child in stack.pop().items())
        seen += 1
    return seen > MOST_VALUES


def _values(root: Node, lines: Lines) -> dict[str, Value]:
    """Every value by JSON pointer, in document order."""
    made: dict[str, Value] = {}
    stack: list[tuple[str, Node]] = [("", root)]
    while stack:
        pointer, node = stack.pop()
        at = node.key[0] if node.key is not None and (node.block or node.start == node.end) else node.start
        made[pointer] = Value(node.value, lines.where(at, pointer), node.start, node.end, node.style)
        stack.extend(reversed([(f"{pointer}/{_escape(key)}", child) for key, child in node.items()]))
    del made[""]
    return made


def _escape(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
