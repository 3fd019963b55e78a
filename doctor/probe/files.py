"""What lies at the paths that a run names."""

from __future__ import annotations

from ..families.part_files import other_files, part_files, written_path
from ..model import Entry, Files, Run, Unknown
from ..model.facts import MOST_CHILDREN
from ..trainers import trainer_of
from .world import Stat, World


def probe_files(world: World, run: Run) -> Files:
    """An Entry for every path-like setting, by its text in the config."""
    recipe = run.recipe
    written = [recipe.base_model, recipe.extras_model, recipe.adapter, run.output_folder]
    written += [dataset.folder for dataset in recipe.datasets]
    written += [folder for dataset in recipe.datasets for folder in dataset.control_folders]
    written += [sample.control for sample in recipe.validation.prompts]
    written += [
        value.value
        for key, value in run.settings.items()
        if key.endswith(("_path", "_folder", "_dir", "_directory")) and isinstance(value.value, str)
    ]
    written += [written_path(run, part) for part in part_files(run)]
    if trainer_of(run.trainer).component_files:
        written += [text for _, text in other_files(run)]
    return Files({text: look(world, text) for text in dict.fromkeys(written) if text})


def look(world: World, text: str) -> Entry:
    """The Entry at a path as the trainer would open it."""
    path = world.absolute(text)
    first = world.stat(path)
    final, stat = world.resolve(path)
    if isinstance(stat, Unknown):
        return Entry(path, "denied")
    if stat is None:
        is_link = isinstance(first, Stat) and first.kind == "link"
        return Entry(path, "dangling" if is_link else "missing")
    if stat.kind == "folder":
        return Entry(path, "folder", children=world.names_in(final)[:MOST_CHILDREN])
    return Entry(path, "file" if stat.kind == "file" else "other", stat.size)
