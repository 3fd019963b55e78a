"""How kohya's scripts are started: options on a command line, in a `--config_file`, and the datasets they name."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from itertools import islice, pairwise, takewhile
from typing import Any

from ...configs.command import Command, Word
from ...configs.command_line import commands
from ...configs.node import TOO_MANY, Node, Unreadable, most_values
from ...configs.reading import Beside, text_of, tree_of, values_of
from ...configs.text import Lines
from ...configs.words import words
from ...configs.written import Dialect, Written
from ...model import Config, Problem, Run, Value, Where
from ...model.record import dataclass, replace
from ...model.unfinished import ABRIDGED_COMMAND

# options that take several values; of the others a second one is an unrecognized argument
LISTS = words("network_args optimizer_args lr_scheduler_args base_weights base_weights_multiplier text_encoder_lr")
# what the parser hands on: a number on a command line is a text in the file
PARSED = Dialect(words=True)
DATASET_SECTIONS = frozenset(("general", "datasets"))
_NUMBER = re.compile(r"-\.?\d")
STRAY = "argparse/stray"  # the setting of a run whose command has words that no option takes: its option, then they


# programs that speak of a script and do not start it
_SPEAKS = words("""
    echo printf cat ls cp mv rm ln grep egrep sed awk find head tail wc diff touch chmod chown test [ [[ wget curl git
    pkill pgrep kill ps nano vim vi code mkdir stat file md5sum sha256sum patch rem title type dir copy move del
    findstr write-host write-output test-path get-content copy-item move-item remove-item
    """)
# programs that name a file or folder and put nothing into it
_MAKES_NOTHING = _SPEAKS - words("cp mv ln sed touch wget curl git copy move copy-item move-item patch") | words(
    "cd pushd export exit source . read set"
)
# with one of these a script shows something, or writes a file of settings, and trains nothing
_TRAINS_NOTHING = re.compile(r"-h|--help|--(?:show_timesteps|debug_dataset|output_config)(?:=.*)?")
_CACHES = re.compile(r"(?:\w+_)?cache_(?:latents|text_encoder_outputs|pixel)")
_READS = ("--dataset_config", "--config_file")
# a variable that, by its name, holds options
_SEVERAL = re.compile(r"(?i)[$@%]\{?\w*(?:arg|opt|extra|flag|param)|\$\{?[@*]|\[[@*]\]")
_PATH = re.compile(r".*[/\\]|.*\.(?:toml|safetensors|sft|txt|jsonl?|pth?|ckpt)$")
_ABSOLUTE = re.compile(r"/|~|\\|[A-Za-z]:")


@dataclass(frozen=True)
class Start:
    """One start of a script: its options by name, and those of `accelerate launch` in front of it.

    `script` is "" where only a config file is known; `files` are the config files that options came from, `visible`
    the CUDA_VISIBLE_DEVICES that the text sets. `unread` says what may hold other options and could not be read.
    """

    script: str
    options: Mapping[str, Value]
    launch: Mapping[str, Any]
    files: tuple[Config, ...] = ()
    visible: str | None = None
    unread: str = ""


def starts(
    config: Config, environment: Mapping[str, str], beside: Beside, script: re.Pattern[str]
) -> tuple[Start, ...] | Problem:
    """Every start of a script whose name `script` matches, with the options of its `--config_file`.

    Where a text starts only what fills the caches, or shows something, the datasets that these are told.
    """
    lines = Lines(config.path, config.text)
    try:
        written = commands(config.path, config.text, environment)
    except Unreadable as error:
        return Problem(str(error), lines.where(error.offset), "syntax")
    made: list[Start] = []
    caches: list[Start] = []
    makers: set[str] = set()
    for command in written:
        at = _started(command, script)
        if at is None or any(_TRAINS_NOTHING.fullmatch(word.text) for word in command.words[at + 1 :]):
            caches += _cache(config, command, _CACHES if at is None else script, lines)
            makers |= _named_by(command)
            continue
        if command.broken is not None:
            message = (
                "the command ends before this place, because the line above does not go on: "
                f"{_CONTINUATION[command.shell]} must be the very last character of each line but the last"
            )
            return Problem(message, lines.where(command.broken), "syntax")
        if len(command.words) > most_values(config.text):
            return Problem(TOO_MANY, lines.where(command.start), "size")
        start = _start(config, command, at, makers, lines, beside)
        if isinstance(start, Problem):
            return start
        made.append(start)
        if (output := start.options.get("output_dir")) is not None:
            makers.add(str(output.value).rstrip("/\\"))
    return tuple(made or caches)


_CONTINUATION = {"bash": "\\", "powershell": "`", "cmd": "^"}


def _started(command: Command, script: re.Pattern[str]) -> int | None:
    """Which word of a command is the script that it starts."""
    if _program(command) in _SPEAKS:
        return None
    return next((i for i, word in enumerate(command.words) if script.fullmatch(_stem(word.text))), None)


def _program(command: Command) -> str:
    return re.split(r"[/\\]", command.words[0].text.lstrip("@"))[-1].lower().removesuffix(".exe")


def _cache(config: Config, command: Command, which: re.Pattern[str], lines: Lines) -> list[Start]:
    """The datasets that a script is told which fills caches, or which trains nothing for another reason."""
    at = _started(command, which)
    if at is None or command.broken is not None:
        return []
    options, _ = _options(config.text, command.words[at + 1 :], lines)
    return [Start("datasets", {name: options[name]}, {}) for name in ("dataset_config",) if name in options]


def _named_by(command: Command) -> set[str]:
    """The files and folders that a command may have written."""
    made = set(command.files)
    if _program(command) not in _MAKES_NOTHING and _started(command, _CACHES) is None:
        pairs = pairwise(("", *(word.text for word in command.words)))
        made |= {text.partition("=")[2] or text for before, text in pairs if before not in _READS}
    return {name.rstrip("/\\") for name in made if len(name) > 2}


def _start(
    config: Config, command: Command, at: int, makers: set[str], lines: Lines, beside: Beside
) -> Start | Problem:
    """The start of the script that a command's word names."""
    options, unread = _options(config.text, command.words[at + 1 :], lines)
    options = {
        name: _as_found(value, command, makers if name != "output_dir" else set()) for name, value in options.items()
    }
    # the parser takes the beginning of a name for the whole
    named = next((value for name, value in options.items() if name[3:] and "config_file".startswith(name)), None)
    file = None if named is None or not isinstance(named.value, str) else f"{named.value.removesuffix('.toml')}.toml"
    tree = None
    if named is not None and named.unknown:
        unread = f"--config_file {named.value}: {named.unknown}"
    elif named is not None and file is not None:
        tree = tree_beside(file, beside)
        if tree is None:
            unread = f"--config_file {named.value}: the file is not here"
            options["config_file"] = replace(named, value=file)
    if isinstance(tree, Problem):
        return tree
    beneath = flat(*tree) if tree is not None else {}
    if any(word.text == "xargs" for word in command.words[:at]):
        unread = unread or _SHELL_ONLY.format("what xargs puts behind it")
    files = (tree[1],) if tree is not None else ()
    launch = {name: value.value for name, value in _options(config.text, command.words[:at], lines)[0].items()}
    return Start(_stem(command.words[at].text), {**beneath, **options}, launch, files, command.visible, unread)


def _as_found(value: Value, command: Command, makers: set[str]) -> Value:
    """A path that another command may make, or that is named from elsewhere, is not known."""
    text = value.value
    if value.unknown or not isinstance(text, str) or not _PATH.match(text):
        return value
    plain = text.replace("\\", "/")
    above = {plain, *(plain[:end] for end, sign in enumerate(plain) if sign == "/")}
    if makers.intersection(above | {text}):
        return replace(value, unknown="a command above it may write that")
    if command.moved and not _ABSOLUTE.match(text):
        return replace(value, unknown="the script leaves the folder that it is started in")
    return value


def _stem(text: str) -> str:
    """The name of a script: of `path/x.py` and of the module `package.x`."""
    name = re.split(r"[/\\]", text)[-1]
    return (
        name[:-3] if name.endswith(".py") else name.rpartition(".")[2] if re.fullmatch(r"\w+(\.\w+)+", name) else ""
    )


def _options(text: str, words: tuple[Word, ...], lines: Lines) -> tuple[dict[str, Value], str]:
    """The options among words, and what may hold more; one that is given twice counts as written last."""
    made: dict[str, Value] = {}
    unread, last_name = "", ""
    stray: list[tuple[str, Word]] = []
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        name, equals, value = word.text.removeprefix("--").partition("=")
        if not word.text.startswith("--") or not re.fullmatch(r"[A-Za-z][\w-]*", name):
            unread = unread or (ABRIDGED_COMMAND if _MORE.match(word.text) else "")
            unread = unread or (_SHELL_ONLY.format(word.text) if not word.known else "")
            if last_name and not unread and _is_value(word) and re.search(r"\w", word.text):
                stray.append((last_name, word))
            continue
        last_name = name
        if equals:
            start = text.find("=", word.start, word.end) + 1 if word.plain else word.start
            quote = text[start] if text[start : start + 1] in ('"', "'") and word.plain else ""
            given = [replace(word, text=value, start=start, style=quote)]
        else:
            following = takewhile(_is_value, words[index:])
            given = list(following if name in LISTS else islice(following, 1))
            index += len(given)
            several = next((one.text for one in given if one.many and _SEVERAL.search(one.text)), "")
            unread = unread or (_SHELL_ONLY.format(several) if several else "")
            unread = unread or (ABRIDGED_COMMAND if given and _MORE.match(given[0].text) else "")
        made.pop(name, None)
        first, last = (given[0], given[-1]) if given else (word, word)
        where = lines.where(first.start, f"/{name}")
        unknown = next((_SHELL_ONLY.format(one.text or "it") for one in given if not one.known), "")
        unknown = unknown or (ABRIDGED_COMMAND if given and _MORE.match(first.text) else "")
        if name in LISTS:
            made[name] = Value([one.text for one in given], where, first.start, last.end, None, (), unknown)
        elif given:
            made[name] = Value(first.text, where, first.start, first.end, first.style, (), unknown)
        else:
            made[name] = Value(True, where, first.start, first.end)
    if stray:
        behind, first = stray[0]
        found = [behind, *(word.text for name, word in stray if name == behind)]
        made[STRAY] = Value(found, lines.where(first.start, f"/{behind}"), first.start, first.end)
    return made, unread


_SHELL_ONLY = "{} is what only the shell can tell"
_GIVEN = re.compile(r"--[A-Za-z][\w-]*=")
_MORE = re.compile(r"[(\[<]*(?:\.\.\.|…)|\[[a-z]")  # [other options], too: no value stands behind nothing


def _is_value(word: Word) -> bool:
    """As argparse tells words from options; a shell has taken the quotes away."""
    text = word.text
    spaced = " " in text and not _GIVEN.match(text)
    return not text.startswith("-") or bool(_NUMBER.match(text)) or text == "-" or spaced


def tree_beside(name: str, beside: Beside) -> tuple[Node, Config] | Problem | None:
    """The file of this name as a tree; None where it is not there, which a rule says."""
    found = beside(name)
    if found is None:
        return None
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


# of the kind that a section may be named after
_MODELS = frozenset(
    (
        *("sd", "sd15", "sd21", "sdxl", "sd3", "sd35", "flux", "flux1", "flux2", "chroma"),
        *("lumina", "hunyuan", "wan", "qwen", "zimage", "krea", "anima"),
    )
)


def offers_a_choice(root: Node) -> bool:
    """Whether sections share options, or one is a model's: kohya's trainers flatten them, others take one."""
    named = root.children if isinstance(root.children, dict) else {}
    sections = [node.children for node in named.values()]
    if any(isinstance(node.children, dict) and name.lower() in _MODELS for name, node in named.items()):
        return True
    names = Counter(name for section in sections if isinstance(section, dict) for name in section)
    return sum(count > 1 for count in names.values()) >= 3


def datasets_of(root: Node, config: Config) -> dict[str, Value]:
    """Every value of a dataset file by its key, such as `datasets/0/subsets/1/image_dir`.

    What stands outside of both its sections is no option of the training; its keys begin with `dataset_config/`.
    """
    return {
        ("" if pointer.split("/")[1] in DATASET_SECTIONS else "dataset_config/") + pointer[1:]: value
        for pointer, value in values_of(root, config).items()
    }


def is_datasets(root: Node) -> bool:
    """Whether a file holds datasets and no options."""
    return (
        isinstance(root.children, dict) and "datasets" in root.children and root.children.keys() <= DATASET_SECTIONS
    )


def options_of(run: Run) -> Written:
    return Written(run.settings, PARSED)
