"""Which trainers know a value, by what was mined of their sources."""

from __future__ import annotations

from ..configs.words import same
from ..trainers import trainers
from .tables import shipped


def takers(word: str, value: str) -> list[str]:
    """The trainers whose source names this value for a key in whose path `word` is."""
    tables = {trainer.name: shipped(trainer.name) for trainer in trainers()}
    return [
        name
        for name, schema in tables.items()
        if schema is not None
        if any(
            word in f"{place}/{key}" and any(same(value, choice) for choice in known.choices)
            for place in schema.sections
            for key, known in (schema.section(place) or {}).items()
            if known.choices
        )
    ]
