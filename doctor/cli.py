"""The command line: which commands there are, and the exit code of the one that is run."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NoReturn

from .. import __version__
from . import languages
from .commands import help_text
from .commands.console import complain, make_printable
from .errors import INTERRUPTED, OUR_BUG, USER_MISTAKE, UserError
from .model.printable import printable, redacted
from .model.said import filled, said

EPILOG = """exit codes: 0 no error-level finding · 1 findings at error level · 2 a mistake on the command line
            3 incomplete (a rule crashed, a deadline passed; --strict) · 4 a bug of zdoctor · 130 stopped

CONFIG left out: the config this folder was last checked with, else ai-toolkit's only one here, else
config/config.json (or .toml, .env), where SimpleTuner looks; `check` then looks at the environment alone."""

COMMANDS = {
    "check": "say what would go wrong; changes nothing",
    "fix": "show the repairs as a plan and a diff; --apply carries them out",
    "train": "check, and train when everything is green",
    "run": "start any trainer: checked first, its output untouched, a crash explained",
    "undo": "take back the last repair, byte for byte",
    "history": "what was repaired, and when",
    "extract": "copy a repository from the hub cache to a plain folder, verified",
    "cache": "show every hub cache, its health and its waste; --fix repairs one repository",
    "explain": "why a training run ended, by its log; or what a rule looks at and why",
    "memory": "rehearse a config's step without data: each phase against the card, and what makes it fit",
    "probe": "run one step of a model of your own and say what of it is not trained",
    "rules": "list every rule",
    "schema": "a trainer's keys: as JSON schema for editors, or mined from a checkout",
    "facts": "write what a check sees of this machine, redacted, as a machine file",
    "lsp": "check configs while they are written: the language server that editors start",
    "mcp": "check, explain and repair as tools of an agent (Model Context Protocol)",
    "completion": "print a script by which bash, zsh, fish or PowerShell completes what is typed",
    "demo": "break a tiny model in seven ways, then check, fix and train it",
}


class Parser(argparse.ArgumentParser):
    """argparse with our exit code, and instead of the usage block the word that was meant.

    A command with a default for `words` gets as those what stands behind a "--".
    """

    def parse_known_args(  # pyright: ignore[reportIncompatibleMethodOverride]  # it is of overloads
        self, args: Any = None, namespace: Any = None
    ) -> Any:
        own: list[str] = list(args or ())
        end = own.index("--") if "--" in own and self.get_default("words") is not None else len(own)
        options, unknown = super().parse_known_args(own[:end], namespace)
        if end < len(own):
            options.words = own[end + 1 :]
        if unknown:  # said by the command's own parser, which knows its options
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return options, unknown

    def format_help(self) -> str:
        help_text.translate(self)
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        every = "{prog} --help shows every option." if " " in self.prog else "{prog} --help shows every command."
        hint = self._meant(message) or filled(every, {"prog": self.prog})
        print(f"zdoctor: {printable(said(message))}\n  {printable(said(hint))}", file=sys.stderr)
        raise SystemExit(USER_MISTAKE)

    def _meant(self, message: str) -> str:
        import re
        from difflib import get_close_matches

        choice = re.search(r"invalid choice: '?([^' ]+)'? \(choose from (.+)\)", message)
        option = re.search(r"unrecognized arguments:(?: .*?)? --([\w-]+)", message)
        if choice and "argument COMMAND:" in message and os.path.isfile(choice[1]):
            return f"zdoctor {'explain' if choice[1].endswith(('.log', '.txt')) else 'check'} {choice[1]}"
        if choice:
            word, known = choice[1], re.findall(r"[\w-]+", choice[2])
        elif option:
            word, known = option[1], re.findall(r"--([\w-]+)", self.format_usage())
        else:
            return ""
        near = get_close_matches(word, known, 1)
        return f"Did you mean {'' if choice else '--'}{near[0]}?" if near else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    make_printable(sys.stdout, sys.stderr)
    typed = sys.argv[1:] if arguments is None else list(arguments)

    def command() -> int:
        language, words = languages.asked(typed, os.environ, sys.stdout)
        if words[:1] == ["help"]:
            words = [*words[1:2], "--help"]
        name = next((word for word in words if not word.startswith("-")), "-")
        languages.speak(language, name)
        if not words:
            parser("-").print_help()
            return USER_MISTAKE
        options = parser(name).parse_args(words)
        if getattr(options, "format", "") in languages.WITH_RULES:
            languages.speak(language, "rules")
        _require_places()
        return int(options.run(options))

    return guarded(command)


def _require_places() -> None:
    if os.path.expanduser("~") == "~":
        raise UserError("HOME is not set, and the system knows no home folder of this user.", "export HOME=/tmp")
    try:
        os.getcwd()
    except OSError:
        raise UserError("The folder you are in does not exist any more.", "Go to one that exists, with cd.") from None


def parser(name: str = "") -> argparse.ArgumentParser:
    """The words of every command; with a `name` only those of this one, as the others take time to import."""
    root = Parser(
        prog="zdoctor",
        description="Says what would go wrong in a LoRA training run and why, repairs it reversibly, and trains.",
        epilog=EPILOG,
        formatter_class=help_text.AsWritten,
    )
    root.add_argument("-V", "--version", action="version", version=f"zdoctor {__version__}")
    known = ", ".join(languages.LANGUAGES)
    root.add_argument("--lang", metavar="LANGUAGE", help=f"speak {known}; else ZDOCTOR_LANG or the locale says which")
    root.set_defaults(zdoctor=main, parser=parser)
    commands = root.add_subparsers(
        prog="zdoctor", title="commands", required=True, metavar="COMMAND", parser_class=Parser
    )
    for command, help in COMMANDS.items():
        if name in COMMANDS and name != command:
            continue
        made = commands.add_parser(command, help=help, description=help, formatter_class=help_text.Columns)
        if name in ("", command):
            module = import_module(f".commands.{command}", __package__)
            module.arguments(made)
            made.set_defaults(run=module.run)
    return root


def guarded(command: Callable[[], int]) -> int:
    """Run a command and return its exit code; a traceback never reaches the user."""
    try:
        return command()
    except UserError as error:
        complain(error)
        return USER_MISTAKE
    except KeyboardInterrupt as error:
        line = "\n" if sys.stderr.isatty() else ""  # after a line of progress, or the ^C that the terminal shows
        print(f"{line}zdoctor: stopped. Nothing is half done. {error}".rstrip(), file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except Exception as error:
        return _crashed(error)


def _crashed(error: Exception) -> int:
    from .state import state_folder

    home = os.path.expanduser("~")
    text = redacted(_crash_report(error), home)
    print(
        f"zdoctor: this is our bug: {type(error).__name__}: {printable(redacted(str(error), home))}", file=sys.stderr
    )
    try:
        file = state_folder() / "zdoctor-crash.md"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        print(f"  A report without names or tokens to paste into an issue: {file}", file=sys.stderr)
    except OSError:
        print(text, file=sys.stderr)
    return OUR_BUG


def _crash_report(error: Exception) -> str:
    import platform
    import traceback

    trace = "".join(traceback.format_exception(error))
    return (
        f"# zdoctor {__version__} crashed\n\n"
        f"- Python {platform.python_version()} on {platform.system()} {platform.release()}\n"
        f"- command: `{' '.join(sys.argv)}`\n\n```\n{trace}```\n"
    )
