"""`zdoctor memory`: a config's step rehearsed without data, each phase against the card, and what makes it fit."""

from __future__ import annotations

import argparse

from ... import __version__
from ...reports import memory as report
from ...reports import memory_html, memory_json
from ...reports.painting import PAGE, paint
from ..memory import placed, started_with
from ..memory.fitting import SOLVED, fitting, largest, smallest_card
from ..memory.rehearsal import question_of, with_rehearsed
from ..model import Facts, Unknown
from ..model.memory import Rehearsed
from ..model.shell import command_line
from ..probe.live import shell_here
from ..probe.rehearsal import rehearse
from ..progress import open_progress
from . import console
from .config_argument import command_words, machine_arguments, named_or_found
from .examined import examined
from .told import config_of

DEADLINE = 300.0


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", nargs="?", metavar="CONFIG", help="the trainer's config file")
    parser.add_argument(
        "--solve", metavar="KEY", choices=tuple(SOLVED), help="the largest resolution, batch_size or rank"
    )
    parser.add_argument("--no-rehearsal", action="store_true", help="only what is computed in a closed form, at once")
    parser.add_argument("--timeout", metavar="SECONDS", type=float, default=DEADLINE, help=f"default: {DEADLINE:.0f}")
    parser.add_argument("--format", choices=("text", "html", "json"), default="text", help="json is for programs")
    parser.add_argument("-o", "--output", metavar="FILE", help="write it here instead of the terminal")
    machine_arguments(parser)
    command_words(parser)


def run(options: argparse.Namespace) -> int:
    """The exit code: 1 where the run does not fit, 3 where that is not known."""
    config, is_made = (
        config_of(options.words, options.config) if options.words else (named_or_found(options.config), False)
    )
    seen = examined(
        config,
        machine=options.machine,
        trainer=options.trainer,
        trainer_source=options.trainer_source,
        selected=("MEM001",),
        meant=True,
    )
    told: list[report.Told] = []
    with open_progress() as progress:
        for facts in seen.facts:
            progress.doing("rehearsing a step without data")
            told.append(looked_at(facts, options))
    shown = f"-- {command_line(options.words, shell_here())}" if is_made else config
    texts = {
        "json": lambda: memory_json.render(told, config, __version__),
        "html": lambda: memory_html.render(told, shown, __version__),
    }
    screen = PAGE if options.output else console.screen()
    text = texts.get(options.format, lambda: paint(report.lines(told, shown, screen.width), screen))()
    console.emit(text, options.output, spare=config)
    return report.exit_code(told)


def looked_at(facts: Facts, options: argparse.Namespace) -> report.Told:
    """What is said of one run."""
    memory, run_, model, system, gpus = facts.memory, facts.run, facts.model, facts.system, facts.gpus
    if isinstance(memory, Unknown):
        return report.Told(memory)
    if isinstance(run_, Unknown) or isinstance(model, Unknown) or isinstance(system, Unknown):
        return report.Told(Unknown("the config says of no run what is trained"))
    if isinstance(gpus, Unknown):
        return report.Told(gpus)
    on = placed(started_with(facts.environment, run_), model, facts.datasets, system, gpus)
    if isinstance(on, Unknown):
        return report.Told(on)
    question = Unknown("it was not asked for") if options.no_rehearsal else question_of(on.case)
    found = question if isinstance(question, Unknown) else rehearse(question, options.timeout)
    shown = with_rehearsed(memory, found) if isinstance(found, Rehearsed) else memory
    solved = largest(on.case, options.solve, memory.free) if options.solve else None
    ways = fitting(on.case, memory.free, memory.host_free) if memory.peak.total + memory.margin > memory.free else []
    return report.Told(
        shown,
        computed=memory,
        rehearsed=found,
        fitting=tuple(ways),
        solved=None if options.solve is None else (options.solve, solved),
        card=smallest_card(shown.peak.total + shown.margin) if on.case.card else 0,
    )
