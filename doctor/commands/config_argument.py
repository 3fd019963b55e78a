"""Which config a command works on: how it is named, and which one is meant when it is not."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from .. import state
from ..errors import UserError
from ..rules import all_rules
from ..trainers import named, names


def config_argument(parser: argparse.ArgumentParser, help: str = "the trainer's config file") -> None:
    parser.add_argument("config", nargs="?", metavar="CONFIG", help=help)


def trainer_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--trainer",
        metavar="NAME",
        type=_trainer,
        help=f"whose config it is, where its keys do not say so ({', '.join(names())})",
    )


def _trainer(word: str) -> str:
    """The trainer that is meant, of those that plug-ins bring, too. Raises ArgumentTypeError."""
    if named(word) is None:
        all_rules()  # which makes known what plug-ins bring
    found = named(word)
    if found is None:
        raise argparse.ArgumentTypeError(f"invalid choice: {word!r} (choose from {', '.join(names())})")
    return found.name


def machine_arguments(parser: argparse.ArgumentParser) -> None:
    """The machine and trainer that a config is looked at for."""
    parser.add_argument(
        "--machine", metavar="FACTS.json", help="check against a recorded machine (zdoctor facts); here: this one"
    )
    trainer_argument(parser)
    parser.add_argument(
        "--trainer-source",
        metavar="DIR",
        help="a checkout of the trainer, whose keys then count (found beside the config)",
    )


def base_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--base",
        metavar="MODEL",
        help="the model that a LoRA is for: a file, a folder, or the name of a published one",
    )


def deep_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--deep",
        action="store_true",
        help="also read the cached model files as a whole and compare their sha256 (goes on where it was stopped)",
    )


def format_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--format", choices=("text", "json"), default="text", help="json is for programs (docs/json.md)"
    )


def command_words(parser: argparse.ArgumentParser) -> None:
    """What stands behind a "--": a command in place of a config."""
    parser.set_defaults(words=[])
    parser.epilog = (
        "Behind -- a command is looked at, for what it would start, with its words, as `zdoctor run` reads it."
    )


def asked_for(options: argparse.Namespace) -> dict[str, Any]:
    """What check and fix both take, by the names that `examined` gives it."""
    alike = ("machine", "deep", "trainer", "trainer_source", "base")
    return {"selected": options.select, **{name: getattr(options, name) for name in alike}}


def comma_separated(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def named_or_found(given: str | None) -> str:
    """The config to work on, as the command line's help says. Raises UserError where none or several are found."""
    found = given if given is not None else config_in_reach()
    if found is None:
        told = "no config was named, and no ai-toolkit or SimpleTuner config is here."
        raise UserError(told, "zdoctor check CONFIG")
    return found


def config_in_reach() -> str | None:
    """The config that is meant where none is named; None where there is none. Raises UserError where several are."""
    if remembered := state.recall():
        return remembered
    names = [p.name for pattern in ("*.yaml", "*.yml") for p in sorted(Path().glob(pattern))]
    found = [name for name in names if _is_ai_toolkit(Path(name))]
    if len(found) == 1:
        return found[0]
    if found:
        raise UserError(f"there are {len(found)} configs here: {', '.join(found[:4])}.", "zdoctor check CONFIG")
    for name in ("config/config.json", "config/config.toml", "config/config.env"):  # SimpleTuner's own, in its order
        if Path(name).is_file():
            return name
    return None


def _is_ai_toolkit(file: Path) -> bool:
    try:
        if not file.is_file():  # a pipe would wait for someone to write to it
            return False
        with file.open("rb") as handle:
            head = handle.read(1 << 20)
    except OSError:
        return False
    return b"\nconfig:" in b"\n" + head and b"\njob:" in b"\n" + head
