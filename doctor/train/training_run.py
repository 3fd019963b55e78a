"""A training run goes from the first look at its files to the saved LoRA."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from ..families.network import file_prefix
from ..model.run import Run
from .base_model import BaseModel, load_weights, open_base_model, state_identity
from .dataset.batch_sampler import BatchSampler, epochs_to_steps
from .dataset.training_items import TrainingItem
from .device_placement import DevicePlacement, choose_placement
from .families import scheduler_config
from .families.noising import noising_of
from .job import Job, TrainResult
from .kernels.attention import VARIABLE, use_native_attention
from .kernels.chosen import chosen_kernels
from .kernels.quantized_linear import why_not_fused
from .network.lora import (
    add_adapter_removal,
    add_network,
    lora_targets,
    read_initial_weights,
    trainable_parameters,
    whole_layers,
)
from .output.checkpoint_files import check_owner, read_state, remove_leftovers
from .output.hub_repository import claim_repository, push
from .output.loss_log import LossLog
from .output.run_record import RunFolder, read_record, run_record
from .output.trackers import Trackers
from .runtime.allocator import empty_device_cache, keep_freed_memory, return_freed_memory
from .runtime.gpu_failures import explain_gpu_failures
from .runtime.train_error import TrainError
from .sampling.preview_samples import PreviewSamples
from .settings.explain import explain
from .settings.names import DTYPES, class_path
from .step.batch_loss import BatchLoss
from .step.optimizer import BY_BITSANDBYTES, try_optimizer
from .step.pace import PaceWatch
from .step.trainer import Trainer, TrainingState
from .training_data import EncodedData, TrainingData, encode_training_data, read_training_data
from .training_loop import RankLoop, TrainingLoop
from .transformer.block_swap import swap_share
from .transformer.transformer_blocks import compile_blocks, optimize_for_cpu, use_float16
from .weights.materialize import check_no_meta

# Matrices up to this many columns gain nothing from threads; on a busy machine they lose most of their time waiting.
SMALL = 512
MOST_NAMED = 3


def run_training(job: Job) -> TrainResult:
    """Runs a job to its end; see `train`."""
    began = time.monotonic()
    return_freed_memory()
    empty_device_cache()  # an earlier run of the config: the text encoder's process needs the room on the GPU
    with explain_gpu_failures():
        place = choose_placement(job)
        chosen = job.recipe.optimizer
        try_optimizer(chosen.name, chosen.settings, job.recipe.learning_rate, place.device)
    job.progress.phase("Checking the model files")
    base = open_base_model(job)
    if place.device.type == "cpu" and max(shape[1] for shape in lora_targets(base.model).values()) <= SMALL:
        torch.set_num_threads(1)
    identity = state_identity(job, base)
    job.ranks.check_same(identity)
    state, there = job.ranks.broadcast(_earlier(job, identity))
    if state and there and job.recipe.steps and (done := _finished(job, state, began)):
        return done
    for note in explain(job.run):
        job.progress.note(note)
    repository = ""
    if job.recipe.checkpoints.push_to and job.ranks.is_first:
        repository = claim_repository(job.recipe.checkpoints, job.progress.note)
    how = job.recipe.network
    covered = _covered(job, base)
    start = {} if state else read_initial_weights(how, covered, base.family.RECORD)
    job.progress.phase("Reading the dataset")
    examples = read_training_data(job, base.divisor, state)
    job = replace(job, run=replace(job.run, recipe=epochs_to_steps(job.recipe, examples.items)))
    if state and there and (done := _finished(job, state, began)):
        return done
    seed = _seed(job, state)
    batches = BatchSampler(job.recipe, examples.items, seed)
    with explain_gpu_failures():
        encoded = encode_training_data(job, place, base, examples, batches, state.step if state else 0)
        load_weights(job, place, base, identity["adapter"])
        encoded.texts.finish(job.progress)
        trainer, preview = _made(job, place, base, examples, encoded, covered, start, seed)
        base.adapter.clear()
        keep_freed_memory()
        if state:
            trainer.restore(state)
            job.progress.note(f"The run goes on from step {state.step}.")
        job.ranks.all_gather(None)
        job.stop.gentle = True
        job.stop.heed()
        if not job.ranks.is_first:
            RankLoop(job, trainer, preview, identity, examples.held).follow()
            return cast(TrainResult, job.ranks.broadcast(None))
        result = _trained(job, place, trainer, preview, identity, examples.held, state is not None)
    if repository and result.stopped == "finished":
        push(repository, Path(result.lora), [Path(file) for file in result.samples], job.progress.note)
    job.progress.close()
    return job.ranks.broadcast(replace(result, seconds=time.monotonic() - began))


def _covered(job: Job, base: BaseModel) -> dict[str, tuple[int, ...]]:
    """The shapes of the layers that the config chooses, by name. Raises TrainError where it leaves none."""
    how = job.recipe.network
    every = lora_targets(base.model, refiners=how.refiners, windows=how.conv_rank > 0)
    covered = lora_targets(base.model, how.excluded, refiners=how.refiners, windows=how.conv_rank > 0)
    if not covered:
        first = ", ".join(list(every)[:MOST_NAMED])
        raise TrainError(f"The config chooses no layer, so nothing would be trained. There are {first}, ….")
    if whole := next((name for name in whole_layers(base.model, how) if name not in covered), None):
        raise TrainError(f"The config trains {whole} as a whole, which is no Linear that the runner trains.")
    count = how.rank if how.type == "oft" else 1
    for name, (outputs, *_) in covered.items():
        if outputs % count:
            raise TrainError(f"The {outputs} outputs of {name} cannot be shared out to the {count} blocks of an OFT.")
    if len(covered) < len(every):
        job.progress.note(f"{len(covered)} of the {len(every)} layers are trained, the first {next(iter(covered))}.")
    return covered


def _earlier(job: Job, identity: dict[str, str]) -> tuple[TrainingState | None, bool]:
    """The state that an earlier start of this run has left, and whether its LoRA is there. Raises TrainError."""
    if not job.ranks.is_first:
        return None, False
    check_owner(job.output, job.run)
    remove_leftovers(job.output, job.run.name)
    state = read_state(job.state_file, identity)
    return state, job.lora_file(job.recipe.steps).is_file()


def _finished(job: Job, state: TrainingState, began: float) -> TrainResult | None:
    """The result of a run that has all its steps, None of any other."""
    if state.step < job.recipe.steps:
        return None
    final = job.lora_file(state.step)
    job.progress.note(
        f"This run is finished: {state.step} steps of {job.recipe.steps} are done, and {final} is there. "
        "Nothing was trained. For more, raise steps; to start again, give the run another name."
    )
    return TrainResult(str(final), state.step, tuple(state.losses), (), time.monotonic() - began, "finished")


def _seed(job: Job, state: TrainingState | None) -> int:
    """That of the earlier start, else the config's, else any; the same in all processes."""
    run = job.run
    seed = state.seed if state else run.recipe.seed if run.recipe.seed is not None else secrets.randbelow(1 << 31)
    seed = job.ranks.broadcast(seed)
    if state and run.recipe.seed not in (None, seed):
        job.progress.note(
            f"The run goes on with its seed {seed}; the seed {run.recipe.seed} of the config starts with a new run."
        )
    return seed


