"""What a key of a config takes, and what may be written at the cursor: by the trainer's own table of keys."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..configs.text import Format
from ..examine.examination import Examination
from ..model import Schema
from ..model.extent import lines_of
from ..model.record import dataclass
from ..model.schema import Key, Section

_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "a text",
    "list": "a list",
    "dict": "a section",
}
# What stands before the cursor where a key is being written, and where its value is, by format.
_TYPED: dict[str, tuple[str, str]] = {
    "yaml": (r"(?P<indent>\s*(?:- +)*)[\w.-]*$", r"(?P<indent>\s*(?:- +)*)(?P<key>[\w.-]+):\s+[\"']?[^\s\"'#]*$"),
    "toml": (r"\s*[\w-]*$", r"\s*(?P<key>[\w-]+)\s*=\s*[\"']?[^\s\"'#]*$"),
    "json": (r"\s*\{?\s*\"(?:--)?[\w-]*$", r"\s*\{?\s*\"(?:--)?(?P<key>[\w-]+)\"\s*:\s*\"?[^\"]*$"),
    "shell": (r".*\s--[\w-]*$", r".*\s--(?P<key>[\w-]+)[ =]+[\"']?[\w.-]*$"),
}
_LINE = re.compile(r"(\s*)((?:- +)*)([\w.-]+):(?:\s+(?:&\S+)?)?(?:#.*)?$|(\s*)((?:- +)+)")
_TABLE = re.compile(r"\s*(\[\[?)\s*([\w.-]+)\s*\]")


@dataclass(frozen=True)
class Keys:
    """The keys that a trainer reads for one process of a config; `root` is the pattern of its place in the file."""

    schema: Schema
    process: str = ""
    root: str = ""

    def section(self, path: str) -> Section | None:
        return self.schema.section(path, self.process)


def keys_of(seen: Examination) -> Keys | None:
    """Those of the first run; None where no run can be read, or its trainer's keys are not known."""
    schema = next((facts.schema for facts in seen.facts if isinstance(facts.schema, Schema)), None)
    if schema is None or not seen.reading.runs:
        return None
    run = seen.reading.runs[0]
    return Keys(schema, run.process_type, _pattern(run.root).strip("/"))


def explained(seen: Examination, keys: Keys, line: int, column: int) -> str | None:
    """What the key under the cursor takes, in Markdown; None where none is, or the trainer does not read it."""
    config = seen.written
    here = [
        (value.where.column or 1, value.end - value.start, key)
        for run in seen.reading.runs
        for key, value in run.settings.items()
        if value.where.path == config.path and value.where.line == line + 1 and value.style is not None
    ]
    if not here:
        return None
    _, _, name = next((one for one in sorted(here) if one[0] - 1 + one[1] >= column), max(here))
    key = keys.schema.key(_pattern(name), keys.process)
    return None if key is None else f"**{name}**: {_described(key)}\n\n{keys.schema.named}"


def _pattern(path: str) -> str:
    return re.sub(r"/\d+(?=/|$)", "/*", path)


def _described(key: Key) -> str:
    parts = [_KINDS.get(key.kind, "any value")]
    if key.has_default:
        parts.append(f"{'nothing' if key.default is None else repr(key.default)} where it is not written")
    if key.choices:
        parts.append(f"{'one of' if key.strict else 'for example'} {', '.join(key.choices)}")
    return "; ".join(parts)


def offered(keys: Keys, format: Format, text: str, line: int, column: int) -> Iterator[tuple[str, str]]:
    """What may be written at the cursor: the keys of its section that are not there yet, or the values of its key.

    Each with what it takes. The text need not parse.
    """
    lines = lines_of(text)
    if format not in _TYPED or line >= len(lines):
        return
    before = lines[line][:column]
    key, value = (re.match(pattern, before) for pattern in _TYPED[format])
    if (typed := key or value) is None:
        return
    section = keys.section(_section(keys, format, lines, line, typed))
    if section is None:
        return
    if key is not None:
        written = set(re.findall(r"[\w.-]+", text)) if format != "yaml" else set()
        for name, known in section.items():
            if name not in written:
                yield name, _described(known)
    elif value is not None and (chosen := section.get(value["key"])) is not None:
        choices = ("true", "false") if chosen.kind == "bool" else chosen.choices
        yield from ((choice, "") for choice in choices)


def _section(keys: Keys, format: Format, lines: list[str], line: int, typed: re.Match[str]) -> str:
    """The section that the cursor is in; a path that no trainer has outside of its processes."""
    if format == "yaml":
        path = _above(lines[:line], typed["indent"])
        if not keys.root:
            return path
        return path[len(keys.root) :].strip("/") if f"{path}/".startswith(f"{keys.root}/") else "?"
    if format == "toml":
        tables = [table for one in lines[:line] if (table := _TABLE.match(one))]
        named = tables[-1][2].replace(".", "/*/") + "/*" * (len(tables[-1][1]) == 2) if tables else ""
        return named if keys.section(named) is not None else ""
    return ""


def _above(lines: list[str], indent: str) -> str:
    """The keys of YAML that a line with this indentation lies below, "*" for the item of a list."""
    limit, item, path = len(indent), False, list[str]()
    if "-" in indent:
        limit, item, path = indent.index("-"), True, ["*"]
    for text in reversed(lines):
        found = _LINE.match(text)
        if found is None or (limit == 0 and not item):
            continue
        space, dashes, name = found[1] or found[4] or "", found[2] or found[5] or "", found[3]
        column = len(space) + len(dashes)
        if name and (column < limit or (item and not dashes and column == limit)):
            path, limit, item = [name, *path], column, False
            if dashes:
                path, limit, item = ["*", *path], len(space), True
        elif dashes and len(space) < limit == column and not item:
            path, limit, item = ["*", *path], len(space), True
    return "/".join(path)
