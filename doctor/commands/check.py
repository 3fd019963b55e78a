"""`zdoctor check`: what would go wrong in a training run. Changes nothing."""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from time import strftime

from ... import __version__
from ...reports import FORMATS, Checked, render
from ...reports.checked import exit_code
from ...reports.painting import PAGE
from .. import state
from ..errors import USER_MISTAKE, UserError
from ..examine.examination import Examination
from ..model import Files, Hub, Report
from ..model.lora import LORA
from ..model.record import replace
from ..probe.world import World
from ..probe.world.safetensors import forget_headers
from ..progress import open_progress
from . import console
from .baseline import read_baseline
from .config_argument import (
    asked_for,
    base_argument,
    comma_separated,
    command_words,
    config_in_reach,
    deep_argument,
    machine_arguments,
)
from .configs import configs_of
from .examined import ENVIRONMENT, examined
from .settings_file import looked_for
from .watch import watch


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "config",
        nargs="*",
        metavar="CONFIG",
        help="config files or LoRAs, folders to look through, or patterns in quotes",
    )
    machine_arguments(parser)
    base_argument(parser)
    command_words(parser)
    parser.add_argument("--format", choices=FORMATS, default="text", help="what the report is for (docs/formats.md)")
    parser.add_argument("-o", "--output", metavar="FILE", help="write the report here instead of the terminal")
    parser.add_argument(
        "--select", metavar="IDS", type=comma_separated, default=[], help="only these rules (PTH001,MDL)"
    )
    parser.add_argument("--ignore", metavar="IDS", type=comma_separated, default=[], help="all but these rules")
    parser.add_argument("--strict", action="store_true", help="exit code 1 for warnings, 3 for what was not judged")
    parser.add_argument("--exit-zero", action="store_true", help="exit code 0 whatever is found")
    parser.add_argument("-v", "--verbose", action="store_true", help="tell the notes and what is not known, too")
    deep_argument(parser)
    parser.add_argument(
        "--online",
        action="store_true",
        help="also ask the hub whether the run may download what it lacks",
    )
    parser.add_argument(
        "--baseline", metavar="FILE", help="count the findings that this file knows, and tell only new ones"
    )
    parser.add_argument(
        "--watch", action="store_true", help="look again whenever the config or a file it names changes"
    )
    parser.add_argument("--write-baseline", action="store_true", help="make all that is found now known to that file")


def run(options: argparse.Namespace) -> int:
    if options.write_baseline and not options.baseline:
        typed = "zdoctor check CONFIG --baseline zdoctor-baseline.json --write-baseline"
        raise UserError("no baseline was named.", typed)
    if not options.watch:
        return _once(options)[0]
    if options.write_baseline:
        raise UserError("A baseline is written once.", "Leave --watch or --write-baseline out.")
    if not options.output and not console.is_terminal():
        raise UserError(
            "--watch draws on a terminal, and this is none.", "Name a file after -o, or leave --watch out."
        )
    return _watched(options)


def _once(options: argparse.Namespace) -> tuple[int, list[str]]:
    """The exit code, and the files that it rests on."""
    gc.disable()  # nearly all that a check makes lives to its end: looking for garbage costs a twentieth of its time
    try:
        return _shown(options)
    finally:
        gc.enable()


def _watched(options: argparse.Namespace) -> int:
    files: list[str] = []

    def look() -> list[str]:
        if files:
            forget_headers()
            gc.collect()  # it has waited for the end of the look before
        console.clear()
        try:
            files[:] = _once(options)[1]
        except UserError as error:
            if not files:
                raise
            console.complain(error)
        console.tell(f"{strftime('%H:%M:%S')}, looks again when one of {len(files)} paths changes; Ctrl-C ends it.")
        return files

    watch(look)
    if console.is_terminal():
        print()  # after the ^C that the terminal shows
    return 0


def _shown(options: argparse.Namespace) -> tuple[int, list[str]]:
    baseline = read_baseline(options.baseline, to_write=options.write_baseline) if options.baseline else None
    configs, words = _configs(options)
    seen = _seen(configs, words, options)
    if len(configs) == 1 and configs[0] and not options.words and seen[0].report.trainer not in (None, LORA):
        state.remember(configs[0])
    if baseline is not None:
        if options.write_baseline:
            baseline = baseline.renewed(seen)
            baseline.write()
        seen = [replace(one, report=baseline.applied(one)) for one in seen]
    if seen:
        _told_of(seen, options, configs)
    code = 0 if options.exit_zero or not seen else exit_code(one.report for one in seen)
    files = [*configs, *options.config, *filter(None, (options.baseline, options.machine)), *_named(configs, seen)]
    return USER_MISTAKE if len(seen) < len(configs) else code, list(dict.fromkeys(files))