def _made(
    job: Job,
    place: DevicePlacement,
    base: BaseModel,
    examples: TrainingData,
    encoded: EncodedData,
    covered: dict[str, tuple[int, ...]],
    start: Mapping[str, Tensor],
    seed: int,
) -> tuple[Trainer, PreviewSamples]:
    """The loaded model with its network on the layers that are `covered`, and what trains and paints with it."""
    recipe, model, progress = job.recipe, base.model, job.progress
    if other := use_native_attention(model):
        progress.note(f"{VARIABLE}={other} has no effect: attention is PyTorch's own, which trains on every device.")
    if place.precision.scaled_float16:
        use_float16(model)
    elif place.device.type == "cpu" and not place.compiled:
        optimize_for_cpu(model, all_again=recipe.offload.every_block_again)
    on_card = place.device.type == "cuda" and not place.compiled
    if on_card and base.kind == "nf4" and (why := why_not_fused(place.device)):
        progress.note(f"The weights of nf4 go through memory four times as often as by one kernel of Triton: {why}.")
    removals = add_adapter_removal(model, base.adapter, place.dtype) if recipe.validation.painted else []
    network = add_network(model, covered, recipe.network, seed)
    parameters = trainable_parameters(network, file_prefix(recipe.network, base.family.RECORD.lora_prefix))
    with torch.no_grad():
        for key, value in start.items():
            parameters[key].copy_(value)
    check_no_meta(model)
    encoded.texts.load_trained(recipe, place.device, seed)
    data = encoded.latents, encoded.texts, encoded.masks
    whole = job.model if job.model.is_dir() else base.config.parent
    record = base.family.RECORD
    noising = noising_of(record, scheduler_config(record, whole, model, recipe.loss))
    objective = BatchLoss(recipe, model, network, *data, seed, place.device, place.dtype, job.ranks, noising)
    if place.offloaded:
        away = swap_share(model, objective.reached, place.offloaded, place.device)
        progress.note(f"{away / 1e9:.1f} GB of the weights stay in host memory (layer_offloading).")
    if place.compiled:
        progress.note(
            "The first steps take minutes: each kind of block is compiled, and for a second size of picture again."
        )
        compile_blocks(model)
    trainer = Trainer(objective, examples.items, progress)
    return trainer, PreviewSamples(
        trainer,
        removals,
        examples.edited,
        base.vae,
        whole,
        job.output / "samples",
        job.run.name,
        progress,
    )


