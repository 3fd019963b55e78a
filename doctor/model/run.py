"""The config, as read: its text (`Config`) and the training runs it asks for (`Run`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from .recipe import Recipe
from .record import dataclass, field
from .trainer import RUNNER

Settings = Mapping[str, "Value"]


@dataclass(frozen=True)
class Where:
    """A place in a file. Lines and columns count from 1; `pointer` is a JSON pointer into the parsed tree."""

    path: str
    line: int | None = None
    column: int | None = None
    pointer: str | None = None


@dataclass(frozen=True)
class Value:
    """One written config value and the place of its source text.

    `value` is what the trainer's own reader makes of it (lists and mappings as plain Python objects);
    `start` and `end` are character offsets of the value in `Config.text`, quotes included;
    `style` is the quote character, "" for a plain scalar, "|" or ">" for a block, None for a list or mapping.
    `earlier` are the values that the same key has further up in the same mapping: the parser drops them.
    `unknown` says why what is written in a script is not what the program gets, "" where it is.
    """

    value: Any
    where: Where
    start: int
    end: int
    style: str | None = ""
    earlier: tuple[Value, ...] = ()
    unknown: str = ""


@dataclass(frozen=True)
class Problem:
    """Why a file could not be read: what the parser said, where, and how it would have ended in the trainer.

    Of what is too large or `foreign`, no config of a trainer that is known, that cannot be said; what is `misread` is
    taken, for something else.
    """

    message: str
    where: Where
    kind: Literal["syntax", "encoding", "environment", "shape", "size", "foreign", "misread"] = "syntax"


@dataclass(frozen=True)
class Config:
    """A config file as it lies on disk. `problem` is None when the trainer's own reader would accept it.

    `text` is exact: a byte-order mark and the line ends are in it, and
    `text.encode(encoding, "surrogateescape")` gives the bytes of the file. Offsets of steps count in it.
    `values` holds every written value of the whole file by its JSON pointer; it is empty when `problem` is set.
    `beside` are the files that this one names and that hold settings of its runs.
    """

    path: str
    text: str
    trainer: str | None
    problem: Problem | None = None
    encoding: str = "utf-8"
    byte_order_mark: bool = False
    format: Literal["yaml", "json", "toml", "env", "shell", "python"] = "yaml"
    values: Mapping[str, Value] = field(default_factory=dict)
    beside: tuple[Config, ...] = ()

    def file(self, path: str) -> Config:
        """This config, or the one beside it at `path`."""
        return next((config for config in self.beside if config.path == path), self)


@dataclass(frozen=True)
class Run:
    """One training run in words that every trainer shares; what was not written holds the trainer's own default.

    `settings` maps every written key of the run, relative to `root` ("model/quantize", "datasets/0/folder_path"),
    to its Value, in document order; `keys` maps the field names of this class and of its recipe (SHORT_NAMES, else
    "group.field") to the settings key they came from, written or not. So `run.where("base_model")` always finds the
    best place to point at.
    `homes` says for settings that lie in another file, by their first part ("datasets"), its path and the pointer
    they are below; `spelled` how a key that is not written yet would be spelled. `read` are the settings keys that
    were asked for. `refused` are settings, each with a sentence, that zdoctor's own runner would not obey, and
    `differences` sentences of what it does in another way than the trainer. `unread` says what may hold any other
    setting and could not be read, "" where all was.
    """

    trainer: str
    config: str
    root: str
    index: int
    kind: Literal["lora", "finetune", "other"]
    process_type: str
    name: str
    recipe: Recipe = Recipe()
    device: str = "cuda"
    output_folder: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    settings: Settings = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)
    homes: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    spelled: Mapping[str, str] = field(default_factory=dict)
    refused: tuple[tuple[str, str], ...] = ()
    differences: tuple[str, ...] = ()
    read: frozenset[str] = frozenset()
    unread: str = ""

    @property
    def by_runner(self) -> bool:
        """Whether zdoctor's own runner trains this run, not the trainer whose config it is."""
        return self.trainer == RUNNER

    def written(self, name: str) -> Value | None:
        """The Value behind a field of this class ("base_model") or a settings key ("model/qtype"), if written."""
        return self.settings.get(self.keys.get(name, name))

    def setting(self, key: str, default: Any = None) -> Any:
        """What is written for a settings key; `default` where nothing or null is."""
        found = self.settings.get(key)
        return default if found is None or found.value is None else found.value

    def unknown(self, *names: str) -> str:
        """Why one of these fields or keys is not known, "" where all are."""
        written = (self.written(name) for name in names)
        why = next((value.unknown for value in written if value is not None and value.unknown), "")
        return why or (self.unread if any(self.written(name) is None for name in names) else "")

    def where(self, name: str) -> Where:
        """The place of a field or key; of its nearest written parent when the key itself is not in the file."""
        key = self.keys.get(name, name)
        while True:
            found = self.settings.get(key)
            if found is not None:
                return found.where
            if "/" not in key:
                home, root = self.homes.get(key, (self.config, self.root))
                return Where(home, pointer=root)
            key = key.rsplit("/", 1)[0]

    def pointer(self, name: str) -> str:
        """JSON pointer of a field or key in its file, whether it is written or not; `where` names the file."""
        key = self.keys.get(name, name)
        written = self.settings.get(key)
        if written is not None and written.where.pointer is not None:
            return written.where.pointer
        section, slash, rest = key.partition("/")
        if section in self.homes:
            return f"{self.homes[section][1]}{slash}{rest}"
        return f"{self.root}/{self.spelled.get(key, key)}"


def repeats_of(folder: str) -> int:
    """How often sd-scripts repeats the pictures of a folder of this name ("10_cat"); 0 when it passes it over."""
    head = folder.split("_")[0].strip()
    return max(0, int(head)) if head.isdigit() and head.isascii() and len(head) < 10 else 0
