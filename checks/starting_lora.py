"""The LoRA that a training starts from."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..doctor.model import Finding, Run, WeightFile, found
from ..doctor.model.families import family_of
from ..doctor.rules import Unestablished, rule
from .contents import contents
from .model_files import PROBLEMS

_KEY = "network/pretrained_lora_path"


@rule("MDL006", "warning", "starting-lora-not-read", trainers=("ai-toolkit",))
def starting_lora_not_read(run: Run, starting_lora: WeightFile | None) -> Iterator[Finding]:
    """A LoRA to start from of which the trainer takes nothing.

    What: The file behind network/pretrained_lora_path does not exist, is damaged, or holds no tensor under a name
    that this architecture's LoRA has.

    Why: ai-toolkit prints that the file does not exist and goes on. It takes tensors by name, prints all others in
    one long line as "Missing keys", and goes on too. The training then starts from zero.

    Repair: Name a LoRA that was trained with ai-toolkit for the same model; files of other trainers
    (lora_unet_…, lora_transformer_…) have to be converted first.

    Upstream: toolkit/network_mixins.py (load_weights), jobs/process/BaseSDTrainProcess.py (get_latest_save_path)

    Signature: Pretrained lora path from config does not exist; Missing keys: ['…']
    """
    if starting_lora is None or run.kind != "lora":
        return
    place, path = run.where(_KEY), starting_lora.path
    zero = "Unless the run resumes from a save of its own, it starts from zero, without an error."
    if starting_lora.problem == "missing":
        yield found(place, "{path}, the LoRA to start from, does not exist.", otherwise=zero, path=path)
        return
    if starting_lora.problem in ("pickle", "unreadable"):
        raise Unestablished(f"{path} cannot be read: {starting_lora.detail}")
    if starting_lora.problem:
        yield found(
            place,
            "{path}, the LoRA to start from, is {problem}: {detail}.",
            otherwise="Opening it fails, after the whole model has been loaded.",
            severity="error",
            path=path,
            problem=PROBLEMS[starting_lora.problem],
            detail=starting_lora.detail,
        )
        return
    family = family_of(run)
    if family is None or run.network_type != "lora":
        raise Unestablished(f"the names that a {run.network_type} of {run.architecture} has are not known")
    if any(re.match(family.lora_names, name) for name in starting_lora.tensors):
        return
    held = contents(starting_lora.tensors)
    yield found(
        place,
        "{path}, the LoRA to start from, is {held}; none of its names is one that {family} takes (such as {example})."
        if held
        else "{path}, the LoRA to start from, holds no name that {family} takes.",
        otherwise=zero,
        evidence={"names": list(starting_lora.tensors)[:5]},
        path=path,
        held=held,
        family=family.name,
        example=next(iter(starting_lora.tensors), None),
    )
