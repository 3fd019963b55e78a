"""A run with other values, for the tests: its own, those of its recipe, or written settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from functools import cache
from typing import Any

from zdoctor.doctor.configs.written import Written
from zdoctor.doctor.model import Run, Schema, Value
from zdoctor.doctor.model.field_names import SHORT_NAMES, by_name
from zdoctor.doctor.model.recipe import Recipe
from zdoctor.doctor.model.trainer import RUNNER
from zdoctor.doctor.schema.tables import shipped
from zdoctor.doctor.trainers.ai_toolkit.datasets import dataset_of
from zdoctor.doctor.trainers.ai_toolkit.recipe import keys_of, recipe_of
from zdoctor.doctor.trainers.ai_toolkit.refusals import for_runner

_OF_RUN = frozenset(field.name for field in fields(Run))


def changed(run: Run, **changes: Any) -> Run:
    """`run` with other values of its own or of its recipe; a mapping changes some fields of a group.

    `settings` are read as ai-toolkit's, where the run is ai-toolkit's or the runner's, on top of the other changes.
    """
    recipe = run.recipe
    reads = "settings" in changes and changes.get("trainer", run.trainer) in ("ai-toolkit", RUNNER)
    if reads:
        changes = {"keys": {**keys_of(Written(changes["settings"])), **run.keys}, **changes}
    for name, value in changes.items():
        if name in _OF_RUN:
            continue
        group, dot, inner = SHORT_NAMES.get(name, name).partition(".")
        if isinstance(value, Mapping) and not name.endswith("_settings"):
            value = replace(getattr(recipe, name), **value)
            group = name
        elif dot:
            value = replace(getattr(recipe, group), **{inner: value})
        recipe = replace(recipe, **{group: value})
    if reads:
        recipe = _reread(recipe, run.settings, changes["settings"])
    made = replace(run, **{"recipe": recipe, **{name: value for name, value in changes.items() if name in _OF_RUN}})
    if not reads:
        return made
    w = Written(changes["settings"])
    recipe_of(w, keys_of(w))
    for number in range(len(made.recipe.datasets)):
        dataset_of(w, number)
    read = replace(made, read=frozenset({"name", "type", "device", "training_folder", *w.read}))
    return replace(made, refused=for_runner(read, _table(), lambda folder: None).refused)


@cache
def _table() -> Schema:
    table = shipped("ai-toolkit")
    assert table is not None
    return table


def _reread(recipe: Recipe, old: Mapping[str, Value], new: Mapping[str, Value]) -> Recipe:
    """The recipe with what `new` settings say and `old` ones did not; no new ones at all take the old ones back."""
    new = {**old, **new} if new else new
    before, after = (recipe_of(w, keys_of(w)) for w in (Written(old), Written(new)))
    for name, value in vars(after).items():
        if name != "datasets" and hasattr(value, "__match_args__"):
            recipe = replace(recipe, **{name: _mixed(getattr(recipe, name), getattr(before, name), value)})
        elif name != "datasets" and value != getattr(before, name):
            recipe = replace(recipe, **{name: value})
    datasets = tuple(
        _mixed(dataset, dataset_of(Written(old), number), dataset_of(Written(new), number))
        for number, dataset in enumerate(recipe.datasets)
    )
    return replace(recipe, datasets=datasets)


def _mixed(record: Any, before: Any, after: Any) -> Any:
    values = {name: value for name, value in vars(after).items() if value != getattr(before, name)}
    return replace(record, **values)


def value_of(run: Run, name: str) -> Any:
    """A field of a run or of its recipe, else what is written for a settings key."""
    known = by_name(run.recipe)
    return known[name] if name in known else getattr(run, name) if name in _OF_RUN else run.setting(name)
