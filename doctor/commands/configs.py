"""The configs that a command line names: files, folders to look through, and patterns that no shell filled in."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from glob import glob, has_magic
from pathlib import Path

from ..configs.text import format_of
from ..errors import UserError
from ..trainers.read import recognise

ENDINGS = (".yaml", ".yml", ".json", ".toml", ".env", ".sh", ".bat", ".ps1")
LARGEST = 1 << 20  # bytes; no config in a folder is larger
_ELSEWHERE = frozenset(("node_modules", "site-packages", "venv", "env", "__pycache__"))


def configs_of(words: Sequence[str]) -> list[str]:
    """The configs, each once, in the order of the words. Raises UserError for a word that leads to none."""
    found: dict[str, None] = {}
    for word in words:
        files = list(_files(word))
        if not files:
            raise UserError(
                f"{word} holds no config that zdoctor knows." if os.path.isdir(word) else f"{word} fits no file.",
                "Name the file of your trainer; --trainer NAME says whose it is, where its keys do not.",
            )
        found |= dict.fromkeys(files)
    return list(found)


def _files(word: str) -> Iterator[str]:
    if os.path.isdir(word):
        yield from _in_folder(word)
    elif has_magic(word) and not os.path.exists(word):
        yield from sorted(file for file in glob(word, recursive=True) if os.path.isfile(file))
    else:
        yield word


def _in_folder(folder: str) -> Iterator[str]:
    """The files in it, however deep, whose keys are those of a trainer; of what another program keeps, none."""
    for at, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _ELSEWHERE and not name.startswith("."))
        for name in sorted(names):
            if name.lower().endswith(ENDINGS) and _is_config(Path(at, name)):
                yield str(Path(at, name))


def _is_config(file: Path) -> bool:
    try:
        if not file.is_file() or file.stat().st_size > LARGEST:
            return False
        text = file.read_bytes().decode("utf-8", "replace")
    except OSError:
        return False
    return recognise(text, format_of(file.name, text)) is not None
