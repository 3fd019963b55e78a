"""A run with other values, for the tests: its own, or those of its recipe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from zdoctor.doctor.model import Run
from zdoctor.doctor.model.recipe import SHORT_NAMES, by_name

_OF_RUN = frozenset(field.name for field in fields(Run))


def changed(run: Run, **changes: Any) -> Run:
    """`run` with other values of its own or of its recipe; a mapping changes some fields of a group."""
    own = {name: value for name, value in changes.items() if name in _OF_RUN}
    recipe = run.recipe
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
    return replace(run, **{"recipe": recipe, **own})


def value_of(run: Run, name: str) -> Any:
    """A field of a run or of its recipe, else what is written for a settings key."""
    known = by_name(run.recipe)
    return known[name] if name in known else getattr(run, name) if name in _OF_RUN else run.setting(name)
