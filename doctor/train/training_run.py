"""A run from the first look at its files to the saved LoRA."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor

from .base_model import Base, identity_of, load_weights, open_base
from .dataset.epochs import counted
from .device_placement import Place, place_of
from .job import Job, TrainResult
from .kernels.attention import VARIABLE, use_kernel
from .network.initial_weights import begin, read_start
from .network.lora import add_network, add_removal, targets
from .output.checkpoint_files import check_owner, final_file, read_state, state_file, sweep
from .output.loss_log import Journal
from .output.run_record import Folder, read_record, run_record
from .output.trackers import Trackers
from .runtime.allocator import free_memory, keep_memory, return_memory
from .runtime.gpu_failures import explained
from .sampling.preview_samples import Preview
from .sampling.sample_prompts import previews
from .settings.explain import explain
from .step.flow_matching import Objective
from .step.trainer import Trainer
from .step.training_state import State
from .training_data import Encoded, Examples, encode_examples, read_examples
from .training_loop import Steps, follow, saved
from .transformer.block_swap import offload_share
from .transformer.transformer_blocks import compile_blocks, suit_cpu, use_half
from .weights.materialize import check_no_meta

# Matrices up to this many columns gain nothing from threads; on a busy machine they lose most of their time waiting.
SMALL = 512


def run_training(job: Job) -> TrainResult:
    """See `zdoctor.doctor.train.train`."""
    began = time.monotonic()
    return_memory()
    free_memory()  # an earlier run of the config: the text encoder's process needs the room on the GPU
    with explained():
        place = place_of(job)
    job.progress.phase("Checking the model files")
    base = open_base(job)
    if place.device.type == "cpu" and max(columns for _, columns in targets(base.model).values()) <= SMALL:
        torch.set_num_threads(1)
    identity = identity_of(job, base)
    job.ranks.same(identity)
    state, there = job.ranks.share(_earlier(job, identity))
    if state and there and job.run.recipe.steps and (done := _finished(job, state, began)):
        return done
    for note in explain(job.run):
        job.progress.note(note)
    covered = targets(base.model, job.run.recipe.network.excluded, refiners=job.run.recipe.network.refiners)
    start = {} if state else read_start(job.run, covered, base.family.PREFIX, base.family.CLASS_NAME)
    job.progress.phase("Reading the dataset")
    examples = read_examples(job, base.divisor, state)
    job = replace(job, run=counted(job.run, examples.items))
    if state and there and (done := _finished(job, state, began)):
        return done
    with explained():
        encoded = encode_examples(job, place, base, examples)
        load_weights(job, place, base, identity["adapter"])
        encoded.texts.finish(job.progress.phase)
        trainer, preview = _made(job, place, base, examples, encoded, start, _seed(job, state))
        base.adapter.clear()
        keep_memory()
        if state:
            trainer.restore(state)
            job.progress.note(f"The run goes on from step {state.step}.")
        job.ranks.exchange(None)
        job.stop.gentle = True
        job.stop.heed()
        if not job.ranks.first:
            follow(trainer, preview, job.stop, job.output, identity, examples.held)
            return cast(TrainResult, job.ranks.share(None))
        result = _trained(job, place, trainer, preview, identity, examples, state is not None)
    job.progress.close()
    return job.ranks.share(replace(result, seconds=time.monotonic() - began))


def _earlier(job: Job, identity: dict[str, str]) -> tuple[State | None, bool]:
    """The state that an earlier start of this run has left, and whether its LoRA is there. Raises TrainError."""
    if not job.ranks.first:
        return None, False
    check_owner(job.output, job.run)
    sweep(job.output, job.run.name)
    state = read_state(state_file(job.output, job.run.name), identity)
    return state, final_file(job.output, job.run.name).is_file()


def _finished(job: Job, state: State, began: float) -> TrainResult | None:
    """The result of a run that has all its steps, None of any other."""
    if state.step < job.run.recipe.steps:
        return None
    final = final_file(job.output, job.run.name)
    job.progress.note(
        f"This run is finished: {state.step} steps of {job.run.recipe.steps} are done, and {final} is there. "
        "Nothing was trained. For more, raise steps; to start again, give the run another name."
    )
    return TrainResult(str(final), state.step, tuple(state.losses), (), time.monotonic() - began, "finished")


def _seed(job: Job, state: State | None) -> int:
    """That of the earlier start, else the config's, else any; the same in all processes."""
    run = job.run
    seed = state.seed if state else run.recipe.seed if run.recipe.seed is not None else secrets.randbelow(1 << 31)
    seed = job.ranks.share(seed)
    if state and run.recipe.seed not in (None, seed):
        job.progress.note(
            f"The run goes on with its seed {seed}; the seed {run.recipe.seed} of the config starts with a new run."
        )
    return seed


