"""How kohya's scripts are started: options on a command line, in a `--config_file`, and the datasets they name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice, takewhile
from typing import Any

from ...configs.command_line import Word, commands
from ...configs.node import TOO_MANY, Node, Unreadable, most_values
from ...configs.reading import Beside, text_of, tree_of, values_of
from ...configs.text import Lines
from ...configs.words import words
from ...configs.written import Dialect, Written
from ...model import Config, Problem, Run, Value, Where
from ...model.record import dataclass

# options that take several values; of the others a second one is an unrecognized argument
LISTS = words("network_args optimizer_args lr_scheduler_args base_weights base_weights_multiplier text_encoder_lr")
# what the parser hands on: a number on a command line is a text in the file
PARSED = Dialect(words=True)
_NUMBER = re.compile(r"-\.?\d")


@dataclass(frozen=True)
class Start:
    """One start of a script: its options by name, and those of `accelerate launch` in front of it.

    `script` is "" where only a config file is known; `files` are the config files that options came from, `visible`
    the CUDA_VISIBLE_DEVICES that the text sets.
    """

    script: str
    options: Mapping[str, Value]
    launch: Mapping[str, Any]
    files: tuple[Config, ...] = ()
    visible: str | None = None


def starts(
    config: Config, environment: Mapping[str, str], beside: Beside, script: re.Pattern[str]
) -> tuple[Start, ...] | Problem:
    """Every start of a script whose name `script` matches, with the options of its `--config_file`."""
    lines = Lines(config.path, config.text)
    try:
        written = commands(config.path, config.text, environment)
    except Unreadable as error:
        return Problem(str(error), lines.where(error.offset), "syntax")
    made: list[Start] = []
    for command in written:
        at = next((i for i, word in enumerate(command.words) if script.fullmatch(_stem(word.text))), None)
        if at is None:
            continue
        if command.broken is not None:
            message = (
                "the command ends before this place, because the line above does not go on: "
                f"{_CONTINUATION[command.shell]} must be the very last character of each line but the last"
            )
            return Problem(message, lines.where(command.broken), "syntax")
        if len(command.words) > most_values(config.text):
            return Problem(TOO_MANY, lines.where(command.start), "size")
        options = _options(config.text, command.words[at + 1 :], lines)
        tree = _config_file(options.get("config_file"), beside)
        if isinstance(tree, Problem):
            return tree
        beneath = flat(*tree) if tree is not None else {}
        files = (tree[1],) if tree is not None else ()
        launch = {name: value.value for name, value in _options(config.text, command.words[:at], lines).items()}
        made.append(Start(_stem(command.words[at].text), {**beneath, **options}, launch, files, command.visible))
    return tuple(made)


_CONTINUATION = {"bash": "\\", "powershell": "`", "cmd": "^"}


def _stem(text: str) -> str:
    """The name of a script: of `path/x.py` and of the module `package.x`."""
    name = re.split(r"[/\\]", text)[-1]
    return (
        name[:-3] if name.endswith(".py") else name.rpartition(".")[2] if re.fullmatch(r"\w+(\.\w+)+", name) else ""
    )


def _options(text: str, words: tuple[Word, ...], lines: Lines) -> dict[str, Value]:
    """The options among words; one that is given twice counts as written last."""
    made: dict[str, Value] = {}
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        name, equals, value = word.text.removeprefix("--").partition("=")
        if not word.text.startswith("--") or not re.fullmatch(r"[A-Za-z][\w-]*", name):
            continue
        if equals:
            start = text.find("=", word.start, word.end) + 1 if word.plain else word.start
            quote = text[start] if text[start : start + 1] in ('"', "'") and word.plain else ""
            given = [Word(value, start, word.end, quote, word.plain)]
        else:
            following = takewhile(_is_value, words[index:])
            given = list(following if name in LISTS else islice(following, 1))
            index += len(given)
        made.pop(name, None)
        first, last = (given[0], given[-1]) if given else (word, word)
        where = lines.where(first.start, f"/{name}")
        if name in LISTS:
            made[name] = Value([one.text for one in given], where, first.start, last.end, None)
        elif given:
            made[name] = Value(first.text, where, first.start, first.end, first.style)
        else:
            made[name] = Value(True, where, first.start, first.end)
    return made


def _is_value(word: Word) -> bool:
    return not word.text.startswith("-") or bool(_NUMBER.match(word.text)) or bool(word.style)


def _config_file(named: Value | None, beside: Beside) -> tuple[Node, Config] | Problem | None:
    """The `--config_file` as a tree; its ending may be left out."""
    if named is None or not isinstance(named.value, str):
        return None
    return tree_beside(named.value if named.value.endswith(".toml") else named.value + ".toml", named, beside)


def tree_beside(name: str, named: Value, beside: Beside) -> tuple[Node, Config] | Problem:
    """The file that `named` names, as a tree."""
    if "$" in name or "%" in name:
        return Problem(f"{name} holds a variable that nothing here sets.", named.where, "environment")
    found = beside(name)
    if found is None:
        return Problem(f"{name} does not exist: the trainer stops at once.", named.where, "shape")
    config = text_of(found.path, found.data)
    tree = tree_of(config)
    if isinstance(tree, Problem):
        return tree
    if not isinstance(tree.children, dict):
        return Problem(f"{name} is no table of settings.", Where(found.path, 1, 1), "shape")
    return tree, config


def flat(root: Node, config: Config) -> dict[str, Value]:
    """The options of a config file: its sections are only for the eye, and the last value of a name counts."""
    values = values_of(root, config)
    made: dict[str, Value] = {}
    for pointer, value in values.items():
        parts = pointer.split("/")[1:]
        inside = len(parts) == 2 and isinstance(values["/" + parts[0]].value, dict)
        if inside or (len(parts) == 1 and not isinstance(value.value, dict)):
            made.pop(parts[-1], None)
            made[parts[-1]] = value
    return made


def datasets_of(root: Node, config: Config) -> dict[str, Value]:
    """Every value of a dataset file by its key, such as `datasets/0/subsets/1/image_dir`."""
    return {pointer[1:]: value for pointer, value in values_of(root, config).items()}


def is_datasets(root: Node) -> bool:
    """Whether a file holds datasets and no options."""
    return (
        isinstance(root.children, dict)
        and "datasets" in root.children
        and set(root.children) <= {"general", "datasets"}
    )


def options_of(run: Run) -> Written:
    return Written(run.settings, PARSED)
