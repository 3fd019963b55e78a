"""Schemas as files: the tables that ship with zdoctor, and what was mined from checkouts, kept until they change."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from ..files import fingerprints
from ..model.record import replace
from ..model.schema import Key, Schema, Section
from ..state import keep
from ..trainers import named
from .checkouts import commit_of, mine

FORMAT = "zdoctor.schema/1"
KEPT = 16
VERSION = 6  # of the miners: what an older one mined is mined again


class Sections(Mapping[str, Section]):
    """Sections that are built when they are asked for: a check looks at a few of a table's dozens."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self._raw = raw
        self._built: dict[str, Section] = {}

    def __getitem__(self, path: str) -> Section:
        if path not in self._built:
            held = self._raw[path]
            if isinstance(held, str):
                return self[held]
            made: dict[str, Key] = {}
            if "=" in held:
                base, bits = self[path.partition(":")[2]], int(held["="], 16)
                made = {name: base[name] for place, name in enumerate(sorted(base)) if bits >> place & 1}
            self._built[path] = made | {name: _key(entry) for name, entry in held.items() if name != "="}
        return self._built[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._raw)

    def __len__(self) -> int:
        return len(self._raw)


def _key(entry: Any) -> Key:
    if isinstance(entry, str):
        return Key(entry)  # type: ignore[arg-type]
    kind, default, *more = entry
    choices, strict, has_default = more or ((), 0, 1)
    return Key(kind, default, bool(has_default), tuple(choices), bool(strict))


def _entry(key: Key) -> Any:
    if key.choices or not (key.has_default or key.default is None):
        return [key.kind, key.default, list(key.choices), int(key.strict), int(key.has_default)]
    return [key.kind, key.default] if key.has_default else key.kind


def as_json(schema: Schema) -> dict[str, Any]:
    """The schema as plain data.

    A section like another one is its name. "=" says which keys are as in the shared one: bits over its sorted names.
    """
    sections: dict[str, Any] = {}
    for path, keys in schema.sections.items():
        twin = next(
            (name for name, held in sections.items() if isinstance(held, dict) and schema.sections[name] == keys),
            None,
        )
        if twin is not None:
            sections[path] = twin
            continue
        base = schema.sections.get(path.partition(":")[2], {}) if ":" in path else {}
        same = {name for name, key in keys.items() if base.get(name) == key}
        own = {name: _entry(key) for name, key in sorted(keys.items()) if name not in same}
        bits = sum(1 << place for place, name in enumerate(sorted(base)) if name in same)
        sections[path] = {"=": f"{bits:x}", **own} if same else own
    return {
        "format": FORMAT,
        "trainer": schema.trainer,
        "repository": schema.repository,
        "commit": schema.commit,
        "processes": list(schema.processes),
        "renamed": dict(schema.renamed),
        "unparsed": dict(schema.unparsed),
        **({"words": sorted(schema.words)} if schema.words else {}),
        **({"forms": sorted(schema.forms)} if schema.forms else {}),
        **({"date": schema.date, "requirements": schema.requirements} if schema.requirements else {}),
        "sections": sections,
    }


def from_json(raw: Mapping[str, Any], source: str = "") -> Schema:
    """The schema of a table. Raises ValueError for what is none."""
    if raw.get("format") != FORMAT:
        raise ValueError(f"its format is {raw.get('format')!r}, not {FORMAT!r}")
    return Schema(
        trainer=raw["trainer"],
        repository=raw["repository"],
        commit=raw["commit"],
        sections=Sections(raw["sections"]),
        processes=tuple(raw["processes"]),
        renamed=raw["renamed"],
        unparsed=raw["unparsed"],
        source=source,
        words=frozenset(raw.get("words", ())),
        forms=frozenset(raw.get("forms", ())),
        date=raw.get("date", ""),
        requirements=tuple(tuple(lines) for lines in raw.get("requirements", ())),
    )


def shipped(trainer: str) -> Schema | None:
    """The table of a trainer that came with zdoctor; None for a trainer that it has none of."""
    known = named(trainer)
    if known is None or not known.table:
        return None
    return _table(Path(__file__).parent / "tables" / known.table)


@cache
def _table(file: Path) -> Schema:
    return from_json(json.loads(file.read_bytes()))


def cached(root: Path, trainer: str, state: Path) -> Schema:
    """The schema of a checkout, mined anew only when a file or folder that it rests on has changed.

    The note is kept in the state folder; where nothing can be written there, every call mines.
    """
    commit = commit_of(root)
    name = fingerprints.of_texts(str(root), trainer, str(VERSION), length=24)
    file = state / "schemas" / f"{name}.json"
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        noted = json.loads(file.read_bytes())
        if noted["commit"] == commit and _unchanged(root, noted["stamps"]):
            return from_json(noted["schema"], str(root))
    schema, stamps = mine(root, trainer)
    keep(file, json.dumps({"commit": commit, "stamps": stamps, "schema": as_json(schema)}).encode("ascii"))
    with suppress(OSError):
        for old in sorted(file.parent.glob("*.json"), key=lambda note: note.stat().st_mtime_ns)[:-KEPT]:
            old.unlink(missing_ok=True)
    return schema


def completed(schema: Schema) -> Schema:
    """A mined schema with what its source may hold in a form that the miner does not see, taken from the table.

    Choices are listed by the comparisons that the source makes. Where fewer than half of the table's are found, the
    source has another form there. Where files do not parse, all keys of the table count beside the mined ones.
    """
    table = shipped(schema.trainer)
    if table is None:
        return schema
    sections = dict(schema.sections)
    for at, keys in table.sections.items():
        mined = sections.get(at)
        if mined is None:
            if schema.unparsed:
                sections[at] = keys
            continue
        few = {
            name: replace(key, choices=tuple(sorted({*key.choices, *keys[name].choices})))
            for name, key in mined.items()
            if name in keys and 2 * len(key.choices) < len(keys[name].choices)
        }
        if few or schema.unparsed:
            sections[at] = {**(keys if schema.unparsed else {}), **mined, **few}
    return replace(schema, sections=sections)


def _unchanged(root: Path, stamps: Mapping[str, Any]) -> bool:
    base = f"{root}{os.sep}"
    for path, (size, changed) in stamps.items():
        try:
            found = os.stat(base + path)
        except OSError:
            if size != -1:
                return False
            continue
        if found.st_mtime_ns != changed or (not path.endswith("/") and found.st_size != size):
            return False
    return True
