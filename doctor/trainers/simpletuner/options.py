"""SimpleTuner's options: every written value becomes a word of a command line, and argparse reads it back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...configs.words import options_in
from ...configs.written import Dialect, Written
from ...model import Run, Value
from ...model.record import dataclass, field, replace
from .names import JSON_OPTIONS, RENAMED, VARIABLES

_EXTRA = "TRAINER_EXTRA_ARGS"


@dataclass(frozen=True)
class OptionFile:
    """The written options by their present names. What is not written yet is spelled by `spelling`."""

    settings: Mapping[str, Value]
    root: str = ""
    spelling: Mapping[str, str] = field(default_factory=dict)
    dashed: bool = False

    def spelled(self, names: Iterable[str]) -> dict[str, str]:
        """How each of these would be written into this file."""
        return {name: f"--{name}" if self.dashed else self.spelling.get(name, name) for name in names}


def effective(name: str, value: Any) -> Any:
    """A written value as the trainer's parser gets it: some never arrive (cli_utils.mapping_to_cli_args)."""
    whole = "/" in name or name in JSON_OPTIONS  # in a file beside, or an option that takes JSON
    if isinstance(value, dict) and not whole:
        return None
    if isinstance(value, list) and not whole:
        return value[-1] if value else None  # one flag for each, and the last one wins
    if not isinstance(value, str):
        return value
    word = value.strip()
    return True if word.lower() == "true" else None if word.lower() == "false" or not word else word


PARSED = Dialect(effective, words=True, on=("1", "true", "yes", "y", "on"))


def from_mapping(values: Mapping[str, Value], root: str) -> OptionFile:
    """The options of a JSON or TOML file; `root` is the pointer of the mapping that holds them."""
    settings: dict[str, Value] = {}
    dashes = 0
    for pointer, value in values.items():
        if not pointer.startswith(f"{root}/"):
            continue
        written, slash, rest = pointer[len(root) + 1 :].partition("/")
        name = written.strip().lstrip("-")
        name = RENAMED.get(name, name)
        if slash:
            settings[f"{name}/{rest}"] = value
        elif value.value is not None and name:
            dashes += written.startswith("--") - (not written.startswith("-"))
            settings[name] = value
    return OptionFile(settings, root, dashed=dashes > 0)


def from_variables(values: Mapping[str, Value]) -> OptionFile:
    """The options of a config.env: the variables that the trainer maps, and the words of TRAINER_EXTRA_ARGS."""
    settings: dict[str, Value] = {}
    for pointer, value in values.items():
        name = pointer[1:]
        option = VARIABLES.get(name)
        if option is not None and str(value.value).lower() not in ("", "false"):  # which it does not hand on
            settings[option] = value
        elif name == _EXTRA:
            for key, word in options_in(str(value.value)):
                where = replace(value.where, pointer=f"{pointer}/{key}")  # no place of its own to be edited at
                settings[RENAMED.get(key, key)] = replace(value, value=word, where=where)
    return OptionFile(settings, spelling={option: name for name, option in VARIABLES.items()})


def options_of(run: Run) -> Written:
    return Written(run.settings, PARSED)
