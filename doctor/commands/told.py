"""What a command tells the trainer: its own words, those of a script that it starts, or a config that it names."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ..configs.reading import text_of
from ..errors import UserError
from ..examine.config_file import beside
from ..files import fingerprints
from ..model.record import dataclass
from ..state import state_folder
from ..trainers.read import read_config, recognise
from . import console

_ENDINGS = (".yaml", ".yml", ".json", ".jsonc", ".toml", ".env")
_SCRIPTS = (".sh", ".bash", ".command", ".ps1", ".bat", ".cmd")
_SHELLS = {
    **dict.fromkeys(("sh", "bash", "dash", "ksh", "zsh"), ".sh"),
    **dict.fromkeys(("pwsh", "powershell"), ".ps1"),
    "cmd": ".bat",
}
_TEXT = re.compile(r"-[a-z]*c|/[ck]|-command", re.I)  # behind it stands a text, not a file
_LARGEST = 1 << 20


@dataclass(frozen=True)
class Told:
    """A config. Where it is a file that was made of words of the command, `start:end` are these words.

    `by_name` where the command names it and what else the command says was not read.
    """

    config: str
    start: int = 0
    end: int = 0
    by_name: bool = False

    @property
    def is_made(self) -> bool:
        return self.end > 0

    def command(self, words: Sequence[str]) -> list[str]:
        """The command as the config has it now: a repair may have changed its words."""
        if not self.is_made:
            return list(words)
        text = Path(self.config).read_text(encoding="utf-8")
        changed = shlex.split(text) if self.end - self.start == len(words) else [text]
        return [*words[: self.start], *changed, *words[self.end :]]


def told_by(command: Sequence[str]) -> Told | None:
    """What is to be checked before a command is started; None where nothing is known of it."""
    script = _script(command) or _made(shlex.join(command) + "\n", ".sh", 0, len(command))
    if script is not None:
        return script
    named = config_in(command)
    return None if named is None else Told(named, by_name=True)


def config_of(words: Sequence[str], config: str | None = None) -> tuple[str, bool]:
    """The config that the words of a command are, or name, and whether it was made of them.

    Raises UserError where nothing is known of them, or where a `config` was named beside them.
    """
    if config is not None:
        raise UserError(f"{config} and a command were named.", "zdoctor check CONFIG, or check -- COMMAND")
    known = told_by(words)
    if known is None and (named := config_in(("", *words))) is not None:
        return named, False
    if known is None:
        raise UserError(
            "zdoctor knows neither what the command starts nor a config that it names.",
            "zdoctor check -- accelerate launch train_network.py --config_file train.toml",
        )
    if known.by_name:
        console.tell(f"{known.config}, which the command names, is looked at; its other words are not.")
    return known.config, known.is_made


def config_in(command: Sequence[str]) -> str | None:
    """The word of a command that names a config which zdoctor reads."""
    for word in command[1:]:
        name = word.partition("=")[2] if word.startswith("--") and "=" in word else word
        path = Path(name)
        with suppress(OSError, ValueError):
            if path.suffix.lower() in _ENDINGS and path.is_file():
                config = text_of(name, path.read_bytes())
                if config.problem is not None or recognise(config.text, config.format) is not None:
                    return name
    return None


def _script(command: Sequence[str]) -> Told | None:
    """The script, or the text, that a shell is to run."""
    ending = ""
    for index, word in enumerate(command):
        name = re.split(r"[/\\]", word)[-1].lower()
        if name.endswith(_SCRIPTS) and _trains_by(word):
            return Told(word)
        if name.endswith(".py"):
            return None
        if ending and _TEXT.fullmatch(word) and index + 1 < len(command):
            end = index + 2 if ending == ".sh" else len(command)
            if made := _made(" ".join(command[index + 1 : end]), ending, index + 1, end):
                return made
        if ending == ".sh" and not word.startswith("-") and _trains_by(word):
            return Told(word)
        ending = _SHELLS.get(name.removesuffix(".exe"), ending)
    return None


def _made(text: str, ending: str, start: int, end: int) -> Told | None:
    """A file of words that start a training, to be checked and repaired. Tokens may be in it: it is the owner's."""
    file = state_folder() / "commands" / f"{fingerprints.of_texts(text, length=12)}{ending}"
    if not _trains(str(file), text.encode("utf-8", "surrogateescape")):
        return None
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with open(file, "w", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, 0o600)) as written:
            written.write(text)
    except (OSError, ValueError):
        return None
    return Told(str(file), start, end)


def _trains_by(path: str) -> bool:
    """Whether there is a script of this name that starts a training."""
    with suppress(OSError, ValueError):
        file = Path(path)
        if file.is_file() and file.stat().st_size < _LARGEST:
            return _trains(path, file.read_bytes())
    return False


def _trains(path: str, data: bytes) -> bool:
    """Whether a script starts a training that zdoctor knows."""
    if recognise(data.decode("utf-8", "replace"), "shell") is None:
        return False
    reading = read_config(path, data, os.environ, beside=beside(path))
    return bool(reading.runs) or reading.config.problem is not None
