"""`zdoctor cache`: every hub cache, its health and its waste; and the repair of one repository."""

from __future__ import annotations

import argparse
from typing import Any

from ... import __version__
from ...reports import cache as cache_report
from ...reports import cache_json, repairs_json
from ...reports import plan as plan_report
from .. import apply as writer
from ..errors import UserError, not_cached
from ..examine.engine import cures, examine
from ..model import Facts, Report
from ..model.caches import Inventory
from ..model.record import replace
from ..model.repairs import Fixed
from ..model.said import said
from ..probe.hub.faults import probe_faults, run_of
from ..probe.hub.inventory import names, probe_inventory
from ..probe.world import World
from ..progress import open_progress
from ..rules import all_repairs, all_rules, select
from . import console
from .config_argument import format_argument
from .examined import world_of
from .repair import carry_out, recover, say_unfinished

REPAIRED = ("HUB001", "HUB002", "HUB003", "HUB004")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("repo", nargs="?", metavar="REPO", help="only this repository, org/name")
    parser.add_argument("--deep", action="store_true", help="also read every file as a whole and compare its sha256")
    format_argument(parser)
    parser.add_argument("--fix", action="store_true", help="show the repairs of REPO as a plan")
    parser.add_argument("--apply", action="store_true", help="with --fix: repair (zdoctor undo puts everything back)")


def inventory(repo: str | None = None, *, deep: bool = False, progress: Any = None) -> Inventory:
    """What the hub caches hold, all of it or of one repository ("org/name"). Changes nothing, asks no network.

    Raises UserError for a repository that is in none of them.
    """
    world = world_of(None, deep=deep, progress=progress)
    _require(world, repo)
    return probe_inventory(world, repo, deep=deep)


def repair(repo: str, *, apply: bool = False, deep: bool = False, progress: Any = None) -> tuple[Fixed, Inventory]:
    """Plan the repairs of every cached copy of a model and, with `apply`, carry them out and check again.

    Gives the repository as it was last seen, too.
    """
    world = world_of(None)
    _require(world, repo)
    if not any(found.kind == "model" for found in probe_inventory(world, repo).repos):
        raise UserError(
            f"{repo} is no model; zdoctor repairs models.", f"hf cache verify {repo} names what is wrong."
        )

    rules, seen = select(all_rules(), REPAIRED, ()), Inventory(())

    def look() -> Report:
        nonlocal seen
        world = world_of(None, deep=deep, progress=progress)
        seen = probe_inventory(world, repo, deep=deep)
        facts = Facts(run=run_of(repo), system=world.system, hub=probe_faults(world, seen))
        return cures(examine(facts, rules, config=repo, trainer=None), facts, all_repairs())

    return carry_out(look, apply=apply, progress=progress), seen


def _require(world: World, repo: str | None) -> None:
    if repo is None:
        return
    cached = names(world)
    if repo not in cached:
        raise not_cached(repo, cached, "zdoctor cache lists what is cached.")


def run(options: argparse.Namespace) -> int:
    recover() if options.apply else say_unfinished()
    if (options.fix or options.apply) and options.repo is None:
        raise UserError("--fix needs the name of a repository.", "zdoctor cache org/name --fix")
    if options.apply and not options.fix:
        raise UserError("--apply goes with --fix.", f"zdoctor cache {options.repo} --fix --apply")
    if options.fix:
        return _fix(options)
    with open_progress() as progress:
        progress.doing("looking through the hub caches")
        found = inventory(options.repo, deep=options.deep, progress=progress.bytes_done)
    if options.format == "json":
        console.emit(cache_json.render(found, __version__))
    else:
        _show(found)
    return found.exit_code


def _fix(options: argparse.Namespace) -> int:
    with open_progress() as progress:
        progress.doing(f"looking at {options.repo}")
        done, found = repair(options.repo, apply=options.apply, deep=options.deep, progress=progress.bytes_done)
    again = f"zdoctor cache {options.repo} --fix{' --deep' if options.deep else ''} --apply"
    shown = tuple(replace(f, command=again) if f.command.startswith("zdoctor fix") else f for f in done.plan.shown)
    plan = replace(done.plan, shown=shown)
    if options.format == "json":
        following = [] if done.applied or not plan.fixes else [(again, "")]
        fixed = replace(done, plan=plan)
        console.emit(
            repairs_json.of_plan(
                fixed, following, {}, writer.describe, version=__version__, exit_code=found.exit_code
            )
        )
        return found.exit_code
    console.show(plan_report.lines(plan, done.diff))
    if done.applied:
        console.say(f"\nApplied as {done.applied[0]}. To take it back: zdoctor undo {done.applied[0]}\n")
        _show(found)
    elif plan.fixes:
        console.say(f"\n{said('next: ')}{again}")
    return found.exit_code


def _show(found: Inventory) -> None:
    console.show(cache_report.lines(found))
