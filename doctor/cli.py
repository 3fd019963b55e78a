"""The command line. Words in, text and exit code out; what the commands do is in `commands`."""

from __future__ import annotations

import argparse
import gc
import io
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from .. import __version__
from ..reports import FORMATS, render
from . import console
from .errors import USER_MISTAKE, UserError, guarded, printable

EPILOG = """exit codes: 0 no error-level finding · 1 findings at error level · 2 a mistake on the command line
            3 incomplete (a rule crashed) · 4 a bug of zdoctor

CONFIG left out: the config this folder was last checked with, else the only one found here, else config/config.json
(or .toml, .env), where SimpleTuner looks."""

DEEP = "also read the cached model files as a whole and compare their sha256 (seconds; resumes where it was stopped)"


class Parser(argparse.ArgumentParser):
    """argparse with our exit code and without the usage block in front of the message."""

    def error(self, message: str) -> NoReturn:
        print(f"zdoctor: {printable(message)}\n  zdoctor --help shows every command.", file=sys.stderr)
        raise SystemExit(USER_MISTAKE)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal without Unicode shows "?" and is no reason to fail
        sys.stdout.reconfigure(errors="replace")
    words = sys.argv[1:] if arguments is None else list(arguments)
    options = parser(next((word for word in words if not word.startswith("-")), "-")).parse_args(words)
    run: Callable[[argparse.Namespace], int] = options.run
    return guarded(lambda: run(options) if _somewhere() else USER_MISTAKE)


def _somewhere() -> bool:
    try:
        return bool(os.getcwd())
    except OSError:
        raise UserError("The folder you are in does not exist any more.", "Go to one that exists, with cd.") from None


