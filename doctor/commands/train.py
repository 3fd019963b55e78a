"""`zdoctor train`: check, start a process for each card, train when all are green."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...reports import terminal, words
from .. import state
from ..configs.refused import raise_unsupported
from ..errors import INTERRUPTED, UserError
from ..examine.examination import Examination
from ..model.amounts import plural
from ..model.printable import printable
from ..model.record import replace
from ..model.run import Run
from ..model.said import said
from ..model.shell import quoted, unsetting
from ..probe.live import LiveWorld, shell_here
from ..progress import open_progress
from ..train.settings.refuse import is_another_job, refuse
from . import console
from .config_argument import config_argument, named_or_found, trainer_argument
from .examined import examined
from .handover import hand_over, not_green, process_count, refuse_small_batch, too_large
from .repair import recover

if TYPE_CHECKING:
    from ..train import TrainResult
    from ..train.distributed.ranks import Ranks


def arguments(parser: argparse.ArgumentParser) -> None:
    config_argument(parser)
    trainer_argument(parser)
    parser.add_argument("--max-minutes", metavar="N", type=_minutes, help="save and exit before N minutes are over")
    parser.add_argument("--eval", metavar="N", type=_count, help="hold N pictures out and measure the loss on them")
    parser.add_argument(
        "--processes", metavar="N", type=_count, help="share the batch among N processes (default: one for each GPU)"
    )
    parser.add_argument("--skip-unreadable", action="store_true", help="leave out the pictures that cannot be read")
    parser.add_argument(
        "--shard",
        action="store_true",
        help="share the base model out over the processes, when no GPU can hold it",
    )


def is_follower() -> bool:
    """Whether another process of the same run does what needs doing once."""
    rank = os.environ.get("RANK", "")
    return rank.isdecimal() and int(rank) > 0


def run(options: argparse.Namespace) -> int:
    """The exit code. Started by torchrun, accelerate or the launcher, this process is one of several."""
    from ..train.distributed import accelerate_env as accelerated

    if not is_follower():
        recover()
    config = named_or_found(options.config)
    _refuse_words(os.environ)
    if reason := accelerated.refusal(os.environ):
        raise UserError(reason)
    if not is_follower():
        for note in accelerated.notes(os.environ):
            console.tell(note)
    options.shard |= accelerated.sharded(os.environ)
    if int(os.environ.get("WORLD_SIZE") or 1) > 1:
        return _one_of_several(options, config)
    with open_progress() as progress:
        progress.doing(f"checking {config}")
        seen = examined(config, trainer=options.trainer, progress=progress.bytes_done, as_runner=True)
    state.remember(config)
    count = options.processes or process_count(seen)
    if why := not_green(seen, too_large(seen, count)):
        return _not_training(seen, why)
    raise_unsupported(_refused(seen))
    if options.shard and count == 1:
        raise UserError(
            "The base is shared out over several processes, and this run has one.",
            f"zdoctor train {quoted(config, shell_here())} --processes 2 --shard",
        )
    if count == 1:
        _say_green(seen)
        return _train(options, config, seen)
    for one in seen.reading.runs:
        refuse_small_batch(one, count)
    from ..train.distributed.launcher import launch_ranks

    return launch_ranks(count, [config, *_given(options)])


def _refuse_words(environment: Mapping[str, str]) -> None:
    """What torchrun and accelerate set are numbers; anything else is left over from something else."""
    for name in ("RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE"):
        value = environment.get(name, "")
        if value and not value.isdecimal():
            raise UserError(
                f"the environment variable {name} is {value!r}; torchrun and accelerate write a whole number there.",
                f"Take it out where zdoctor train is started alone: {unsetting(name, LiveWorld().system.shell)}",
            )


def _given(options: argparse.Namespace) -> list[str]:
    """The options as they were typed, but for the number of processes."""
    words: list[str] = []
    given = (("--trainer", options.trainer), ("--max-minutes", options.max_minutes), ("--eval", options.eval))
    for name, value in given:
        words += [] if value is None else [name, f"{value:g}" if isinstance(value, float) else str(value)]
    words += ["--shard"] if options.shard else []
    words += ["--skip-unreadable"] if options.skip_unreadable else []
    return words


def _again(lead: str, options: argparse.Namespace, config: str, ranks: Ranks | None) -> str:
    """What to type after a run that was stopped."""
    from ..train.runtime.stop_signals import BEGAN

    if ranks is not None and BEGAN not in os.environ:
        return f"{lead}, start all processes in the same way again.\n"
    count = options.processes if ranks is None else ranks.size
    given = [*_given(options), *(["--processes", str(count)] if count else [])]
    words = ["zdoctor", "train", quoted(config, shell_here()), *given]
    return f"{lead}: {' '.join(words)}"


def _one_of_several(options: argparse.Namespace, config: str) -> int:
    from ..train import TrainError
    from ..train.distributed.ranks import RankReport, gather_reports, join_process_group, leave_process_group

    try:
        seen: Examination | None = None
        try:
            seen = examined(config, trainer=options.trainer, as_runner=True)
            shared = too_large(seen, int(os.environ["WORLD_SIZE"]))
            errors = [f"{f.rule} {f.name}: {f.text()}" for f in seen.report.errors if f.rule not in shared]
            why = not_green(seen, shared)
            told = errors or ([f"{why}."] if why else [])
            options.shard |= bool(shared)
        except UserError as error:
            told = [str(error)]
        ranks = join_process_group(
            cuda=seen is not None and any(one.device.startswith("cuda") for one in seen.reading.runs)
        )
        own = RankReport(ranks.node, platform.node(), ranks.rank, told, _versions())
        lines = gather_reports(ranks.all_gather(own))
        if lines or seen is None:
            if ranks.is_first:
                console.tell("not training, because not every process is green:")
                for line in lines:
                    print(f"  {printable(said(line))}", file=sys.stderr)
            return 1
        for one in seen.reading.runs:
            refuse_small_batch(one, ranks.size)
        ranks = replace(ranks, sharded=ranks.any_rank(options.shard))
        if ranks.is_first:
            state.remember(config)
            _say_green(seen, f" in {ranks.size} processes")
        return _train(options, config, seen, ranks)
    except TrainError as error:
        console.tell(str(error))
        return 1
    finally:
        leave_process_group()


def _train(options: argparse.Namespace, config: str, seen: Examination, ranks: Ranks | None = None) -> int:
    from ..train import TrainError
    from ..train.encode.text_encoder_process import TextEncoderProcess

    try:
        with closing(TextEncoderProcess()) as text_process:
            result = hand_over(
                seen,
                max_minutes=options.max_minutes,
                held_out=options.eval,
                skip_unreadable=options.skip_unreadable,
                ranks=ranks,
                # where transformers is imported already, nothing is gained by another process
                text_process=None if "transformers" in sys.modules else text_process,
            )
    except TrainError as error:
        process = f"process {ranks.rank} of {ranks.size}: " if ranks is not None else ""
        console.tell(f"{process}{error}")
        return 1
    stopped = result.stopped == "interrupted"
    if ranks is None or ranks.is_first:
        count = plural(result.steps, "step")
        lead = "To go on from there"
        if not result.lora:
            lead = "To begin again"
            console.say("\nStopped before the first step: nothing is trained yet, and no LoRA was written.")
        else:
            console.say(f"\n{'Stopped after' if stopped else 'Finished:'} {count}.")
            for line in _made(result):
                console.say(line)
        if stopped:
            console.say(_again(lead, options, config, ranks))
    return INTERRUPTED if stopped else 0


def _made(result: TrainResult) -> Iterator[str]:
    """Where to find what a run made."""
    yield f"LoRA: {result.lora}"
    page = Path(result.lora).with_name("report.html")
    if page.is_file():
        yield f"Page: {page}, with the losses and the samples"
    if result.samples:
        yield f"Samples: {len(result.samples)} in {Path(result.samples[0]).parent}"


def _runs(seen: Examination) -> list[Run]:
    """In the runner's words."""
    return [facts.run for facts in seen.facts if isinstance(facts.run, Run)]


