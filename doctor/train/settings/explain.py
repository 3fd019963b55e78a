"""Where a run differs from what the words of its config may suggest."""

from __future__ import annotations

from collections.abc import Iterator

from ...families import family_of
from ...families.network import lokr_rank
from ...model.run import Run
from .names import KINDS, SHIFTS


def explain(run: Run) -> Iterator[str]:
    """What the user should know before the run starts, a sentence or two each."""
    if run.network_type == "lokr" and lokr_rank(run) is None and not run.homes.get("lycoris"):
        yield f"rank {run.rank} is ignored: a LoKr has full matrices unless lokr_full_rank is false."
    elif run.alpha != run.rank and run.setting("network/scale") is None:
        yield (
            f"alpha {run.alpha:g} is ignored: as in ai-toolkit, this LoRA is trained and saved with alpha = rank = "
            f"{run.rank}."
        )
    if run.network_type == "lokr" and not family_of(run.architecture).lokr:
        yield "diffusers (0.42.1 tried) opens no LoKr of Flux; see that what you paint with does."
    if run.scheduler == "linear" and not {"start_factor", "end_factor"} & set(run.scheduler_settings):
        yield "lr_scheduler linear falls from the learning rate to zero here (ai-toolkit's rises from a third of it)."
    if run.scheduler_settings.get("total_iters", run.steps) != run.steps:
        yield "total_iters counts here; ai-toolkit puts the steps of the run in its place."
    if run.timestep_type == "weighted":
        yield "timestep_type weighted uses a fitted curve of ai-toolkit's weights (within 4 %, mean 0.5 %)."
    if run.timestep_type in SHIFTS and family_of(run.architecture).ai_toolkit.more_cells:
        yield "timestep_type shift counts a picture's cells as the pipeline does (ai-toolkit: four times as many)."
    if run.noise_scheduler != "flowmatch" and run.written("noise_scheduler") is not None:
        yield f"noise_scheduler {run.noise_scheduler} has no meaning for this model: flow matching is used."
    if run.setting("train/do_differential_guidance") and not run.setting("train/do_guidance_loss"):
        yield (
            "do_differential_guidance counts here: the loss is larger by differential_guidance_scale squared "
            "(ai-toolkit looks at it only when do_guidance_loss is true)."
        )
    if KINDS[run.quantization] == "nf4" and run.quantization != "nf4":
        yield f"qtype {run.quantization} is stored as nf4 here: four bits too, with levels made for normal weights."
    if run.text_encoder_quantization not in KINDS:
        yield f"qtype_te {run.text_encoder_quantization} is not known here: the text encoder runs once, unquantized."
    if run.setting("train/validation_config"):
        yield "validation_config has no effect here: --eval N measures the loss on N held-out pictures."