def parser(name: str = "") -> argparse.ArgumentParser:
    """The words of every command; with a `name` those of the others are left out where they take time to import."""
    root = Parser(
        prog="zdoctor",
        description="Says what would go wrong in a LoRA training run and why, repairs it reversibly, and trains.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    root.add_argument("--version", action="version", version=f"zdoctor {__version__}")
    commands = root.add_subparsers(
        prog="zdoctor", title="commands", required=True, metavar="COMMAND", parser_class=Parser
    )

    def command(name: str, run: Callable[[argparse.Namespace], int], help: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=help, description=help)
        made.set_defaults(run=run)
        return made

    def with_words_of(module: str, made: argparse.ArgumentParser, asked: str) -> None:
        if name in ("", asked):
            import_module(f".{module}", __package__).arguments(made)

    def with_config(made: argparse.ArgumentParser) -> None:
        made.add_argument("config", nargs="?", metavar="CONFIG", help="the trainer's config file")
        made.add_argument("--machine", metavar="FACTS.json", help="check against a recorded machine")
        trainer_argument(made)
        made.add_argument(
            "--trainer-source",
            metavar="DIR",
            help="a checkout of the trainer, whose keys then count (found beside the config)",
        )

    made = command("check", _check, "say what would go wrong; changes nothing")
    with_config(made)
    made.add_argument("--format", choices=FORMATS, default="text")
    made.add_argument("-o", "--output", metavar="FILE", help="write the report here instead of the terminal")
    made.add_argument("--select", metavar="IDS", type=_words, default=[], help="only these rules (PTH001,MDL)")
    made.add_argument("--ignore", metavar="IDS", type=_words, default=[], help="all but these rules")
    made.add_argument("--deep", action="store_true", help=DEEP)

    made = command("fix", _fix, "show the repairs as a plan and a diff; --apply carries them out")
    with_config(made)
    made.add_argument("--apply", action="store_true", help="repair (zdoctor undo puts everything back)")
    made.add_argument(
        "--allow",
        choices=("result", "asked"),
        action="append",
        default=[],
        help="also repairs that change the training result; those that are your decision (with --select)",
    )
    made.add_argument("--select", metavar="IDS", type=_words, default=[], help="repair only these rules")
    made.add_argument("--deep", action="store_true", help=DEEP)

    made = command("train", _train, "check, and train when everything is green")
    made.add_argument("config", nargs="?", metavar="CONFIG", help="the trainer's config file")
    trainer_argument(made)
    with_words_of("train_command", made, "train")

    made = command("run", _run, "start any trainer: checked first, its output untouched, a crash explained")
    with_words_of("run_command", made, "run")

    made = command("undo", _undo, "take back the last repair, byte for byte")
    made.add_argument("id", nargs="?", metavar="ID", help="which one (zdoctor history lists them)")
    command("history", _history, "what was repaired, and when")

    made = command("extract", _extract, "copy a repository from the hub cache to a plain folder, verified")
    with_words_of("extract_command", made, "extract")

    made = command("cache", _cache, "show every hub cache, its health and its waste; --fix repairs one repository")
    made.add_argument("repo", nargs="?", metavar="REPO", help="only this repository, org/name")
    made.add_argument("--deep", action="store_true", help="also read every file as a whole and compare its sha256")
    made.add_argument("--format", choices=("text", "json"), default="text")
    made.add_argument("--fix", action="store_true", help="show the repairs of REPO as a plan")
    made.add_argument("--apply", action="store_true", help="with --fix: repair (zdoctor undo puts everything back)")

    made = command("explain", _explain, "why a training run ended, by its log; or what a rule looks at and why")
    made.add_argument("what", metavar="LOGFILE|RULE", help="a log (- for standard input), or a rule's id or name")
    made.add_argument("config", nargs="?", metavar="CONFIG", help="the run's config, to confirm the cause")
    made.add_argument("--diff", metavar="LOGFILE", help="the log of a run that worked: what was not the same")
    made = command("probe", _probe, "run one step of a model of your own and say what of it is not trained")
    with_words_of("probe_command", made, "probe")
    command("rules", _rules, "list every rule")

    made = command("schema", _schema, "a trainer's keys: as JSON schema for editors, or mined from a checkout")
    with_words_of("schema_command", made, "schema")

    made = command("facts", _facts, "write what a check sees of this machine, redacted, as a machine file")
    made.add_argument("config", nargs="?", metavar="CONFIG")
    made.add_argument("-o", "--output", metavar="FILE")
    made.add_argument("--about", default="a recorded machine", help="a line that says which machine this is")

    made = command("demo", _demo, "break a tiny model in seven ways, then check, fix and train it")
    made.add_argument("folder", nargs="?", metavar="DIR", help="a new or empty folder (default: a temporary one)")
    return root


def trainer_argument(made: argparse.ArgumentParser) -> None:
    from .configs.dialects import TRAINERS

    made.add_argument(
        "--trainer",
        metavar="NAME",
        choices=TRAINERS,
        help=f"whose config it is, where its keys do not say so ({', '.join(TRAINERS)})",
    )


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _check(options: argparse.Namespace) -> int:
    gc.disable()  # nearly all that a check makes lives to its end: looking for garbage costs a twentieth of its time
    try:
        return _checked(options)
    finally:
        gc.enable()


def _checked(options: argparse.Namespace) -> int:
    from . import commands, state

    config = _config(options.config)
    seen = commands.examination(
        config,
        machine=options.machine,
        selected=options.select,
        ignored=options.ignore,
        deep=options.deep,
        trainer=options.trainer,
        trainer_source=options.trainer_source,
        progress=console.reading() if options.deep else None,
    )
    report = seen.report
    state.remember(config)
    text = render(
        options.format,
        report,
        rules=seen.rules,
        version=__version__,
        config=seen.written,
        width=console.width(),
        color=options.output is None and console.color(),
    )
    console.emit(text, options.output)
    if options.deep:
        sys.stdout.flush()
        print(f"zdoctor: {commands.verified(seen)}", file=sys.stderr)
    return report.exit_code


def _fix(options: argparse.Namespace) -> int:
    from ..reports import terminal
    from . import commands, state

    config = _config(options.config)
    if "asked" in options.allow and not options.select:
        raise UserError("Decisions are taken rule by rule.", "zdoctor fix CONFIG --allow asked --select SRC001")
    _recover()
    done = commands.fix(
        config,
        apply=options.apply,
        allow="changes-result" if "result" in options.allow else "none",
        asked="asked" in options.allow,
        machine=options.machine,
        selected=options.select,
        deep=options.deep,
        trainer=options.trainer,
        trainer_source=options.trainer_source,
        progress=console.progress(),
        reading=console.reading() if options.deep else None,
    )
    state.remember(config)
    color = console.color()
    console.emit(terminal.render_plan(done.plan, done.diff, offers=done.offers, width=console.width(), color=color))
    if done.after is None:
        if done.plan.fixes and not options.apply:
            again = "zdoctor fix " + " ".join(
                filter(
                    None,
                    (
                        config,
                        options.trainer and f"--trainer {options.trainer}",
                        options.trainer_source and f"--trainer-source {options.trainer_source}",
                        " ".join(f"--allow {what}" for what in options.allow),
                        options.select and f"--select {','.join(options.select)}",
                        options.deep and "--deep",
                    ),
                )
            )
            console.emit(f"\nnext: {again} --apply\n")
        return done.before.exit_code
    console.emit(
        f"\nApplied as {done.applied[0]}. To take it back: zdoctor undo {done.applied[0]}\n\nChecked again:\n\n"
    )
    console.emit(terminal.render(done.after, width=console.width(), color=color))
    return done.after.exit_code


def _train(options: argparse.Namespace) -> int:
    from . import train_command

    if not train_command.is_follower():
        _recover()
    return train_command.run(options, _config(options.config))


def _run(options: argparse.Namespace) -> int:
    _recover()
    from . import run_command

    return run_command.run(options)


def _undo(options: argparse.Namespace) -> int:
    from .apply import ApplyError, undo
    from .state import state_folder

    _recover()
    try:
        for line in undo(options.id, state=state_folder()):
            console.emit(f"{printable(line)}\n")
    except ApplyError as error:
        raise UserError(str(error)) from error
    return 0


def _history(options: argparse.Namespace) -> int:
    from .apply import ApplyError, history
    from .state import state_folder

    try:
        entries = history(state_folder())
    except ApplyError as error:
        raise UserError(str(error), "The environment variable ZDOCTOR_STATE names another state folder.") from error
    for entry in entries:
        console.emit(f"{entry.id}  {entry.when}  {entry.state}  {printable(entry.config)}\n")
        for line in entry.what:
            console.emit(f"    {printable(line)}\n")
    if not entries:
        console.emit("Nothing was repaired yet.\n")
    return 0


def _extract(options: argparse.Namespace) -> int:
    _recover()
    from . import extract_command

    return extract_command.run(options)


def _cache(options: argparse.Namespace) -> int:
    from . import cache

    if options.apply:
        _recover()
    return cache.run(options)


def _probe(options: argparse.Namespace) -> int:
    from . import probe_command

    return probe_command.run(options)


def _explain(options: argparse.Namespace) -> int:
    from . import explain_command

    return explain_command.run(options)


def _rules(options: argparse.Namespace) -> int:
    from .rules import all_repairs, all_rules

    for rule in all_rules():
        mark = "fix" if rule.id in all_repairs() else ""
        console.emit(f"{rule.id}  {rule.severity:<8} {mark:<4} {rule.name:<32} {rule.title}\n")
    return 0


def _schema(options: argparse.Namespace) -> int:
    from . import schema_command

    return schema_command.run(options)


def _facts(options: argparse.Namespace) -> int:
    import json

    from . import commands

    config = _config(options.config) if options.config else None
    record = commands.facts(config, options.about)
    console.emit(json.dumps(record, ensure_ascii=False, indent=1) + "\n", options.output)
    return 0


def _demo(options: argparse.Namespace) -> int:
    from .demo.walk import walk

    return walk(options.folder, main)


def _config(given: str | None) -> str:
    """The config to work on, as the module's help says."""
    from . import state

    if given is not None:
        return given
    remembered = state.recall()
    if remembered is not None and Path(remembered).is_file():
        return remembered
    names = [p.name for pattern in ("*.yaml", "*.yml") for p in sorted(Path().glob(pattern))]
    found = [name for name in names if _is_config(Path(name))]
    if len(found) == 1:
        return found[0]
    if found:
        raise UserError(f"there are {len(found)} configs here: {', '.join(found[:4])}.", "zdoctor check CONFIG")
    for name in ("config/config.json", "config/config.toml", "config/config.env"):  # SimpleTuner's own, in its order
        if Path(name).is_file():
            return name
    raise UserError("no config was named, and there is none in this folder.", "zdoctor check path/to/config.yaml")


def _is_config(file: Path) -> bool:
    try:
        if not file.is_file():  # a pipe would wait for someone to write to it
            return False
        with file.open("rb") as handle:
            head = handle.read(1 << 20)
    except OSError:
        return False
    return b"\nconfig:" in b"\n" + head and b"\njob:" in b"\n" + head


def _recover() -> None:
    """Finish or roll back what an earlier zdoctor was killed in; said in words when there was something."""
    from .apply import ApplyError, recover
    from .state import state_folder

    try:
        lines = recover(state_folder())
    except ApplyError as error:
        raise UserError(str(error)) from error
    for line in lines:
        print(f"zdoctor: {line}", file=sys.stderr)
