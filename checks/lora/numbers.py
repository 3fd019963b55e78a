"""The numbers of a LoRA: whether they can do anything."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...doctor.model import Finding, Lora, LoraValues, found
from ...doctor.model.lora import PAIR, AdaptedModule
from ...doctor.model.said import joined
from ...doctor.rules import NotApplicable, rule
from . import OURS, adapter, few, place

# Parts that are multiplied with the others: where one is zero, the module adds nothing.
_FACTORS = {
    *(*PAIR, "alpha"),
    *(f"{kind}_w{number}{end}" for kind in ("lokr", "hada") for number in "12" for end in ("", "_a", "_b")),
}
_LARGE = 256.0
_SMALL = 1e-6


@rule("LOR003", "error", "lora-not-finite", trainers=OURS)
def lora_not_finite(lora: Lora, lora_values: LoraValues) -> Iterator[Finding]:
    """Numbers of a LoRA are NaN or infinite.

    What: All numbers of the file were read, and some are NaN or infinite: the training had diverged when it was
    saved, or the numbers were too large for the type that it was saved in (float16 ends at 65504).
    Why: One NaN in a weight makes every picture black or noise; programs load such a file without a word.
    Repair: Take an earlier save, from before the loss became NaN, and train on from it with a lower learning rate. To
    leave the broken modules out makes a file that loads, without what they had learnt.
    """
    adapter(lora)
    bad = [name for name, values in lora_values.tensors.items() if values.bad]
    if bad:
        yield found(
            place(lora),
            "NaN or infinite numbers stand in {count} of {total} tensors ({examples}).",
            otherwise="Every picture that is made with it is black or noise.",
            evidence={"tensors": bad},
            count=len(bad),
            total=len(lora.file.tensors),
            examples=few(bad),
        )


@rule("LOR004", "error", "lora-does-nothing", trainers=OURS)
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
    modules = [module for module in adapter(lora).modules if not _FACTORS.isdisjoint(module.parts)]
    if not modules:
        raise NotApplicable
    idle = [module for module in modules if any(_is_zero(module, part, lora_values) for part in _FACTORS)]
    if not idle:
        return
    whole = len(idle) == len(modules)
    yield found(
        place(lora),
        "All of its {total} modules add nothing: {why}."
        if whole
        else "{count} of its {total} modules add nothing: {why} ({examples}).",
        otherwise="Pictures with and without it are the same." if whole else "These modules stay as they are.",
        evidence={"modules": [module.key for module in idle]},
        severity="error" if whole else "note",
        count=len(idle),
        total=len(modules),
        why=_why_idle(idle, lora_values),
        examples=few([module.key for module in idle]),
    )


def _is_zero(module: AdaptedModule, part: str, values: LoraValues) -> bool:
    """Whether a factor is zero; alpha is one of a LoRA alone, a LoKr of whole matrices has no use for it."""
    tensor = values.tensors.get(module.parts.get(part, ""))
    return tensor is not None and tensor.zero and (part != "alpha" or "A" in module.parts)


def _why_idle(idle: Sequence[AdaptedModule], values: LoraValues) -> str:
    words = {"B": "B (lora_up)", "A": "A (lora_down)"}
    zero = (part for part in sorted(_FACTORS) if any(_is_zero(one, part, values) for one in idle))
    return joined(" or ", (f"{words.get(part, part)} is zero" for part in zero))


@rule("LOR005", "warning", "lora-out-of-scale", trainers=OURS)
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
    adapter(lora)
    factors = [module.parts[part] for module in lora.modules for part in PAIR if part in module.parts]
    known = {name: lora_values.tensors[name] for name in factors if name in lora_values.tensors}
    large = [name for name, values in known.items() if values.least >= _LARGE or values.clipped]
    if large:
        yield found(
            place(lora),
            "{count} of {total} factors hold numbers of {size:g} or more, or cut off at the largest of their type "
            "({examples}).",
            otherwise="Pictures that are made with it are noise.",
            evidence={"tensors": large},
            count=len(large),
            total=len(factors),
            size=min(_LARGE, *(known[name].least for name in large)),
            examples=few(large),
        )
    most = _most(lora, lora_values)
    if not large and most is not None and 0 < most < _SMALL:
        yield found(
            place(lora),
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
