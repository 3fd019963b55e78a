"""Where a run differs from what the words of its config may suggest."""

from __future__ import annotations

from collections.abc import Iterator

from ...families import family_of
from ...families.network import TITLES, lokr_rank
from ...model.run import Run
from .names import KINDS, SHIFTS


def explain(run: Run) -> Iterator[str]:
    """Yields what the user should know before the run starts, a sentence or two each."""
    yield from _of_network(run)
    yield from _of_schedule(run)
    yield from _of_precision(run)
    if run.recipe.batch_size > 1 and any(dataset.keeps_blanks for dataset in run.recipe.datasets):
        yield "Pictures are shared out to batches anew each time they are gone through (ai-toolkit: once)."
    if (told := run.written("validation_config")) is not None and told.value:
        yield "validation_config has no effect here: --eval N measures the loss on N held-out pictures."


def _of_network(run: Run) -> Iterator[str]:
    network = run.recipe.network
    if network.type == "lokr" and lokr_rank(network) is None and not run.homes.get("lycoris"):
        yield f"rank {network.rank} is ignored: a LoKr has full matrices unless lokr_full_rank is false."
    elif network.type != "oft" and network.alpha != network.rank and network.scale == 1.0:
        yield (
            f"alpha {network.alpha:g} is ignored: as in ai-toolkit, this LoRA is trained and saved with "
            f"alpha = rank = {network.rank}."
        )
    if network.type == "dora":
        yield "The DoRA has diffusers' names; ComfyUI would take the LoRA alone, without its trained lengths."
    elif network.type in ("loha", "oft") or (network.type == "lokr" and not family_of(run.recipe.architecture).lokr):
        kind = TITLES[network.type]
        yield f"diffusers (0.42.1 tried) opens no {kind} of this model; ComfyUI (0.8.0 tried) does."


def _of_schedule(run: Run) -> Iterator[str]:
    """Learning rate, timesteps and loss."""
    recipe = run.recipe
    schedule, sampling = recipe.lr_scheduler, recipe.timestep_sampling
    is_flow = not family_of(recipe.architecture).diffuses
    if schedule.name == "linear" and not {"start_factor", "end_factor"} & set(schedule.settings):
        yield "lr_scheduler linear falls from the learning rate to zero here (ai-toolkit's rises from a third of it)."
    if schedule.settings.get("total_iters", recipe.steps) != recipe.steps:
        yield "total_iters counts here; ai-toolkit puts the steps of the run in its place."
    if sampling.type == "weighted" and is_flow:
        yield "timestep_type weighted uses a fitted curve of ai-toolkit's weights (within 4 %, mean 0.5 %)."
    if sampling.type in SHIFTS and family_of(recipe.architecture).ai_toolkit.more_cells:
        yield "timestep_type shift counts a picture's cells as the pipeline does (ai-toolkit: four times as many)."
    if is_flow and sampling.noise_scheduler != "flowmatch" and run.written("noise_scheduler") is not None:
        yield f"noise_scheduler {sampling.noise_scheduler} has no meaning for this model: flow matching is used."
    if recipe.loss.differential_guidance is not None and recipe.loss.guidance is None:
        yield (
            "do_differential_guidance counts here: the loss is larger by differential_guidance_scale squared "
            "(ai-toolkit looks at it only when do_guidance_loss is true)."
        )


def _of_precision(run: Run) -> Iterator[str]:
    precision = run.recipe.precision
    if KINDS[precision.quantization] == "nf4" and precision.quantization != "nf4":
        yield (
            f"qtype {precision.quantization} is stored as nf4 here: four bits too, "
            "with levels made for normal weights."
        )
    if precision.text_encoder_quantization not in KINDS:
        yield (
            f"qtype_te {precision.text_encoder_quantization} is not known here: "
            "the text encoder runs once, unquantized."
        )
