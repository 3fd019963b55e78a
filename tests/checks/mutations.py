"""Every key and choice of a config misspelt, one at a time: is it caught, and is the right name suggested first?"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from zdoctor.checks.config.invalid_values import invalid_value
from zdoctor.checks.config.unknown import unknown_key
from zdoctor.checks.config.unparsable import unparsable_config
from zdoctor.checks.keys.places import key_span
from zdoctor.doctor.model import Config, Finding, Run, Schema, Value
from zdoctor.doctor.schema.tables import shipped
from zdoctor.doctor.trainers.read import read_config

KINDS = ("dropped", "swapped", "doubled", "separator")
_TABLES: dict[str, Schema] = {}


@dataclass(frozen=True)
class Slip:
    """One misspelling: what stood at `start:end` of the file, what stands there now, and the key or setting."""

    path: Path
    what: Literal["key", "value"]
    place: str
    start: int
    end: int
    old: str
    new: str


@dataclass
class Score:
    """`free` are keys of free-form mappings, `real` slips that are real keys themselves: neither can be told.

    `idle` are keys without a value, which the trainer drops, whatever their name.
    """

    tried: int = 0
    caught: int = 0
    right: int = 0
    free: int = 0
    real: int = 0
    idle: int = 0
    missed: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        caught, right = self.caught / max(1, self.tried), self.right / max(1, self.caught)
        return (
            f"{self.tried} slips: {caught:.2%} caught, {right:.2%} of these with the right first suggestion; "
            f"left out: {self.free} in free-form mappings, {self.real} that are real names, {self.idle} without value"
        )


def schema_of(trainer: str) -> Schema:
    if trainer not in _TABLES:
        found = shipped(trainer)
        assert found is not None
        _TABLES[trainer] = found
    return _TABLES[trainer]


def misspelt(name: str, kind: str) -> str | None:
    """The name with one slip; where in it, its own letters decide. None where it has no room for this kind."""
    at = zlib.crc32(name.encode()) % len(name)
    if kind == "separator":
        other = name.replace("_", "-") if "_" in name else name.replace("-", "_")
        return other if other != name else None
    if kind == "dropped":
        return name[:at] + name[at + 1 :] if len(name) > 2 else None
    if kind == "doubled":
        return name[: at + 1] + name[at:]
    pairs = [i for i in range(len(name) - 1) if name[i] != name[i + 1]]
    if not pairs:
        return None
    i = pairs[at % len(pairs)]
    return name[:i] + name[i + 1] + name[i] + name[i + 2 :]


def read(path: Path, text: str) -> tuple[Config, tuple[Run, ...]]:
    reading = read_config(path.name, text.encode(), {})
    return reading.config, reading.runs


def slips(
    path: Path, kinds: tuple[str, ...], score: Score, seen: set[tuple[str, str]] | None = None
) -> Iterator[Slip]:
    """The misspellings of one file, each name in these ways, without `kinds` in one.

    With `seen`, a key that was had in another file is left out.
    """
    text = path.read_bytes().decode()
    config, runs = read(path, text)
    if config.problem is not None or not runs or config.trainer is None:
        return
    schema, inside = schema_of(config.trainer), {id(v): (run, key) for run in runs for key, v in run.settings.items()}
    for pointer, value in config.values.items():
        name = pointer.rpartition("/")[2]
        run, key = inside.get(id(value), (None, pointer))
        span = key_span(config, value)
        if name.isdigit() or span is None or config.text[span[0] : span[1]] != name or name.startswith("_"):
            continue
        place = re.sub(r"/\d+(?=/|$)", "/*", key)
        section = schema.section(place.rpartition("/")[0], run.process_type) if run is not None else None
        if (run is not None and section is None) or pointer.startswith("/meta/"):
            score.free += 1
            continue
        if run is None and config.trainer == "SimpleTuner":
            score.idle += value.value in (None, "")
            continue
        if seen is not None and (place, "key") in seen:
            continue
        if seen is not None:
            seen.add((place, "key"))
        for kind in kinds or (KINDS[zlib.crc32(place.encode()) % 4],):
            new = misspelt(name, kind)
            if new is not None and new in (section or {}):
                score.real += 1
            elif new is not None:
                yield Slip(path, "key", key, *span, name, new)
        yield from _values(path, schema, place, key, value, kinds, seen)


def _values(
    path: Path,
    schema: Schema,
    place: str,
    key: str,
    value: Value,
    kinds: tuple[str, ...],
    seen: set[tuple[str, str]] | None,
) -> Iterator[Slip]:
    known = schema.key(place)
    if known is None or not isinstance(value.value, str) or known.kind == "bool":
        return
    word, _, _ = value.value.partition("|" if place.startswith("model/qtype") else ":")
    if word not in known.choices or (seen is not None and (place, word) in seen):
        return
    if seen is not None:
        seen.add((place, word))
    quoted = len(value.style or "")
    start = value.start + quoted
    for kind in kinds or KINDS[:3]:
        new = misspelt(word, kind)
        if new is not None and new not in known.choices:
            yield Slip(path, "value", key, start, start + len(word), word, new)


def judge(slip: Slip, score: Score) -> None:
    """Read the config with the slip in it, and see what the rules say."""
    text = slip.path.read_bytes().decode()
    config, runs = read(slip.path, text[: slip.start] + slip.new + text[slip.end :])
    found = list(unparsable_config(config))
    for run in runs:
        schema = schema_of(run.trainer)
        found += [*unknown_key(config, run, schema), *invalid_value(config, run, schema)]
    mine = [finding for finding in found if _about(finding, slip)]
    score.tried += 1
    score.caught += bool(mine)
    right = any(_names(finding, slip) for finding in mine)
    score.right += right
    if not right:
        said = "; ".join(finding.text()[:150] for finding in mine) or "nothing"
        score.missed.append(
            f"{slip.path.parent.name}/{slip.path.name} {slip.place}: {slip.old} as {slip.new}: {said}"
        )


def _about(finding: Finding, slip: Slip) -> bool:
    said = {**finding.evidence, **finding.args}
    if "problem" in finding.args or slip.new in (said.get("key"), said.get("name")):
        return True
    return bool(said.get("key") == slip.place)  # a required key is missing where it is misspelt


def _names(finding: Finding, slip: Slip) -> bool:
    if slip.what == "key":
        return bool(
            finding.evidence.get("nearest") == slip.old or ("problem" in finding.args and slip.old in finding.text())
        )
    meant = finding.evidence.get("new", finding.evidence.get("likely"))
    return str(meant).partition(":")[0].partition("|")[0] == slip.old or slip.old in str(
        finding.args.get("problem", "")
    )
