"""The settings of a project: zdoctor.toml, or [tool.zdoctor] in pyproject.toml, from a config's folder upwards."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..errors import UserError
from ..model.record import dataclass, field
from ..rules import LEVELS, Level, Rule, all_rules, named_by, select, with_severities

OWN, SHARED = "zdoctor.toml", "pyproject.toml"
_TABLE = re.compile(rb"tool[ \t]*\.[ \t]*[\"']?zdoctor\b")
_KEYS = {
    "select": 'a list of rules, as in select = ["PTH", "MDL001"]',
    "ignore": 'a list of rules, as in ignore = ["TRN", "DSK001"]',
    "severity": 'a table, as in severity = {TRN003 = "error", DSK = "off"}',
    "machine": 'a machine file, as in machine = "trainer.json"',
    "trainer": 'a name, as in trainer = "ai-toolkit"',
}
_TYPES = {"select": list, "ignore": list, "severity": dict, "machine": str, "trainer": str}


@dataclass(frozen=True)
class Settings:
    """What a settings file says; `file` is "" where there is none. `machine` is a path from the working folder on.

    `beside` is the pyproject.toml whose table does not count, because a zdoctor.toml lies beside it.
    """

    file: str = ""
    beside: str = ""
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    severity: Mapping[str, Level] = field(default_factory=dict)
    machine: str | None = None
    trainer: str | None = None

    @property
    def told(self) -> str:
        """Which file it is, for the report."""
        return f"{self.file} (not {self.beside} beside it)" if self.beside else self.file

    def rules(self, selected: Sequence[str], ignored: Sequence[str]) -> tuple[Rule, ...]:
        """The rules that are asked. `selected` sets aside which ones the file asks, `ignored` adds to its own."""
        severity: dict[str, Level] = {
            name: level for name, level in self.severity.items() if not (selected and level == "off")
        }
        rules = with_severities(all_rules(), severity)
        return select(rules, selected or self.select, (*ignored, *(() if selected else self.ignore)))


def looked_for(config: str) -> Iterator[tuple[str, str]]:
    """The pairs of files that may hold the settings of a config ("": of the working folder), the nearest first."""
    home = os.path.expanduser("~")
    folder = os.path.dirname(os.path.abspath(config)) if config else os.getcwd()
    while True:
        yield os.path.join(folder, OWN), os.path.join(folder, SHARED)
        above = os.path.dirname(folder)
        if above == folder or folder == home or os.path.exists(os.path.join(folder, ".git")):
            return
        folder = above


def settings_for(config: str) -> Settings:
    """What the nearest settings file says. Raises UserError for one that says what zdoctor does not know."""
    for own, shared in looked_for(config):
        table = _table_of(shared)
        if os.path.isfile(own):
            text = _read(own)
            return _settings(own, text.decode("utf-8", "replace"), _parsed(own, text), shared if table else "")
        if table is not None:
            return _settings(shared, *table)
    return Settings()


def _table_of(file: str) -> tuple[str, Mapping[str, Any]] | None:
    """The text from [tool.zdoctor] on (what stands before it as empty lines) and the table; None without one."""
    if not os.path.isfile(file):
        return None
    data = _read(file)
    found = _TABLE.search(data)
    if found is None:
        return None
    tool = _parsed(file, data).get("tool")
    table = tool.get("zdoctor") if isinstance(tool, dict) else None
    if table is None:  # it is spoken of in a comment
        return None
    if not isinstance(table, dict):
        raise UserError(f"{_shown(file)}: tool.zdoctor is no table.", "[tool.zdoctor]")
    before = data.count(b"\n", 0, found.start())
    return "\n" * before + data[found.start() :].decode("utf-8", "replace"), table


def _read(file: str) -> bytes:
    try:
        with open(file, "rb") as handle:
            return handle.read()
    except OSError as error:
        raise UserError(f"{_shown(file)} cannot be read: {error.strerror}.") from None


def _parsed(file: str, data: bytes) -> Mapping[str, Any]:
    try:
        text = data.decode("utf-8").removeprefix("\ufeff")
        if sys.version_info >= (3, 11):
            import tomllib

            return tomllib.loads(text)
        import tomlkit

        return tomlkit.parse(text).unwrap()
    except (ValueError, RecursionError) as error:
        raise UserError(f"{_shown(file)} is no TOML: {error}.", "Put it right, or take it away.") from None


def _shown(file: str) -> str:
    """A path as it is shown: from the working folder on, where that is on the same drive."""
    try:
        return os.path.relpath(file)
    except ValueError:
        return file


def _settings(file: str, text: str, table: Mapping[str, Any], beside: str = "") -> Settings:
    def wrong(word: str, message: str, hint: str = "") -> UserError:
        return UserError(f"{_shown(file)}{_line(text, word)}: {message}", hint)

    for name, value in table.items():
        if name not in _KEYS:
            raise wrong(
                name, f"there is no setting {name!r}.", _near(name, list(_KEYS), f"They are {', '.join(_KEYS)}.")
            )
        if not isinstance(value, _TYPES[name]):
            raise wrong(name, f"{name} is {_KEYS[name]}.")
    rules = [*table.get("select", ()), *table.get("ignore", ())]
    if not_text := next((word for word in rules if not isinstance(word, str)), None):
        raise wrong(str(not_text), f"{not_text!r} is no rule.", "zdoctor rules lists them.")
    severity = table.get("severity", {})
    for word in (*rules, *severity):
        try:
            named_by(word, all_rules())
        except UserError as error:
            raise wrong(word, str(error), error.hint) from None
    for word, level in severity.items():
        if level not in LEVELS:
            near = _near(str(level), LEVELS, f"It is one of {', '.join(LEVELS)}.")
            raise wrong(word, f"{level!r} is no severity.", near)
    machine = table.get("machine")
    return Settings(
        _shown(file),
        os.path.basename(beside),
        tuple(table.get("select", ())),
        tuple(table.get("ignore", ())),
        dict(severity),
        machine and _shown(os.path.join(os.path.dirname(file), os.path.expanduser(machine))),
        _trainer(table, wrong),
    )


def _trainer(table: Mapping[str, Any], wrong: Any) -> str | None:
    from ..trainers import named, names

    word = table.get("trainer")
    if word is None:
        return None
    all_rules()  # which makes known what plug-ins bring
    found = named(word)
    if found is None:
        raise wrong(
            "trainer", f"there is no trainer {word!r}.", _near(word, names(), f"They are {', '.join(names())}.")
        )
    return found.name


def _near(word: str, known: Sequence[str], otherwise: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(word.lower(), known, 1)
    return f"Did you mean {near[0]}?" if near else otherwise


def _line(text: str, word: str) -> str:
    """ ", line N" of the first line that says the word outside a comment; "" where none does."""
    written = re.compile(rf"(?<![\w-]){re.escape(word)}(?![\w-])")
    lines = (number for number, line in enumerate(text.split("\n"), 1) if written.search(line.partition("#")[0]))
    number = next(lines, None)
    return "" if number is None else f", line {number}"
