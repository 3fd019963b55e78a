"""The prompts that kohya's trainers paint samples of: lines with flags, or tables of a TOML or JSON file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ...configs.reading import Beside, text_of, tree_of
from ...families import family_of
from ...model import Problem, SamplePrompt

# Of a line: what each flag is called in a table.
_FLAGS = {
    "w": "width",
    "h": "height",
    "f": "frame_count",
    "d": "seed",
    "s": "sample_steps",
    "g": "guidance_scale",
    "l": "scale",
    "n": "negative_prompt",
    "ci": "control_image_path",
}
_FLAG = re.compile(r"(\w+)\s+(.+)", re.S)
_SIZE = {"sd-scripts": 512, "musubi-tuner": 256}


def samples_of(named: str, trainer: str, architecture: str | None, beside: Beside) -> tuple[SamplePrompt, ...]:
    """The prompts of a file, or of a text as the GUI keeps it; none where the file is not there or is unreadable."""
    tables = _tables(named, beside)
    return tuple(_sample(table, trainer, architecture) for table in tables)


def _tables(named: str, beside: Beside) -> list[Mapping[str, Any]]:
    if not named.lower().endswith((".txt", ".toml", ".json")):
        return [_of_line(line) for line in _lines(named)]
    found = beside(named)
    config = text_of(found.path, found.data) if found is not None else None
    if config is None or config.problem is not None:
        return []
    if named.lower().endswith(".txt"):
        return [_of_line(line) for line in _lines(config.text)]
    tree = tree_of(config)
    value = None if isinstance(tree, Problem) else tree.value
    if isinstance(value, dict):
        shared = value.get("prompt")
        shared = shared if isinstance(shared, dict) else {}
        subsets = shared.get("subset")
        value = [{**shared, **one} for one in subsets if isinstance(one, dict)] if isinstance(subsets, list) else []
    entries = value if isinstance(value, list) else []
    return [_of_line(one) if isinstance(one, str) else one for one in entries if isinstance(one, str | dict)]


def _lines(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            yield line.strip()


def _of_line(line: str) -> dict[str, Any]:
    prompt, *flags = line.split(" --")
    made: dict[str, Any] = {"prompt": prompt}
    for flag in flags:
        found = _FLAG.fullmatch(flag.strip())
        if found and found[1].lower() in _FLAGS:
            made[_FLAGS[found[1].lower()]] = found[2].strip()
    return made


def _sample(table: Mapping[str, Any], trainer: str, architecture: str | None) -> SamplePrompt:
    def number(default: float, *names: str) -> float:
        for name in names:
            try:
                return float(table[name])
            except (KeyError, TypeError, ValueError):
                continue
        return default

    side = _SIZE.get(trainer, 512)
    family = family_of(architecture)
    default = family.kohya[trainer].guidance if trainer in family.kohya else 3.5
    guidance = number(default, "guidance_scale")
    if not family.guided:
        # in musubi-tuner the answer moves by the whole number, elsewhere by one less
        cfg = number(default, "scale", "cfg_scale")
        guidance = cfg + (trainer == "musubi-tuner") if cfg > 1.0 else 1.0
    control = table.get("control_image_path")
    control = control[0] if isinstance(control, list) and control else control
    return SamplePrompt(
        prompt=str(table.get("prompt", "")),
        width=int(number(side, "width")),
        height=int(number(side, "height")),
        seed=int(number(0, "seed")),
        steps=int(number(20, "sample_steps")),
        frames=int(number(1, "frame_count")),
        guidance=guidance,
        negative=str(table.get("negative_prompt") or ""),
        control=control if isinstance(control, str) and control else None,
    )
