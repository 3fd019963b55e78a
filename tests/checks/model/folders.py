"""What the tests of model folders share: what the rules say of one, and how its files are damaged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from zdoctor.checks.model.files import incomplete_model_folder, unreadable_weight_file
from zdoctor.checks.model.layout import checkpoint_layout_mismatch
from zdoctor.checks.model.tensors import missing_checkpoint_tensors
from zdoctor.doctor.model import Finding
from zdoctor.doctor.rules import Unestablished
from zdoctor.tests.models import edit_json, probed, rewrite, run_of, shard_of

RULES = {
    "MDL001": missing_checkpoint_tensors,
    "MDL002": checkpoint_layout_mismatch,
    "MDL003": incomplete_model_folder,
    "MDL004": unreadable_weight_file,
}
Change = Callable[[Path], None]


class Family(NamedTuple):
    """A healthy folder, the trainer's own way to load one, and changes: those that stop it, each with its rule, and
    those that do nothing to what is loaded.
    """

    architectures: tuple[str, ...]
    healthy: Callable[[], Path]
    load: Callable[[Path], dict[str, Any]]
    sick: Mapping[str, tuple[Change, str]]
    well: Mapping[str, Change]


def findings(folder: Path | str, architecture: str = "zimage", **settings: Any) -> dict[str, list[Finding]]:
    run = run_of(folder, architecture, **settings)
    model = probed(run)
    seen: dict[str, list[Finding]] = {}
    for id, rule in RULES.items():
        try:
            found = list(rule(run, model))
        except Unestablished:
            continue
        for finding in found:
            assert finding.text() and finding.consequence()
        if found:
            seen[id] = found
    return seen


def untouched(folder: Path) -> None:
    """Nothing is done to it."""


def configured(part: str, **values: object) -> Change:
    return lambda folder: edit_json(folder / part / "config.json", lambda tree: tree.update(values))


def remove(*parts: str) -> Change:
    """A file gone, or a folder with its files."""

    def change(folder: Path) -> None:
        place = folder.joinpath(*parts)
        for file in [place] if place.is_file() else place.iterdir():
            file.unlink()
        if place.is_dir():
            place.rmdir()

    return change


def dropped(name: str, *file: str) -> Change:
    """A tensor gone from a file: where none is named, from the transformer's shard that holds it."""

    def change(folder: Path) -> None:
        place = folder.joinpath(*file) if file else shard_of(folder, name)
        rewrite(place, lambda t: {n: v for n, v in t.items() if n != name})

    return change


def reshaped(name: str) -> Change:
    return lambda folder: rewrite(
        shard_of(folder, name), lambda t: {n: v[:4].clone() if n == name else v for n, v in t.items()}
    )


def one_more_beside(name: str) -> Change:
    return lambda folder: rewrite(shard_of(folder, name), lambda t: {**t, "some.extra": torch.zeros(2)})


def every_shard(folder: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    for shard in (folder / "transformer").glob("*.safetensors"):
        rewrite(shard, change)


def eight_bit_without_scales(folder: Path) -> None:
    every_shard(folder, lambda t: {n: v.to(torch.float8_e4m3fn) if v.ndim == 2 else v for n, v in t.items()})
