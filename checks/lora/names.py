"""The names in a LoRA: whether its pairs are whole, and which programs look for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...doctor.families.lora_parts import MAGNITUDES
from ...doctor.families.lora_programs import (
    LOADERS,
    alpha_is_why,
    judged_modules,
    passed_over,
    programs_of,
    without_magnitude,
)
from ...doctor.model import Finding, Lora, found
from ...doctor.model.lora import ADAPTER_METADATA, PAIR, AdaptedModule
from ...doctor.rules import NotApplicable, rule
from . import OURS, adapter, place


@rule("LOR006", "error", "lora-of-half-pairs", trainers=OURS)
def lora_of_half_pairs(lora: Lora) -> Iterator[Finding]:
    """One of the two factors of a LoRA's module is missing, or the two have different ranks.

    What: A module has lora_A (lora_down) and no lora_B (lora_up), or the other way round, or an alpha alone, or A has
    another rank than B: the file was edited, merged from two, or converted by a program that did not know all of its
    names.
    Why: Half a pair says nothing. diffusers refuses the file or loads the module with a random or empty half; ComfyUI
    stops with a KeyError, or passes over the module.
    Repair: A copy without the broken modules loads, with what the others have learnt.
    """
    adapter(lora)
    if not lora.is_pairs:
        raise NotApplicable
    half = lora.half_pairs
    if half:
        first = half[0]
        missing = next((part for part in PAIR if part not in first.parts), "")
        yield found(
            place(lora),
            "{count} of its {total} modules are no pair: {module} has no {part}."
            if missing
            else "{count} of its {total} modules are no pair: the A and B of {module} have different ranks.",
            otherwise="ComfyUI stops at it, or passes over these modules; diffusers refuses the file, or fills the "
            "gap with what was never trained.",
            evidence={"modules": [module.key for module in half]},
            count=len(half),
            total=len(lora.modules),
            module=first.key,
            part="A (lora_down)" if missing == "A" else "B (lora_up)",
        )


@rule("LOR007", "warning", "lora-passed-over", trainers=OURS)
def lora_passed_over(lora: Lora) -> Iterator[Finding]:
    """A program that pictures are made with passes over parts of a LoRA, because it looks for other names.

    What: The names in the file were held against those that ComfyUI and diffusers look for, for this family. A LoRA
    of musubi-tuner for Z-Image, say, has lora_unet_layers_0_attention_to_q, and ComfyUI looks for other names. Of
    DoRA's magnitudes ComfyUI takes dora_scale and diffusers lora_magnitude_vector.
    Why: What ComfyUI does not find it passes over, with "lora key not loaded" in its log: the LoRA does nothing, or
    less than it learnt. diffusers does the same with some names, and refuses the file with others.
    Repair: A copy with names that both look for, where there are such; the numbers stay the same.
    """
    if not adapter(lora).class_name:
        raise NotApplicable
    count = len(judged_modules(lora))
    for program in LOADERS if count and programs_of(lora) else ():
        missed = passed_over(lora, program)
        if missed:
            yield _missed(lora, program, missed, count)
        left = without_magnitude(lora, program)
        if left:
            yield found(
                place(lora),
                "{program} leaves the magnitudes ({part}) of {count} of its {total} modules, and applies the rest.",
                otherwise="In {program} the LoRA shows something else than it learnt.",
                evidence={"modules": [module.key for module in left]},
                program=program,
                part=next(part for part in MAGNITUDES if part in left[0].parts),
                count=len(left),
                total=count,
            )


def _missed(lora: Lora, program: str, missed: Sequence[AdaptedModule], count: int) -> Finding:
    alpha = alpha_is_why(lora, program, missed)
    whole = len(missed) == count
    if alpha:
        message = "{program} takes no alpha keys beside such names as {module}."
    elif program == "diffusers":
        message = (
            "{program} knows none of the names of its {total} modules, such as {module}."
            if whole
            else "{program} knows {rest} of the names of its {total} modules, and not {module}."
        )
    else:
        message = (
            "{program} applies none of its {total} modules: it looks for other names than {module}."
            if whole
            else "{program} applies {rest} of its {total} modules: it looks for other names than {module}."
        )
    return found(
        place(lora),
        message,
        otherwise="{program} refuses the file, or applies it at another strength."
        if alpha
        else "{program} refuses the file, or the LoRA does nothing in it."
        if program == "diffusers" and whole
        else "{program} refuses the file, or the LoRA does less than it learnt."
        if program == "diffusers"
        else "In {program} the LoRA does nothing."
        if whole
        else "In {program} the LoRA does less than it learnt.",
        evidence={"modules": [module.key for module in missed]},
        program=program,
        total=count,
        rest=count - len(missed),
        module=missed[0].key,
    )


@rule("LOR009", "warning", "lora-strength-unclear", trainers=OURS)
def lora_strength_unclear(lora: Lora) -> Iterator[Finding]:
    """The strength that a LoRA was trained with does not stand where every program looks for it.

    What: A LoRA counts alpha / rank times. The metadata says an alpha other than the rank (diffusers'
    lora_adapter_metadata, or ss_network_alpha of sd-scripts and musubi-tuner, which write alpha keys beside it), and
    the file has no alpha keys.
    Why: ComfyUI looks at alpha keys alone, and takes the rank where there are none; diffusers reads its own metadata.
    The same file is then stronger in one program than in the other, or in both than it was trained.
    Repair: A copy with alpha keys, and without the metadata that says it twice.
    """
    adapter(lora)
    if not lora.is_pairs or any("alpha" in module.parts for module in lora.modules):
        return
    told = lora.told_alpha
    if told is None:
        return
    by_diffusers = told.key == ADAPTER_METADATA
    yield found(
        place(lora),
        "Its metadata ({key}) says alpha {alpha:g} for rank {rank:g}, and the file has no alpha keys.",
        otherwise="{who} {factor:.3g} times as strong as it was trained.",
        who="ComfyUI applies it" if by_diffusers else "Programs apply it",
        key=told.key,
        alpha=told.alpha,
        rank=told.rank,
        factor=told.rank / told.alpha,
    )