def _made(
    job: Job,
    place: Place,
    base: Base,
    examples: Examples,
    encoded: Encoded,
    start: Mapping[str, Tensor],
    seed: int,
) -> tuple[Trainer, Preview]:
    """The loaded model with its network, and what trains and paints with it. Raises TrainError."""
    run, model, progress = job.run, base.model, job.progress
    shapes = targets(model, run.recipe.network.excluded, refiners=run.recipe.network.refiners)
    if other := use_kernel(model):
        progress.note(f"{VARIABLE}={other} has no effect: attention is PyTorch's own, which trains on every device.")
    if place.arithmetic.half:
        use_half(model)
    elif place.device.type == "cpu" and not place.compiled:
        suit_cpu(model, all_again=run.recipe.offload.gradient_checkpointing and run.recipe.offload.interval == 1)
    removal = add_removal(model, base.adapter, place.dtype) if base.adapter and previews(run) else []
    network = add_network(model, shapes, run, seed)
    begin(network, start, base.family.PREFIX)
    check_no_meta(model)
    if place.offloaded:
        away = offload_share(model, shapes, place.offloaded, place.device)
        progress.note(f"{away / 1e9:.1f} GB of the weights stay in host memory (layer_offloading).")
    if place.compiled:
        progress.note(
            "The first steps take minutes: each kind of block is compiled, and for a second size of picture again."
        )
        compile_blocks(model)
    objective = Objective(
        run,
        model,
        network,
        encoded.latents,
        encoded.texts,
        encoded.masks,
        seed,
        place.device,
        place.dtype,
        job.ranks,
    )
    trainer = Trainer(run, objective, examples.items, progress)
    whole = job.model if job.model.is_dir() else base.config.parent
    return trainer, Preview(run, trainer, removal, examples.drawn, base.parts["vae"], whole, job.output)


def _trained(
    job: Job,
    place: Place,
    trainer: Trainer,
    preview: Preview,
    identity: dict[str, str],
    examples: Examples,
    goes_on: bool,
) -> TrainResult:
    """All the steps, told and saved; without its seconds."""
    run, output = job.run, job.output
    journal = Journal(output / "losses.jsonl", trainer.losses)
    record = run_record(
        run,
        device=str(place.device) if place.device.type != "cuda" else torch.cuda.get_device_name(place.device),
        dtype=place.arithmetic.name,
        seed=trainer.objective.seed,
        step=trainer.step,
        before=read_record(output / "run.json") if goes_on else {},
    )
    notes = Folder(output, run, record)
    trackers = Trackers(run, output, record, job.progress.note)
    steps = Steps(
        run, trainer, preview, output, identity, job.progress, job.stop, examples.held, journal, notes, trackers
    )
    try:
        stopped = steps.go()
    finally:
        journal.close()
        trackers.close()
    return TrainResult(
        lora=str(saved(run, output, trainer.step)) if trainer.step else "",
        steps=trainer.step,
        losses=tuple(trainer.losses),
        evaluations=tuple(journal.evaluations),
        samples=tuple(preview.files),
        seconds=0.0,
        stopped=stopped,
    )