def _refused(seen: Examination) -> list[str]:
    return list(dict.fromkeys(reason for run in _runs(seen) for reason in refuse(run)))


def _not_training(seen: Examination, why: str) -> int:
    refused = _refused(seen)
    if any(map(is_another_job, _runs(seen))):
        raise_unsupported(refused)
    if refused:
        console.tell(f"Not supported, whatever is repaired below: {' '.join(refused)}\n")
    console.show(terminal.lines(seen.report, console.screen(), config=seen.written))
    console.tell(f"not training, because it is not green: {why}.")
    return seen.report.exit_code or 3


def _say_green(seen: Examination, where: str = "") -> None:
    report = seen.report
    notes = sum(finding.severity == "note" for finding in report.findings)
    rest = f", {notes} note{'s' * (notes != 1)} (zdoctor check shows them)" if notes else ""
    lead = f"Checks are green{where}"
    if report.not_judged:
        lead = f"No error found{where} ({words.with_reasons(report)})"
    console.say(f"{lead}: {len(report.passed)} rules passed{rest}.")
    for finding in report.findings:
        if finding.severity == "warning":
            line = "" if finding.where is None or finding.where.line is None else f", line {finding.where.line}"
            console.say(f"warning ({finding.rule}{line}): {said(finding.text())}")
    for facts in seen.facts:
        for line in facts.run.differences if isinstance(facts.run, Run) else ():
            console.say(f"Not as {seen.reading.config.trainer}: {line}.")
    sys.stdout.flush()


def _versions() -> dict[str, str]:
    """What must be alike on all machines; builds for another CUDA count as the same."""
    found = {}
    for package in ("zdoctor", "torch", "diffusers"):
        with suppress(PackageNotFoundError):
            found[package] = version(package).partition("+")[0]
    return found


def train(
    config: str,
    *,
    max_minutes: float | None = None,
    held_out: int | None = None,
    skip_unreadable: bool = False,
    trainer: str | None = None,
    progress: Any = None,
) -> TrainResult:
    """Train every run of a config with zdoctor's own runner, once all that concerns it is green.

    Raises UserError with what is not green.
    """
    seen = examined(config, trainer=trainer, as_runner=True)
    if why := not_green(seen):
        raise UserError(
            f"{config} is not green: {why}",
            f"{seen.report.typed('check')} shows it, {seen.report.typed('fix')} repairs.",
        )
    return hand_over(
        seen, max_minutes=max_minutes, held_out=held_out, skip_unreadable=skip_unreadable, progress=progress
    )


def _minutes(text: str) -> float:
    try:
        minutes = float(text)
    except ValueError:
        minutes = 0.0
    if not 0 < minutes < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of minutes above 0")
    return minutes


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)
