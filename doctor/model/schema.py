"""What a trainer's config may hold, as mined from its source: keys by section, defaults, choices. Plain data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from .record import dataclass, field

Kind = Literal["", "int", "float", "bool", "str", "list", "dict"]


@dataclass(frozen=True)
class Key:
    """A key that the trainer reads.

    `default` counts only where `has_default`; it is then a literal of the source. `choices` are the values that the
    source names; with `strict` it takes no others. `kind` is "" where the source does not tell.
    """

    kind: Kind = ""
    default: Any = None
    has_default: bool = False
    choices: tuple[str, ...] = ()
    strict: bool = False


Section = Mapping[str, Key]


@dataclass(frozen=True)
class Schema:
    """The keys of a trainer by section: "" is the outermost, `/` goes inward, `*` stands for a list index.

    A mapping that is no section here is free-form: what lies in it is handed on and never called unknown.
    A section "concept_slider:train" is what "train" is for the process type concept_slider.
    `renamed` maps names that are still accepted to the ones in use; `unparsed` are source files that this Python
    could not parse, with the reason. `commit` is "" where it is not known, `source` the checkout it was mined from,
    "" for a table that ships with zdoctor. `words` stand in quotes somewhere in its source, which may read keys in
    other ways, too; `forms` are keys of whose values it asks what kind they are, so that it may take more than one.
    `requirements` are what the commit, of that `date`, asks of an environment: a list of lines for each kind of
    machine; only a table that ships has them.
    """

    trainer: str
    repository: str
    commit: str
    sections: Mapping[str, Section]
    processes: tuple[str, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)
    unparsed: Mapping[str, str] = field(default_factory=dict)
    source: str = ""
    words: frozenset[str] = frozenset()
    forms: frozenset[str] = frozenset()
    date: str = ""
    requirements: tuple[tuple[str, ...], ...] = ()

    def section(self, path: str, process: str = "") -> Section | None:
        """The keys at a place, None where anything may stand."""
        own = self.sections.get(f"{process}:{path}")
        return self.sections.get(path) if own is None else own

    def key(self, path: str, process: str = "") -> Key | None:
        """The key at `train/steps` and the like; None where the trainer reads none."""
        parent, _, name = path.rpartition("/")
        return (self.section(parent, process) or {}).get(name)

    def choices(self, path: str) -> frozenset[str]:
        """The values that the source names for a key; empty where it names none."""
        known = self.key(path)
        return frozenset(known.choices) if known is not None else frozenset()

    @property
    def named(self) -> str:
        """How messages name it: the trainer with its commit, or the checkout that it was mined from."""
        at = f" {self.commit[:8]}" if self.commit else ""
        here = f" in {self.source}" if self.source else ""
        rest = f", where {next(iter(self.unparsed))} does not parse here" if self.unparsed else ""
        return f"{self.trainer}{at}{here}{rest}"
