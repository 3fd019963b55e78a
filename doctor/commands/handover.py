"""From an examination to the runner: whether training may start, in how many processes, and the paths it is given."""

from __future__ import annotations

import os
from collections.abc import Container
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from ..examine.examination import Examination
from ..examine.trainable import written_twice
from ..model import Memory, ModelFolder, Unknown
from ..model.cards import sharing, visible
from ..model.run import Run
from ..probe.live import LiveWorld
from ..progress import Progress, open_progress
from . import console

if TYPE_CHECKING:
    from ..train import TrainResult


def not_green(seen: Examination, known: Container[str] = ()) -> str:
    """Why training must not start, "" when it may: errors, crashed rules, and errors that could not be ruled out.

    `known` are rules whose errors are taken care of.
    """
    report = seen.report
    if errors := [finding for finding in report.errors if finding.rule not in known]:
        return ", ".join(dict.fromkeys(f"{f.rule} {f.name}" for f in errors))
    if report.crashed:
        return ", ".join(f"{o.rule} crashed" for o in report.crashed)
    if not seen.reading.runs:
        return seen.reading.reason or "there is nothing to train in it"
    serious = {rule.id for rule in seen.rules if rule.severity == "error"}
    return "; ".join(f"{o.rule} is not known ({o.reason})" for o in report.unknown if o.rule in serious)


def hand_over(seen: Examination, **how: Any) -> TrainResult:
    """Hand a green examination `as_runner` to the runner: every path resolved, nothing looked up again.

    `how` is the rest of the runner's Job.
    """
    from .. import train as runner
    from ..train.distributed.ranks import Ranks

    if twice := written_twice(seen.reading.runs):  # they would go on from each other's state
        raise UserError(
            f"several processes of this config write {twice.name} into {twice.output_folder}.",
            "Give each its own training_folder, or each its own config.",
        )
    ranks = how.pop("ranks", None) or Ranks()
    shown = how.pop("progress", None) or (open_progress() if ranks.is_first else Progress())
    result: TrainResult | None = None
    for facts in seen.facts:
        run, model, system, files = facts.run, facts.model, facts.system, facts.files
        if isinstance(run, Unknown) or isinstance(model, Unknown) or isinstance(system, Unknown):
            raise UserError("the run or its model is not known well enough to train.")
        if isinstance(files, Unknown) or model.folder is None:
            raise UserError(
                f"{run.recipe.base_model} is not on this machine.", f"hf download {run.recipe.base_model}"
            )
        in_parts = model.layout == "part-files"
        main = run.recipe.parts[0].name if in_parts else "transformer"
        single = model.components.get(main) if in_parts or model.layout == "single-file" else None
        component = model.components.get("text_encoder")
        adapter = facts.adapter
        if isinstance(adapter, Unknown) and run.recipe.adapter:
            raise UserError(f"the training adapter {run.recipe.adapter} cannot be used: {adapter.reason}.")
        datasets = {d.key: system.absolute(d.folder) for d in run.recipe.datasets if d.folder is not None}
        job = runner.Job(
            run,
            model=Path(single.weights[0].path if single is not None else model.folder),
            datasets=datasets,
            output=Path(system.absolute(run.output_folder or "output")),
            extras=Path(component.folder).parent if component is not None and not in_parts else None,
            components=_places(model, main) if in_parts else {},
            adapter=None if adapter is None or isinstance(adapter, Unknown) else Path(adapter.path),
            ranks=ranks,
            progress=shown,
            **how,
        )
        result = runner.train(job)
        if result.stopped != "finished":
            break
    if result is None:
        raise UserError("there is nothing to train in this config.")
    return result


def _places(model: ModelFolder, main: str) -> dict[str, Path]:
    """The file of each part beside the `main` one, and the folder of each tokenizer."""
    return {
        name: Path(part.weights[0].path if part.weights else part.folder)
        for name, part in model.components.items()
        if name != main and part.problem is None
    }


def _predicted(seen: Examination) -> list[Memory]:
    return [facts.memory for facts in seen.facts if isinstance(facts.memory, Memory)]


def too_large(seen: Examination, count: int) -> frozenset[str]:
    """The rule that says so of a base that one card cannot hold and `count` processes share out; else none."""
    known = _predicted(seen)
    tight = [memory for memory in known if memory.peak.total + memory.margin > memory.free]
    shared = tight and all(memory.only_fits_sharded(min(count, memory.cards)) for memory in tight)
    return frozenset({"MEM001"} if shared and count > 1 else ())


def process_count(seen: Examination) -> int:
    """One for each card that can take part, where the runs ask for "cuda"; else one."""
    runs = seen.reading.runs
    if not runs or not all(one.device == "cuda" for one in runs) or "RANK" in os.environ:
        return 1
    gpus = LiveWorld().gpus()
    seen_by_cuda = gpus if isinstance(gpus, Unknown) else visible(gpus, os.environ)
    cards = 1 if isinstance(seen_by_cuda, Unknown) else sharing(seen_by_cuda)
    # the first of the cards has room for it, and not each of them
    if cards > 1 and (full := next((memory for memory in _predicted(seen) if not memory.fits_all()), None)):
        console.tell(
            f"one of the {cards} cards has only {full.least_free / 1e9:.1f} GB free (measured), and this "
            f"run takes {full.peak.total / 1e9:.1f} GB (computed). It trains on {full.device} alone; "
            "CUDA_VISIBLE_DEVICES chooses the cards."
        )
        return 1
    samples = min(map(_samples, runs))
    if samples < cards:
        console.tell(
            f"batch_size x gradient_accumulation is {samples}, so of {cards} cards only {samples} can share "
            f"a step. With gradient_accumulation: {cards} all would (each step would see more pictures)."
        )
    return max(1, min(cards, samples))


def _samples(one: Run) -> int:
    return one.recipe.batch_size * one.recipe.gradient_accumulation


def refuse_small_batch(one: Run, count: int) -> None:
    if _samples(one) < count:
        raise UserError(
            f"batch_size x gradient_accumulation is {_samples(one)}, which {count} processes cannot share.",
            f"Set gradient_accumulation: {count}, or start with --processes {_samples(one)}.",
        )