def _told_of(seen: Sequence[Examination], options: argparse.Namespace, configs: Sequence[str]) -> None:
    text = render(
        options.format,
        [Checked(one.report, one.rules, one.written) for one in seen],
        version=__version__,
        screen=PAGE if options.output else console.screen(),
        verbose=options.verbose,
        addresses=_addresses() if options.format == "sarif" else {},
        code=USER_MISTAKE if len(seen) < len(configs) else None,
    )
    console.emit(text, options.output, spare=[*configs, *filter(None, [options.baseline])])
    if sys.stdout is not None:
        sys.stdout.flush()  # before what is said beside it
    if any((state.state_folder() / "journal").glob("*")):
        from .repair import say_unfinished

        say_unfinished()
    for one in seen if options.deep else ():
        console.tell(verified(one))


def _addresses() -> dict[str, str]:
    """The addresses that zdoctor's package names (`[project.urls]`), each by what it is called there."""
    from importlib.metadata import PackageNotFoundError, metadata

    with suppress(PackageNotFoundError):
        pairs = (line.partition(", ") for line in metadata("zdoctor").get_all("Project-URL") or ())
        return {label.lower(): address for label, _, address in pairs}
    return {}


def _named(configs: Sequence[str], seen: Sequence[Examination]) -> Iterator[str]:
    """The files and folders that configs name, and those that may hold their settings."""
    for config in configs:
        yield from (file for pair in looked_for(config) for file in pair)
    for one in seen:
        yield from (file.path for file in one.written.beside)
        for facts in one.facts:
            if isinstance(facts.files, Files):
                yield from (entry.path for entry in facts.files.entries.values())


def _configs(options: argparse.Namespace) -> tuple[list[str], tuple[str, ...]]:
    """What is looked at, and the command that it was made of."""
    if options.words:
        from .told import config_of

        config, is_made = config_of(options.words, next(iter(options.config), None))
        return [config], tuple(options.words) if is_made else ()
    return configs_of(options.config) if options.config else [config_in_reach() or ENVIRONMENT], ()


def _seen(configs: Sequence[str], words: tuple[str, ...], options: argparse.Namespace) -> list[Examination]:
    """Those that can be looked at; of the others is said why. Raises UserError where that is the only one."""
    seen: list[Examination] = []
    wrong: list[UserError] = []
    worlds: dict[str | None, World] = {}
    with open_progress() as progress:
        how = {"ignored": options.ignore, "online": options.online, "worlds": worlds, **asked_for(options)}
        for config in configs:
            progress.doing(f"checking {config}")
            try:
                one = examined(config, progress=progress.bytes_done, **how)
            except UserError as error:
                wrong.append(error)
            else:
                seen.append(replace(one, report=replace(one.report, strict=options.strict, words=words)))
    if wrong and len(configs) == 1:
        raise wrong[0]
    for mistake in wrong:
        console.complain(mistake)
    return seen


def check(
    config: str,
    *,
    machine: str | None = None,
    selected: Sequence[str] = (),
    ignored: Sequence[str] = (),
    deep: bool = False,
    online: bool = False,
    trainer: str | None = None,
    trainer_source: str | None = None,
    base: str | None = None,
) -> Report:
    """What would go wrong in a training run. Asks no network, unless `online` the hub; imports no torch.

    Writes nothing; a `deep` check, which reads the model's files as a whole, notes in the state folder what it read.
    Whose config it is shows in its keys; `trainer` says it where they do not. `trainer_source` is a checkout of that
    trainer, whose keys then count; one that the config lies in is found without it. A file of weights is looked at as
    a LoRA, with `base` against the model that it is for.
    """
    seen = examined(
        config,
        machine=machine,
        selected=selected,
        ignored=ignored,
        deep=deep,
        online=online,
        trainer=trainer,
        trainer_source=trainer_source,
        base=base,
    )
    from ...reports.shown import shown

    return shown(Checked(seen.report, seen.rules, seen.written))


def verified(seen: Examination) -> str:
    """What a deep check proved of the contents, in a sentence."""
    hubs = [facts.hub for facts in seen.facts if isinstance(facts.hub, Hub)]
    if not hubs:
        return "No contents were verified: the hub cache was not looked at."
    files = {f.path: f for hub in hubs for repo in hub.repos if repo.used_by for f in repo.files if f.needed}
    if not files:
        return "No contents were verified: the run loads no file of the hub cache."
    good = sum(file.verified for file in files.values())
    unnamed = sum(file.digest is None for file in files.values())
    rest = f"; {unnamed} have no published digest on this machine" if unnamed else ""
    told = f"{good} of {len(files)} cached files that the run loads hold exactly what was published"
    return f"{told} (by their digests, measured now or, of unchanged files, at an earlier check){rest}."
