"""A finished LoRA: whether it is one, whether its numbers can do anything, and whose model it is for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..doctor.families.lora_keys import misfits
from ..doctor.families.lora_programs import LOADERS, passed_over, programs_of
from ..doctor.model import Finding, Lora, LoraValues, Where, found
from ..doctor.model.lora import ADAPTER_METADATA, LORA, PAIR, AdaptedModule
from ..doctor.rules import NotApplicable, rule

_OURS = (LORA,)
_PROBLEMS = {
    "empty": "{name} is empty (0 bytes): nothing was saved, or a download failed at its start.",
    "truncated": "{name} is cut off: {detail}. The run or the download was ended while it was written.",
    "pickle": "{name} is {detail}: to load it runs whatever code is in it, so zdoctor does not.",
    "not-safetensors": "{name} is no safetensors file: {detail}.",
    "bad-header": "{name} is damaged: {detail}.",
}
_MOST = 3  # names that are told as examples
# Parts that are multiplied with the others: where one is zero, the module adds nothing.
_FACTORS = {
    *(*PAIR, "alpha"),
    *(f"{kind}_w{number}{end}" for kind in ("lokr", "hada") for number in "12" for end in ("", "_a", "_b")),
}
_LARGE = 256.0
_SMALL = 1e-6


def _where(lora: Lora) -> Where:
    return Where(lora.path)


def _adapter(lora: Lora) -> Lora:
    """The file, where it is an adapter; LOR001 and LOR002 tell of the others."""
    if lora.file.problem or not lora.kind:
        raise NotApplicable
    return lora


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return ", ".join(names[:_MOST]) + more


@rule("LOR001", "error", "unreadable-lora", trainers=_OURS)
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
            _where(lora),
            problem,
            otherwise="Every program refuses to load it, or loads nothing.",
            evidence={"size": lora.file.size},
            name=lora.file.name,
            detail=lora.file.detail,
        )


@rule("LOR002", "error", "no-lora", trainers=_OURS)
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
        _where(lora),
        "{name} is no LoRA: it holds {holds}."
        if lora.holds
        else "{name} is no LoRA: none of its {count} tensors is part of an adapter ({examples}).",
        otherwise="As a LoRA it does nothing.",
        name=lora.file.name,
        holds=lora.holds,
        count=len(lora.others),
        examples=_few(lora.others) or "none",
    )


@rule("LOR003", "error", "lora-not-finite", trainers=_OURS)
def lora_not_finite(lora: Lora, lora_values: LoraValues) -> Iterator[Finding]:
    """Numbers of a LoRA are NaN or infinite.

    What: All numbers of the file were read, and some are NaN or infinite: the training had diverged when it was
    saved, or the numbers were too large for the type that it was saved in (float16 ends at 65504).
    Why: One NaN in a weight makes every picture black or noise; programs load such a file without a word.
    Repair: Take an earlier save, from before the loss became NaN, and train on from it with a lower learning rate. To
    leave the broken modules out makes a file that loads, without what they had learnt.
    """
    _adapter(lora)
    bad = [name for name, values in lora_values.tensors.items() if values.bad]
    if bad:
        yield found(
            _where(lora),
            "{count} of {total} tensors hold NaN or infinite numbers ({examples}).",
            otherwise="Every picture that is made with it is black or noise.",
            evidence={"tensors": bad},
            count=len(bad),
            total=len(lora.file.tensors),
            examples=_few(bad),
        )


@rule("LOR004", "error", "lora-does-nothing", trainers=_OURS)
def lora_does_nothing(lora: Lora, lora_values: LoraValues) -> Iterator[Finding]:
    """A LoRA adds nothing to the model, as a whole or in some of its modules.

    What: A LoRA adds B @ A, times alpha / rank, to a weight; a LoKr or LoHa another product. Where all numbers of a
    factor are zero, or alpha is, that is zero. One factor is zero when the training begins: a module of which it
    still is was never trained.
    Why: With every module like that, pictures with and without the LoRA are the same. In some modules it is harmless
    (the last block of some models has parts that nothing depends on), or shows that they got no gradient.
    Repair: For the whole file: the run saved before its first step, its learning rate was zero, its gradient did not
    reach the LoRA, or everything was rounded away; the run's log tells. Take a later save, or train anew.
    """
    modules = [module for module in _adapter(lora).modules if not _FACTORS.isdisjoint(module.parts)]
    if not modules:
        raise NotApplicable
    idle = [module for module in modules if any(_is_zero(module, part, lora_values) for part in _FACTORS)]
    if not idle:
        return
    whole = len(idle) == len(modules)
    yield found(
        _where(lora),
        "All of its {total} modules add nothing: {why}."
        if whole
        else "{count} of its {total} modules add nothing: {why} ({examples}).",
        otherwise="Pictures with and without it are the same." if whole else "These modules stay as they are.",
        evidence={"modules": [module.key for module in idle]},
        severity="error" if whole else "note",
        count=len(idle),
        total=len(modules),
        why=_why_idle(idle, lora_values),
        examples=_few([module.key for module in idle]),
    )


def _is_zero(module: AdaptedModule, part: str, values: LoraValues) -> bool:
    """Whether a factor is zero; alpha is one of a LoRA alone, a LoKr of whole matrices has no use for it."""
    tensor = values.tensors.get(module.parts.get(part, ""))
    return tensor is not None and tensor.zero and (part != "alpha" or "A" in module.parts)


def _why_idle(idle: Sequence[AdaptedModule], values: LoraValues) -> str:
    words = {"B": "B (lora_up)", "A": "A (lora_down)"}
    zero = (part for part in sorted(_FACTORS) if any(_is_zero(one, part, values) for one in idle))
    return " or ".join(f"{words.get(part, part)} is zero" for part in zero)


@rule("LOR005", "warning", "lora-out-of-scale", trainers=_OURS)
def lora_out_of_scale(lora: Lora, lora_values: LoraValues) -> Iterator[Finding]:
    """Numbers of a LoRA are so large that it wipes out the model, or so small that it changes nothing.

    What: All numbers were read. Factors of a LoRA that was trained are mostly below 1; here one is 256 or more, or
    numbers stand at the largest value of their type, where they were cut off. Or the factors are so small that no
    weight changes by more than a millionth: rank x largest A x largest B x alpha / rank is the most that it can be.
    Why: The one comes of a training that diverged (pictures are noise), the other of a learning rate, or an alpha,
    that is far too small (pictures are as without it).
    Repair: Too large: take an earlier save, and train with a lower learning rate. Too small: load it with a larger
    strength to see whether anything was learnt, then train with a higher learning rate.
    """
    _adapter(lora)
    factors = [module.parts[part] for module in lora.modules for part in PAIR if part in module.parts]
    known = {name: lora_values.tensors[name] for name in factors if name in lora_values.tensors}
    large = [name for name, values in known.items() if values.least >= _LARGE or values.clipped]
    if large:
        yield found(
            _where(lora),
            "{count} of {total} factors hold numbers of {size:g} or more, or cut off at the largest of their type "
            "({examples}).",
            otherwise="Pictures that are made with it are noise.",
            evidence={"tensors": large},
            count=len(large),
            total=len(factors),
            size=min(_LARGE, *(known[name].least for name in large)),
            examples=_few(large),
        )
    most = _most(lora, lora_values)
    if not large and most is not None and 0 < most < _SMALL:
        yield found(
            _where(lora),
            "It changes no weight by more than {most:.1g} (rank x largest A x largest B x alpha / rank).",
            otherwise="Pictures with and without it are the same.",
            most=most,
        )


def _most(lora: Lora, values: LoraValues) -> float | None:
    """The most that any weight is changed by; None where that is not known."""
    if not lora.is_pairs or not lora.whole_pairs:
        return None
    most = 0.0
    for module in lora.whole_pairs:
        down, up = (values.tensors.get(module.parts[part]) for part in PAIR)
        if down is None or up is None or down.bad or up.bad:
            return None
        rank = lora.rank_of(module)
        alpha = values.tensors[module.parts["alpha"]].number if "alpha" in module.parts else rank
        most = max(most, down.most * up.most * abs(rank if alpha is None else alpha))
    return most


@rule("LOR006", "error", "lora-of-half-pairs", trainers=_OURS)
def lora_of_half_pairs(lora: Lora) -> Iterator[Finding]:
    """One of the two factors of a LoRA's module is missing, or the two have different ranks.

    What: A module has lora_A (lora_down) and no lora_B (lora_up), or the other way round, or A has another rank than
    B: the file was edited, merged from two, or converted by a program that did not know all of its names.
    Why: Half a pair says nothing. diffusers refuses the file or loads the module with a random or empty half; ComfyUI
    stops with a KeyError, or passes over the module.
    Repair: A copy without the broken modules loads, with what the others have learnt.
    """
    _adapter(lora)
    if not lora.is_pairs:
        raise NotApplicable
    half = [module for module in lora.modules if any(p in module.parts for p in PAIR) and not lora.is_whole(module)]
    if half:
        first = half[0]
        missing = next((part for part in PAIR if part not in first.parts), "")
        yield found(
            _where(lora),
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


@rule("LOR007", "warning", "lora-passed-over", trainers=_OURS)
def lora_passed_over(lora: Lora) -> Iterator[Finding]:
    """A program that pictures are made with passes over modules of a LoRA, because it looks for other names.

    What: The names in the file were held against those that ComfyUI and diffusers look for, for this family. A LoRA
    of musubi-tuner for Z-Image, say, has lora_unet_layers_0_attention_to_q, and ComfyUI looks for other names.
    Why: What a program does not find it passes over, with a line in its log at most: the LoRA does nothing, or less
    than it learnt.
    Repair: A copy with the names that both look for; the numbers stay the same.
    """
    if not _adapter(lora).class_name:
        raise NotApplicable
    count = sum(not module.of_text_encoder for module in lora.modules)
    for program in LOADERS if count and programs_of(lora.class_name) else ():
        missed = passed_over(lora, program)
        if missed:
            yield found(
                _where(lora),
                "{program} applies none of its {total} modules: it looks for other names than {module}."
                if len(missed) == count
                else "{program} applies {rest} of its {total} modules: it looks for other names than {module}.",
                otherwise="In {program} the LoRA does nothing."
                if len(missed) == count
                else "In {program} the LoRA does less than it learnt.",
                evidence={"modules": [module.key for module in missed]},
                program=program,
                total=count,
                rest=count - len(missed),
                module=missed[0].key,
            )


@rule("LOR009", "warning", "lora-strength-unclear", trainers=_OURS)
def lora_strength_unclear(lora: Lora) -> Iterator[Finding]:
    """The strength that a LoRA was trained with does not stand where every program looks for it.

    What: A LoRA counts alpha / rank times. The metadata says an alpha other than the rank (diffusers'
    lora_adapter_metadata, or ss_network_alpha of sd-scripts and musubi-tuner, which write alpha keys beside it), and
    the file has no alpha keys.
    Why: ComfyUI looks at alpha keys alone, and takes the rank where there are none; diffusers reads its own metadata.
    The same file is then stronger in one program than in the other, or in both than it was trained.
    Repair: A copy with alpha keys, and without the metadata that says it twice.
    """
    _adapter(lora)
    if not lora.is_pairs or any("alpha" in module.parts for module in lora.modules):
        return
    told = lora.told_alpha
    if told is None:
        return
    by_diffusers = told.key == ADAPTER_METADATA
    yield found(
        _where(lora),
        "Its metadata ({key}) says alpha {alpha:g} for rank {rank:g}, and the file has no alpha keys.",
        otherwise="{who} {factor:.3g} times as strong as it was trained.",
        who="ComfyUI applies it" if by_diffusers else "Programs apply it",
        key=told.key,
        alpha=told.alpha,
        rank=told.rank,
        factor=told.rank / told.alpha,
    )


@rule("LOR008", "error", "lora-for-another-model", trainers=_OURS)
def lora_for_another_model(lora: Lora) -> Iterator[Finding]:
    """A LoRA was made for another model than the one that --base names.

    What: The modules that it names, or their sizes, are not those of the base model: it is of another family, or of a
    model of another size. Both were read from the files, or, for a published model that is only named, from the
    record of its family.
    Why: Programs pass over modules that the model has not, mostly with no more than a line in a log: the LoRA does
    nothing, or half of what it should. Where only a size differs, loading fails.
    Repair: Use it with the model that it was trained on.
    """
    base = _adapter(lora).base
    if base is None or not base.class_name or base.reason:
        raise NotApplicable
    model = lora.title or lora.foreign
    if model and lora.class_name != base.class_name:
        yield found(
            _where(lora),
            "It is a LoRA for {model}, by the names of its modules; {base} is {other}.",
            otherwise="A program that loads it with this model passes over its modules, and it does nothing.",
            model=model,
            base=base.source,
            other=base.title,
        )
        return
    wrong = list(misfits(lora, base.linears))
    if wrong:
        yield found(
            _where(lora),
            "{count} of its {total} modules do not fit {base}: {module}: {why}.",
            otherwise="They are passed over, or loading fails.",
            evidence={"modules": [module.key for module, _ in wrong]},
            count=len(wrong),
            total=len(lora.whole_pairs),
            base=base.source,
            module=wrong[0][0].key,
            why=wrong[0][1],
        )
