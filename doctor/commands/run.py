"""`zdoctor run -- COMMAND`: any trainer under zdoctor, checked before it starts, and explained when it crashes."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timezone

from ...reports import crash, terminal, words
from ...reports.painting import Line, paint
from ..crash import decode
from ..crash.failures import SAID
from ..errors import INTERRUPTED, UserError
from ..model.findings import HERE
from ..model.printable import without_tokens
from ..model.shell import quoted
from ..state import state_folder
from ..trainers import trainer_of
from . import console
from .child_process import NOT_FOUND, NOT_STARTED, Ended
from .examined import examined
from .explain import explained
from .fix import fix
from .repair import recover
from .stream import stream
from .told import Told, config_in, told_by

MOST_RESTARTS = 3
MOST_LOGS = 20


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--heal",
        action="store_true",
        help="apply the safe repairs and start again, at most three times and never the same repair twice",
    )
    parser.add_argument("--config", metavar="CONFIG", help="the trainer's config, where COMMAND does not name it")
    parser.add_argument(
        "command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="what starts the trainer, with its words"
    )


def run(options: argparse.Namespace) -> int:
    """The program's own exit code; 1 when it was not started because a check found an error."""
    recover()
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        raise UserError("no command was named.", "zdoctor run -- python run.py config.yaml")
    if len(command) == 1 and config_in(("", *command)):
        raise UserError(f"{command[0]} is a config, not a command.", f"zdoctor run -- python run.py {command[0]}")
    known = told_by(command) if options.config is None else Told(options.config)
    config = None if known is None else known.config
    if config is None:
        _say("not judged: zdoctor knows neither what the command starts nor a config that it names.")
    tried: set[str] = set()
    starts = 0
    while True:
        if known is not None and not _checked(known, tried if options.heal else None):
            return 1
        command = command if known is None else known.command(command)
        ended = _started(command)
        log = _kept(ended)
        how = "was stopped" if ended.stopped else f"ended with exit code {ended.code}" if ended.code else "ended well"
        _say(f"the command {how}.{f' Its output is kept in {log}' if log else ''}")
        if ended.code == 0 and not ended.stopped:
            _look_again(ended, config)
        if ended.code == 0 or ended.stopped:
            return INTERRUPTED if ended.stopped and ended.code == 0 else ended.code
        rules = _explained(ended, config)
        if config is None or not rules:
            return ended.code
        if not options.heal:
            if _plan(config, rules):
                from ..probe.live import shell_here

                _say(f"zdoctor fix {quoted(config, shell_here())} shows the repair; --apply carries it out.")
            return ended.code
        if starts == MOST_RESTARTS or not _healed(config, rules, tried):
            _say("there is nothing more that is safe to repair; not started again.")
            return ended.code
        starts += 1
        _say(f"starting again ({starts} of at most {MOST_RESTARTS} times).")


def _checked(known: Told, tried: set[str] | None) -> bool:
    """Whether the run may start. `tried` are the repairs made so far, None where none are wanted."""
    config = known.config
    seen = examined(config, machine=HERE)
    if seen.report.errors and tried is not None and _healed(config, (), tried):
        seen = examined(config, machine=HERE)
    report = seen.report
    if not report.errors:
        count = len(report.findings)
        found = f"no error found, {words.with_reasons(report)}" if count else words.with_reasons(report)
        _say(f"{'the command' if known.is_made else config}: {found}{' (zdoctor check shows them)' * bool(count)}.")
        trainer = trainer_of(report.trainer)
        if known.by_name and "shell" in trainer.refuses_unknown and not trainer.becomes_command_line:
            _say("not judged: the command line, as zdoctor does not know what it starts.")
        return True
    _show(terminal.lines(report, console.screen(sys.stderr), config=seen.written))
    _say("not started, because it would fail.")
    return False


def _plan(config: str, rules: Sequence[str]) -> set[str]:
    """The safe repairs for these rules (all, where none is named), in words that tell them apart."""
    fixed = fix(config, machine=HERE, selected=rules)
    return {f"{one.rule} {one.title} {one.steps}" for one in fixed.plan.fixes}


def _healed(config: str, rules: Sequence[str], tried: set[str]) -> bool:
    """Apply what is safe and was not tried before; whether there was something."""
    plan = _plan(config, rules)
    if not plan or plan <= tried:
        return False
    tried |= plan
    fixed = fix(config, apply=True, machine=HERE, selected=rules)
    for one in fixed.plan.fixes:
        _say(f"repaired: {one.title}")
    if fixed.applied:
        _say(f"to take it back: zdoctor undo {fixed.applied[0]}")
    return bool(fixed.applied)


def _started(command: Sequence[str]) -> Ended:
    sys.stdout.flush()
    try:
        return stream(command)
    except FileNotFoundError:
        _say(f"{command[0]}: there is no such program.")
        raise SystemExit(NOT_FOUND) from None
    except OSError as error:
        _say(f"{command[0]} cannot be started: {error.strerror}.")
        raise SystemExit(NOT_STARTED) from None


def _explained(ended: Ended, config: str | None) -> tuple[str, ...]:
    """Say why it ended; the rules that see it before."""
    # Output can come in the middle of a traceback; what ends a process without a word shows in its exit code.
    by_code = b"\nexit code %d\n" % ended.code
    for said in (ended.tail, ended.errors, ended.tail + by_code):
        told, rules = explained(decode(said), config)
        if told.failure is not None:
            break
    if told.failure is None:
        _say("its output shows no failure that is known here.")
        return ()
    _show(crash.lines(told, rules, config=config))
    return told.rules


def _look_again(ended: Ended, config: str | None) -> None:
    """A run can end well and say that it trained nothing."""
    told, rules = explained(decode(ended.tail), config)
    if told.failure is not None and told.failure.type == SAID:
        _say("but its output holds something to look at:")
        _show(crash.lines(told, rules, config=config))


def _kept(ended: Ended) -> str | None:
    """The file that the end of the output was written to; None where that cannot be done."""
    folder = state_folder() / "logs"
    name = f"{datetime.now(timezone.utc):%Y%m%d-%H%M%S}-{os.getpid()}.log"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        # the owner's alone, and without tokens: programs print what they were given
        text = without_tokens(ended.tail.decode("utf-8", "surrogateescape"), os.environ)
        with open(folder / name, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(text.encode("utf-8", "surrogateescape"))
        for old in sorted(folder.glob("*.log"))[:-MOST_LOGS]:
            old.unlink()
    except OSError:
        return None
    return str(folder / name)


def _say(text: str) -> None:
    console.tell(text)


def _show(lines: Iterable[Line]) -> None:
    """To standard error: standard output is the command's."""
    with suppress(OSError):
        print(paint(lines, console.screen(sys.stderr)), file=sys.stderr, flush=True)
