"""The file of a LoRA: whether it can be read, and is one."""

from __future__ import annotations

from collections.abc import Iterator

from ...doctor.model import Finding, Lora, found
from ...doctor.rules import rule
from . import OURS, few, place

_PROBLEMS = {
    "empty": "{name} is empty (0 bytes): nothing was saved, or a download failed at its start.",
    "truncated": "{name} is cut off: {detail}. The run or the download was ended while it was written.",
    "pickle": "{name} is {detail}: to load it runs whatever code is in it, so zdoctor does not.",
    "not-safetensors": "{name} is no safetensors file: {detail}.",
    "bad-header": "{name} is damaged: {detail}.",
}


@rule("LOR001", "error", "unreadable-lora", trainers=OURS)
def unreadable_lora(lora: Lora) -> Iterator[Finding]:
    """A LoRA's file is cut off, damaged, empty, or a pickle.

    What: The file is shorter than its header says, its header is no JSON or contradicts itself, or it is no
    safetensors file at all: a git-lfs pointer, a web page that was saved in its place, a PyTorch pickle (.pt, .ckpt).
    Why: No program can load it. A pickle can be loaded, and runs whatever code it carries.
    Repair: Take an earlier save of the run, or fetch the file again and compare its size with what the site says. A
    pickle of your own is made a safetensors file by the program that wrote it.
    """
    problem = _PROBLEMS.get(lora.file.problem or "")
    if problem is not None:
        yield found(
            place(lora),
            problem,
            otherwise="Every program refuses to load it, or loads nothing.",
            evidence={"size": lora.file.size},
            name=lora.file.name,
            detail=lora.file.detail,
        )


@rule("LOR002", "error", "no-lora", trainers=OURS)
def no_lora(lora: Lora) -> Iterator[Finding]:
    """A file that is named as a LoRA holds something else.

    What: None of its tensors has the name of an adapter's part (lora_A, lora_down, lokr_w1, hada_w1_a and so on). It
    is a whole model, a VAE, an embedding, or something that zdoctor does not know.
    Why: A program that is given it as a LoRA says that it found no keys, or loads nothing without a word.
    Repair: Name the LoRA itself. A whole model is put where models are, not where LoRAs are.
    """
    if lora.file.problem or lora.kind:
        return
    yield found(
        place(lora),
        "{name} is no LoRA: it holds {holds}."
        if lora.holds
        else "{name} is no LoRA: none of its {count} tensors is part of an adapter ({examples}).",
        otherwise="As a LoRA it does nothing.",
        name=lora.file.name,
        holds=lora.holds,
        count=len(lora.others),
        examples=few(lora.others) or "none",
    )