def _otherwise(run: Run, place: DevicePlacement, trainer: Trainer) -> dict[str, Any]:
    """The settings that this machine does not have as they are asked for, with what is taken in their place."""
    recipe = run.recipe
    pairs = {
        "device": (run.device, str(place.device)),
        "dtype": (DTYPES[recipe.precision.dtype], place.precision.name),
        "optimizer": (recipe.optimizer.name, _called(recipe.optimizer.name, trainer.optimizer)),
        "offload.compile": (recipe.offload.compile, place.compiled),
        "offload.share": (recipe.offload.share or 0.0, place.offloaded),
    }
    return {name: here for name, (asked, here) in pairs.items() if here != asked}


def _called(name: str, optimizer: torch.optim.Optimizer) -> str:
    """The optimizer that was made, by the name that the config has for it."""
    made = type(optimizer).__name__
    return name if made == class_path(name).rpartition(".")[2] and name not in BY_BITSANDBYTES else made.lower()


def _trained(
    job: Job,
    place: DevicePlacement,
    trainer: Trainer,
    preview: PreviewSamples,
    identity: dict[str, str],
    held: list[TrainingItem],
    goes_on: bool,
) -> TrainResult:
    """All the steps, told and saved; without its seconds."""
    run, output = job.run, job.output
    journal = LossLog(output / "losses.jsonl", trainer.losses)
    multiplies = torch.float16 if place.precision.scaled_float16 else place.dtype
    model: Any = trainer.objective.model
    kernels = chosen_kernels(model, trainer.optimizer, place.device, multiplies, place.compiled)
    if place.device.type != "cpu":
        attention, products, blocks, optimizer = kernels.values()
        job.progress.note(f"Attention: {attention}. Products: {products}. Blocks: {blocks}. Optimizer: {optimizer}.")
    record = run_record(
        run,
        device=str(place.device) if place.device.type != "cuda" else torch.cuda.get_device_name(place.device),
        dtype=place.precision.name,
        other=_otherwise(job.run, place, trainer),
        seed=trainer.objective.seed,
        step=trainer.step,
        before=read_record(output / "run.json") if goes_on else {},
        kernels=kernels,
    )
    notes = RunFolder(output, run, record)
    trackers = Trackers(run, output, record, job.progress.note)
    spent = trainer.objective.latents.cache.spent
    pace = PaceWatch(place.device, multiplies, place.compiled, job.progress.note, spent)
    loop = TrainingLoop(job, trainer, preview, identity, held, journal, notes, trackers, pace)
    try:
        stopped = loop.train()
    finally:
        journal.close()
        trackers.close()
    return TrainResult(
        lora=str(job.lora_file(trainer.step)) if trainer.step else "",
        steps=trainer.step,
        losses=tuple(trainer.losses),
        evaluations=tuple(journal.evaluations),
        samples=tuple(preview.files),
        seconds=0.0,
        stopped=stopped,
    )
