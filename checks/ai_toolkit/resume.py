"""What an earlier run of the same name does to this one: ai-toolkit goes on from its newest save, unasked."""

from __future__ import annotations

from collections.abc import Iterator

from ...doctor.model import Finding, Run, found
from ...doctor.model.remains import EarlierSave, hides
from ...doctor.rules import prevents, rule
from ..model.files import PROBLEMS
from .starting_lora import of_another_rank, rank_of


@rule("TRN007", "warning", "resumed-with-another-rank", trainers=("ai-toolkit",))
def resumed_with_another_rank(run: Run, earlier: EarlierSave | None) -> Iterator[Finding]:
    """The run goes on from a LoRA of another rank.

    What: In training_folder/name lies a save of an earlier run, which ai-toolkit loads at the start, and its rank is
    not the one of the config.
    Why: A smaller LoRA is filled up with zeros on both sides. The gradient of each side is a product with the other,
    so the added ranks stay zero to the last step: the run trains the old rank and saves the new size. Of a larger
    LoRA the upper ranks are cut off, and the optimizer's state is dropped.
    Repair: Give the run another name, or the rank of the save.
    Upstream: toolkit/network_mixins.py load_weights, jobs/process/BaseSDTrainProcess.py (27a03a91)
    Signature: #### IMPORTANT RESUMING FROM … ####; Expanding … from torch.Size([…]); Shrinking …
    """
    if earlier is None or not _resumes(run, earlier) or run.recipe.network.type != "lora":
        return
    rank = rank_of(earlier.weights.tensors)
    if rank is not None and rank != run.recipe.network.rank:
        message = "The run goes on from {path}, a LoRA of rank {rank}, and the config has rank {wanted}."
        yield of_another_rank(run, earlier.weights.path, rank, message, ", and the optimizer starts anew.")


@rule("TRN008", "warning", "no-step-left", trainers=("ai-toolkit",))
def no_step_left(run: Run, earlier: EarlierSave | None) -> Iterator[Finding]:
    """The run goes on from a save that has all its steps already.

    What: In training_folder/name lies a save of train.steps steps or more.
    Why: ai-toolkit loads the model, quantizes it, encodes the dataset, trains no step, saves and reports success.
    Repair: Raise steps to train longer, or give the run another name to train anew.
    Upstream: jobs/process/BaseSDTrainProcess.py (27a03a91)
    Signature: Found step … in metadata, starting from there
    """
    if earlier is None or not _resumes(run, earlier) or run.written("train/start_step") is not None:
        return
    steps = run.recipe.steps
    if earlier.step is not None and earlier.step >= steps:
        yield found(
            run.where("steps"),
            "The run goes on from {path}, which was saved at step {step}, and it has {steps} steps: none is left.",
            otherwise="The model is loaded and the dataset encoded, and nothing is trained.",
            evidence={"path": earlier.weights.path, "step": earlier.step, "steps": steps},
        )


@rule("TRN009", "warning", "saves-not-found-again", trainers=("ai-toolkit",))
def saves_not_found_again(run: Run, earlier: EarlierSave | None) -> Iterator[Finding]:
    """The path of the saves keeps the trainer from finding them when it is started again.

    What: training_folder holds _LoRA, _refiner, _t2i or _cn, which the name of the run does not, or the path holds
    letters in square brackets.
    Why: ai-toolkit passes over saves with these parts anywhere in their path, as they may belong to something else,
    and looks for saves with a pattern, in which brackets stand for one letter.
    Repair: Another training_folder or name.
    Upstream: jobs/process/BaseSDTrainProcess.py get_latest_save_path (27a03a91)
    Signature: None; a run that was interrupted begins at step 0 and overwrites its saves.
    """
    if run.kind != "lora" or run.output_folder is None:
        return
    if earlier is None:
        hidden = hides(run.output_folder + "/", run.name)
        message = "{path} holds {hidden}: when the run is started again, ai-toolkit does not find its saves there."
        otherwise = "An interrupted run begins again at step 0."
    else:
        hidden = earlier.hidden
        message = "{path} holds {hidden}: ai-toolkit does not find the saves of the earlier run there."
        otherwise = "The run begins at step 0 and overwrites them."
    if hidden:
        yield found(
            run.where("output_folder"),
            message,
            otherwise=otherwise,
            evidence={"hidden": hidden},
            severity="note" if earlier is None else None,
            path=run.output_folder,
        )


@rule("TRN010", "error", "earlier-save-damaged", trainers=("ai-toolkit",))
@prevents("SafetensorError", r"[Ee]rror while deserializing header")
def earlier_save_damaged(run: Run, earlier: EarlierSave | None) -> Iterator[Finding]:
    """The newest save of an earlier run cannot be opened.

    What: The save in training_folder/name that ai-toolkit goes on from is empty, cut off or no safetensors file.
    Why: A run that was killed while it saved, or a full disk, leaves such a file. The trainer opens it after the
    model was loaded and quantized.
    Repair: The file goes into quarantine; the run goes on from the save before it, or from step 0.
    Upstream: jobs/process/BaseSDTrainProcess.py (27a03a91)
    Signature: SafetensorError: Error while deserializing header: incomplete metadata, file not fully covered
    """
    if earlier is None or not _resumes(run, earlier) or earlier.weights.problem in (None, "missing", "unreadable"):
        return
    yield found(
        run.where("output_folder"),
        "The run goes on from {path}, which is {problem}: {detail}.",
        otherwise="The run ends when it opens the file, after the model was loaded and quantized.",
        evidence={"path": earlier.weights.path},
        problem=PROBLEMS[earlier.weights.problem or ""],
        detail=earlier.weights.detail,
    )


def _resumes(run: Run, earlier: EarlierSave) -> bool:
    return run.kind == "lora" and not earlier.hidden and not run.setting("train/merge_network_on_save")
