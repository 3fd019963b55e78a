"""`zdoctor fix`: the repairs as a plan and a diff and, with --apply, carried out."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from ... import __version__
from ...reports import plan, terminal, what_next
from .. import apply as writer
from .. import state
from ..errors import UserError
from ..model import MakeEnvironment, Plan, Report, TrainingEffect, WriteTensors
from ..model.lora import LORA
from ..model.repairs import Fixed
from ..model.said import said
from ..progress import open_progress
from . import console
from .config_argument import (
    asked_for,
    base_argument,
    comma_separated,
    config_argument,
    config_in_reach,
    deep_argument,
    format_argument,
    machine_arguments,
)
from .examined import ENVIRONMENT, examined
from .repair import carry_out, recover, say_unfinished


def arguments(parser: argparse.ArgumentParser) -> None:
    config_argument(parser)
    machine_arguments(parser)
    base_argument(parser)
    parser.add_argument("--apply", action="store_true", help="repair (zdoctor undo puts everything back)")
    parser.add_argument(
        "--allow",
        choices=("result", "asked"),
        action="append",
        default=[],
        help="result: also what changes how the run trains or its result; asked: what you decide (with --select)",
    )
    parser.add_argument("--select", metavar="IDS", type=comma_separated, default=[], help="repair only these rules")
    parser.add_argument(
        "--online", action="store_true", help="ask what an install would change and fetch, version by version"
    )
    deep_argument(parser)
    format_argument(parser)


def run(options: argparse.Namespace) -> int:
    config = options.config if options.config is not None else config_in_reach() or ENVIRONMENT
    if "asked" in options.allow and not options.select:
        raise UserError("Decisions are taken rule by rule.", "zdoctor fix CONFIG --allow asked --select SRC001")
    recover() if options.apply else say_unfinished()
    with open_progress() as progress:
        progress.doing(f"checking {config}")
        done = fix(
            config,
            apply=options.apply,
            allow="changes-result" if "result" in options.allow else "none",
            asked="asked" in options.allow,
            online=options.online,
            progress=progress.bytes_done,
            **asked_for(options),
        )
    if done.before.trainer not in (None, LORA) and config != ENVIRONMENT:
        state.remember(config)
    decisions = what_next.decisions(done.before, done.plan)
    following = _following(done, options)
    last = done.after or done.before
    if options.format == "json":
        from ...reports import repairs_json

        console.emit(
            repairs_json.of_plan(
                done, following, decisions, writer.describe, version=__version__, exit_code=last.exit_code
            )
        )
        return last.exit_code
    console.show(plan.lines(done.plan, done.diff, offers=done.offers, decisions=decisions))
    if done.after is None:
        for step in following:
            console.say(f"\n{said('next: ')}{'   '.join(map(said, filter(None, step)))}")
        return last.exit_code
    console.say(f"\nApplied as {done.applied[0]}. To take it back: zdoctor undo {done.applied[0]}")
    console.say("\nChecked again:\n")
    console.show(terminal.lines(done.after, console.screen(), repaired=True))
    return last.exit_code


def _following(done: Fixed, options: argparse.Namespace) -> list[tuple[str, str]]:
    """What to type next, and what that does."""
    if done.after is not None:
        return what_next.next_steps(done.after, repaired=True)
    if done.plan.fixes:
        return [what_next.to_apply(done.before, options.allow, options.select)]
    if any(not finding.fixes for finding in done.before.errors):
        return [(done.before.typed("check"), "says what is wrong")]
    return []


def fix(
    config: str,
    *,
    apply: bool = False,
    allow: TrainingEffect = "none",
    asked: bool = False,
    online: bool = False,
    machine: str | None = None,
    selected: Sequence[str] = (),
    deep: bool = False,
    trainer: str | None = None,
    trainer_source: str | None = None,
    base: str | None = None,
    progress: Any = None,
) -> Fixed:
    """Plan the repairs and, with `apply`, carry them out as a transaction and check again.

    A repair can uncover the next finding (a config that did not parse), so up to three passes are made; they are
    one entry of the history. `asked` takes repairs that are the user's decision, of the rules that `selected` names;
    `online` tells what installs change, by asking an index. `progress` is told of bytes copied, and of those read by
    a `deep` check.
    """

    def look(at: str = config, active: str | None = None) -> Report:
        return examined(
            at,
            active=active,
            machine=machine,
            selected=selected,
            deep=deep,
            trainer=trainer,
            trainer_source=trainer_source,
            base=base,
            progress=progress,
            to_repair=apply,
        ).report

    def look_again(plan: Plan) -> Report:
        """At the copy, where one was made: a LoRA itself stays as it was, and so does an environment."""
        copy = next((step.path for step in plan.steps if isinstance(step, WriteTensors)), config)
        return look(copy, next((step.path for step in plan.steps if isinstance(step, MakeEnvironment)), None))

    return carry_out(
        look, look_again=look_again, apply=apply, allow=allow, asked=asked, online=online, progress=progress
    )
