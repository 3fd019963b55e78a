"""The rules that a user names."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import UserError
from . import Rule


def select(rules: Sequence[Rule], chosen: Sequence[str], ignored: Sequence[str]) -> tuple[Rule, ...]:
    """Rules by id, name or id prefix ("PTH"). Raises UserError for a word that names none."""
    for word in (*chosen, *ignored):
        if not any(_named(rule, word) for rule in rules):
            from difflib import get_close_matches

            near = get_close_matches(word.upper(), [r.id for r in rules], 1)
            near = near or get_close_matches(word.lower(), [r.name for r in rules], 1)
            raise UserError(
                f"there is no rule {word!r}.", f"Did you mean {near[0]}?" if near else "zdoctor rules lists them."
            )
    kept = [rule for rule in rules if not chosen or any(_named(rule, word) for word in chosen)]
    return tuple(rule for rule in kept if not any(_named(rule, word) for word in ignored))


def _named(rule: Rule, word: str) -> bool:
    return rule.name == word.lower() or rule.id.startswith(word.upper())
