"""What each command on the command line does and prints; returns the exit code. What it rests on is in `commands`."""

from __future__ import annotations

import argparse
import gc
import sys
from pathlib import Path

from .. import __version__
from ..reports import render
from . import console
from .model.errors import UserError, printable


def check(options: argparse.Namespace) -> int:
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
    console.emit(text, options.output, spare=config)
    if options.deep:
        sys.stdout.flush()
        print(f"zdoctor: {commands.verified(seen)}", file=sys.stderr)
    return report.exit_code


def fix(options: argparse.Namespace) -> int:
    from ..reports import terminal, words
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
    decisions = words.decisions(done.before, done.plan)
    console.emit(
        terminal.render_plan(
            done.plan, done.diff, offers=done.offers, decisions=decisions, width=console.width(), color=color
        )
    )
    if done.after is None:
        if done.plan.fixes and not options.apply:
            console.emit(f"\nnext: {words.to_apply(done.before, options.allow, options.select)}\n")
        elif {f.rule for f in done.before.errors} - {fix.rule for fix in (*done.plan.fixes, *done.plan.shown)}:
            console.emit(f"\nnext: {done.before.typed('check')}   says what is wrong\n")
        return done.before.exit_code
    console.emit(
        f"\nApplied as {done.applied[0]}. To take it back: zdoctor undo {done.applied[0]}\n\nChecked again:\n\n"
    )
    console.emit(terminal.render(done.after, width=console.width(), color=color))
    return done.after.exit_code


def train(options: argparse.Namespace) -> int:
    from . import train_command

    if not train_command.is_follower():
        _recover()
    return train_command.run(options, _config(options.config))


def run(options: argparse.Namespace) -> int:
    _recover()
    from . import run_command

    return run_command.run(options)


def undo(options: argparse.Namespace) -> int:
    from .apply import ApplyError, undo
    from .state import state_folder

    _recover()
    try:
        for line in undo(options.id, state=state_folder()):
            console.emit(f"{printable(line)}\n")
    except ApplyError as error:
        raise UserError(str(error)) from error
    return 0


def history(options: argparse.Namespace) -> int:
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


def extract(options: argparse.Namespace) -> int:
    _recover()
    from . import extract_command

    return extract_command.run(options)


def cache(options: argparse.Namespace) -> int:
    from . import cache_command

    if options.apply:
        _recover()
    return cache_command.run(options)


def probe(options: argparse.Namespace) -> int:
    from . import probe_command

    return probe_command.run(options)


def explain(options: argparse.Namespace) -> int:
    from . import explain_command

    return explain_command.run(options)


def rules(options: argparse.Namespace) -> int:
    from .rules import all_repairs, all_rules

    for rule in all_rules():
        mark = "fix" if rule.id in all_repairs() else ""
        console.emit(f"{rule.id}  {rule.severity:<8} {mark:<4} {rule.name:<32} {rule.title}\n")
    return 0


def schema(options: argparse.Namespace) -> int:
    from . import schema_command

    return schema_command.run(options)


def facts(options: argparse.Namespace) -> int:
    import json

    from . import commands

    config = _config(options.config) if options.config else None
    record = commands.facts(config, options.about)
    console.emit(json.dumps(record, ensure_ascii=False, indent=1) + "\n", options.output, spare=config or "")
    return 0


def demo(options: argparse.Namespace) -> int:
    from .cli import main
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
    raise UserError("no config was named, and no ai-toolkit or SimpleTuner config is here.", "zdoctor check CONFIG")


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
