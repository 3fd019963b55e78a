"""A config file becomes text, the text a tree, the tree values with their places, for every trainer's reader."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..model import Config, Problem, Run, Value, Where
from ..model.pattern import pattern
from ..model.record import dataclass, replace
from .node import TOO_MANY, Node, escaped, most_values
from .parse import parse
from .text import Expanded, Lines, expand, format_of

MOST_RUNS = 32
LARGEST = 2_000_000
FILES = {
    "yaml": "YAML file",
    "json": "JSON file",
    "toml": "TOML file",
    "env": "file of shell variables",
    "shell": "script",
}
# how the first line of a text begins that is no comment, also of one with a slip in it
_BEGINS = {
    "json": pattern(r"\ufeff?(?:\s+|//[^\n]*|#[^\n]*|/\*[\s\S]*?\*/)*(?:[\[{]|$)"),
    "toml": pattern(r"\ufeff?(?:\s+|#[^\n]*)*(?:\[|(?!--\w+(?:[ =]\S+)?[ ]+--)[\w\"'.\-][\w\"'. \-]*[=:]|$)"),
}


@dataclass(frozen=True)
class Reading:
    """A config and the training runs it asks for. `reason` says why there are none."""

    config: Config
    runs: tuple[Run, ...] = ()
    reason: str = ""


@dataclass(frozen=True)
class Found:
    """A file that a config names, as it lies on disk."""

    path: str
    data: bytes


Beside = Callable[[str], Found | None]
"""Finds a file by the name that a config gives it; None when it is not there. Asked for text files only."""


def nothing(name: str) -> Found | None:
    """A `Beside` that finds no file."""
    return None


def text_of(path: str, data: bytes) -> Config:
    """The file as text, not parsed yet. What is no text, or text that the trainer cannot decode, has a problem."""
    if len(data) > LARGEST:
        size = f"{LARGEST // 10**6} MB"
        message = f"The file has more than {size}, but a training config has a few kB: this is something else."
        return _read(path, "", Problem(message, Where(path), "size"))
    if wide := _utf16(data):
        if marked := data.startswith((b"\xff\xfe", b"\xfe\xff")):
            how = '(Notepad\'s "Unicode")'
            stop = f"with: 'utf-8' codec can't decode byte 0x{data[0]:02x} in position 0: invalid start byte"
        else:
            how, stop = "(without a byte-order mark)", "at the zero byte beside each letter."
        message = f"The file is saved as UTF-16 {how}; the trainer reads UTF-8 only and would stop {stop}"
        text = data.decode(wide, "surrogateescape" if len(data) % 2 == 0 else "replace")
        taken = marked and path.lower().endswith(".ps1")  # PowerShell reads it
        return _read(
            path, text, None if taken else Problem(message, Where(path, 1, 1), "encoding"), wide, mark=marked
        )
    text = data.decode("utf-8", "surrogateescape")
    problem = None if format_of(path, text) == "shell" else _not_utf8(path, data, text)  # a shell takes any bytes
    if "\0" in text:
        where = Lines(path, text).where(text.index("\0"))
        problem = Problem("The file holds NUL bytes: it is binary, not a text config.", where, "encoding")
    return _read(path, text, problem, mark=text.startswith("\ufeff"))


def _not_utf8(path: str, data: bytes, text: str) -> Problem | None:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        where = Lines(path, text).where(len(data[: error.start].decode("utf-8", "surrogateescape")))
        message = (
            f"The byte 0x{data[error.start]:02x} is not UTF-8 (the file was probably saved as ANSI/Windows-1252); "
            f"the trainer would stop with: {error}"
        )
        return Problem(message, where, "encoding")
    return None


def _read(path: str, text: str, problem: Problem | None, encoding: str = "utf-8", *, mark: bool = False) -> Config:
    return Config(path, text, None, problem, encoding, mark, format_of(path, text))


def _utf16(data: bytes) -> str:
    """The UTF-16 that a text is in, "" where it is in none; one without a mark has zeros as every other byte."""
    half = len(data) // 2
    for encoding, mark, first in (("utf-16-le", b"\xff\xfe", 1), ("utf-16-be", b"\xfe\xff", 0)):
        zeros = 0 < half == len(data) / 2 and 10 * data[first::2].count(0) > 9 * half
        if data.startswith(mark) or (zeros and 0 not in data[1 - first :: 2]):
            return encoding
    return ""


def tree_of(config: Config, variables: Mapping[str, str] | None = None) -> Node | Problem:
    """The text as a tree. `variables` fill its `${NAME}`, for a trainer that does so before it parses."""
    if config.problem is not None:
        return config.problem
    expanded = Expanded(config.text) if variables is None else expand(config.path, config.text, variables)
    if isinstance(expanded, Problem):
        return expanded
    root = parse(config.path, expanded, config.format, Lines(config.path, config.text))
    if isinstance(root, Node) and _too_many(root, most_values(expanded.text)):
        return Problem(TOO_MANY, Where(config.path), "size")
    return root


def failed(config: Config, problem: Problem) -> Reading:
    return Reading(replace(config, problem=problem), reason=problem.message)


def nobodys(config: Config, held: str) -> Problem:
    """What is said of a file in which nothing shows whose config it is; `held` is what it holds."""
    kind = FILES[config.format]
    said = f"This {kind} is no training config that zdoctor knows."
    if held:
        said = f"This {kind} is no training config that zdoctor knows: it holds {held}."
    return Problem(said, Where(config.path, 1, 1), "foreign")


def begins_as_named(config: Config) -> bool:
    """Whether a text begins as its file's name promises: code, a command or prose begins in another way."""
    begins = _BEGINS.get(config.format)
    return begins is None or begins.match(config.text) is not None


def wrong(config: Config, message: str) -> Reading:
    """A text that parses and is not what the trainer takes."""
    return failed(config, Problem(message, Where(config.path, 1, 1), "shape"))


def values_of(root: Node, config: Config) -> dict[str, Value]:
    """Every value of its tree by JSON pointer, in document order."""
    lines = Lines(config.path, config.text)
    made: dict[str, Value] = {}
    stack: list[tuple[str, Node]] = [("", root)]
    while stack:
        pointer, node = stack.pop()
        made[pointer] = _value(pointer, node, lines)
        stack.extend(reversed([(f"{pointer}/{escaped(key)}", child) for key, child in node.items()]))
    del made[""]
    return made


def _value(pointer: str, node: Node, lines: Lines) -> Value:
    at = node.key[0] if node.key is not None and (node.block or node.start == node.end) else node.start
    earlier = tuple(_value(pointer, one, lines) for one in node.earlier)
    return Value(node.value, lines.where(at, pointer), node.start, node.end, node.style, earlier)


def _too_many(root: Node, most: int) -> bool:
    """Whether a tree has more values than `most`, its anchors unfolded."""
    stack, seen = [root], 0
    while stack and seen <= most:
        stack.extend(child for _, child in stack.pop().items())
        seen += 1
    return seen > most
