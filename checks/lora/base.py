"""The model that a LoRA is for, and the one that it is to be used with."""

from __future__ import annotations

from collections.abc import Iterator

from ...doctor.families import families, family_with
from ...doctor.families.lora_keys import misfits
from ...doctor.model import Finding, Lora, found
from ...doctor.rules import NotApplicable, rule
from . import OURS, adapter, place


@rule("LOR008", "error", "lora-for-another-model", trainers=OURS)
def lora_for_another_model(lora: Lora) -> Iterator[Finding]:
    """A LoRA was made for another model than the one that --base names.

    What: The modules that it names, or their sizes, are not those of the base model: it is of another family, or of a
    model of another size. Both were read from the files, or, for a published model that is only named, from the
    record of its family.
    Why: Programs pass over modules that the model has not, mostly with no more than a line in a log: the LoRA does
    nothing, or half of what it should. Where only a size differs, loading fails.
    Repair: Use it with the model that it was trained on.
    """
    base = adapter(lora).base
    if base is None or not base.class_name or base.reason:
        raise NotApplicable
    model = lora.title or lora.foreign
    wrong = list(misfits(lora, base.linears))
    few = 2 * len(wrong) < len(lora.whole_pairs)
    if model and (lora.class_name != base.class_name or (base.family not in ("", *lora.families) and not few)):
        yield found(
            place(lora),
            "It is a LoRA for {model}, by the names of its modules; {base} is {other}."
            if lora.class_name != base.class_name
            else "It is a LoRA for {model}, by the sizes of its modules; {base} is {other}.",
            otherwise="A program that loads it with this model passes over its modules, and it does nothing.",
            model=model,
            base=base.source,
            other=base.title,
        )
        return
    if wrong:
        yield found(
            place(lora),
            "{count} of its {total} modules do not fit {base}: {module}: {why}.",
            otherwise="They are passed over, or loading fails.",
            severity="warning" if few else "error",
            evidence={"modules": [module.key for module, _ in wrong]},
            count=len(wrong),
            total=len(lora.whole_pairs),
            base=base.source,
            module=wrong[0][0].key,
            why=wrong[0][1],
        )


@rule("LOR010", "warning", "training-adapter-as-lora", trainers=OURS)
def training_adapter_as_lora(lora: Lora) -> Iterator[Finding]:
    """A file is, by its name, the adapter that a distilled model is trained with, and no LoRA of a training.

    What: The file has the name of a published training adapter (ostris' for Z-Image Turbo). It undoes the
    distillation while a LoRA is trained, and is no part of what is learnt.
    Why: As a LoRA it makes the pictures of the distilled model blurred at few steps, and nothing else.
    Repair: Name the LoRA that the training saved.
    """
    adapter(lora)
    for family in families():
        flavours = () if family.simpletuner is None else family.simpletuner.flavours.values()
        adapters = [flavour.adapter for flavour in flavours] + [family.distilled and family.distilled.adapter]
        if lora.file.name in {name.rpartition("/")[2] for name in adapters if name and name.endswith(".safetensors")}:
            yield found(
                place(lora),
                "{name} is, by its name, the adapter that {family} is trained with, and no LoRA of a training.",
                otherwise="Pictures lose what the model was distilled for; nothing that was learnt is in it.",
                name=lora.file.name,
                family=family.title,
            )


@rule("LOR011", "note", "lora-of-another-flavour", trainers=OURS)
def lora_of_another_flavour(lora: Lora) -> Iterator[Finding]:
    """A LoRA was trained on the distilled member of its family and is to be used with another, or the reverse.

    What: The metadata (ss_sd_model_name) names the model that it was trained on, and of that and of --base one is the
    distilled (turbo) model and the other is not, by their names. A de-distilled model counts as not distilled.
    Why: It loads as a whole. What it learnt fits the other model less well: likeness is weaker, or pictures need
    other steps and guidance than the model.
    Repair: Nothing has to be done. Use it with the model that it was trained on where the result is not as expected.
    """
    base, trained = adapter(lora).base, lora.file.metadata.get("ss_sd_model_name", "")
    distilled = family_with(lora.class_name).distilled if lora.class_name else None
    if base is None or distilled is None or not trained or not (base.exact or "/" in base.source):
        raise NotApplicable
    if distilled.is_meant(trained) != distilled.is_meant(base.source):
        yield found(
            place(lora),
            "It was trained on {trained} (ss_sd_model_name); {base} is "
            + ("not " if distilled.is_meant(trained) else "")
            + "the distilled model.",
            otherwise="It loads, and may show less of what it learnt.",
            trained=trained,
            base=base.source,
        )
