"""The training adapter against the model it is merged into."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...doctor.families import family_of, loader_of
from ...doctor.families.record import Family
from ...doctor.model import Finding, ModelFolder, Run, WeightFile, found
from ...doctor.model.trainer import RUNNER
from ...doctor.model.weights import adapter_part
from ...doctor.rules import Unestablished, prevents, rule
from ..keys.values import BEFORE, ends
from .contents import contents
from .files import PROBLEMS


@rule("MDL005", "error", "adapter-layout-mismatch", trainers=("ai-toolkit", RUNNER))
@prevents("KeyError", r"diffusion_model\.layers\.0\.")
@prevents("KeyError", r"transformer\.single_transformer_blocks\.0\.")
@prevents("ValueError", r"Unknown lora key: .* Cannot load this lora in low vram mode")
def adapter_layout_mismatch(run: Run, adapter: WeightFile | None, model: ModelFolder) -> Iterator[Finding]:
    """A training adapter that does not fit the model.

    What: The file behind assistant_lora_path is damaged, uses the tensor names of another program, was made for
    another model or for one of another width, or, for Flux with low_vram, covers more than the blocks.
    Why: ai-toolkit reads the adapter's rank from one fixed name, for Z-Image and for Flux each its own. It does so
    after the whole transformer has been loaded, for Flux after the text encoders and the VAE too. Before that,
    diffusers fuses the file into a Flux model by the names it knows and passes over all others without a word.

    `zdoctor train` merges an adapter by the names of the layers, with or without a prefix, and stops at one that
    does not fit, before anything is loaded.
    Repair: Use the adapter published for this model (for Z-Image-Turbo, a file of
    ostris/zimage_turbo_training_adapter; for FLUX.1-schnell, ostris/FLUX.1-schnell-training-adapter).
    Signature: KeyError: 'diffusion_model.layers.0.attention.to_k.lora_A.weight' or, for Flux,
    KeyError: 'transformer.single_transformer_blocks.0.attn.to_k.lora_A.weight'
    """
    if adapter is None:
        return
    if adapter.problem in ("missing", "pickle", "unreadable"):
        raise Unestablished(f"the adapter {adapter.name} cannot be read: {adapter.detail or adapter.problem}")
    if adapter.problem:
        yield found(
            run.where("adapter"),
            "The adapter {path} is {words}: {detail}.",
            otherwise=ends(run, "Opening it fails, after the whole transformer has been loaded."),
            evidence={"problem": adapter.problem},
            path=adapter.path,
            words=PROBLEMS[adapter.problem],
            detail=adapter.detail,
        )
    elif run.by_runner:
        yield from _merged_by_the_runner(run, adapter, model)
    else:
        yield from _merged_by_ai_toolkit(run, adapter, model)


def _merged_by_ai_toolkit(run: Run, adapter: WeightFile, model: ModelFolder) -> Iterator[Finding]:
    """The first thing that keeps ai-toolkit from merging the adapter."""
    family, loader = family_of(run.recipe.architecture), loader_of(run)
    if loader is None or loader.adapter_key is None:
        raise Unestablished(f"the layout that {run.recipe.architecture} expects of an adapter is not known")
    key = loader.adapter_key
    tensor = adapter.tensors.get(key)
    if tensor is None:
        yield _without_its_key(run, adapter, key, family)
        return
    transformer = model.components.get("transformer")
    base = key.partition(".")[2].replace(".lora_A", "")
    needed = (transformer.needed or {}).get(base) if transformer is not None else None
    if needed is not None and (len(tensor.shape) != 2 or tensor.shape[1] != needed[1]):
        yield found(
            run.where("adapter"),
            "The adapter {path} was made for a model of width {theirs}; this transformer is {ours} wide (from the "
            "headers of both).",
            otherwise="Merging it fails with a size mismatch, after the whole transformer has been loaded.",
            evidence={"shape": list(tensor.shape)},
            path=adapter.path,
            theirs=tensor.shape[-1] if tensor.shape else 0,
            ours=needed[1],
        )
        return
    yield from _beyond_the_blocks(run, adapter, family)


def _without_its_key(run: Run, adapter: WeightFile, key: str, family: Family) -> Finding:
    """The tensor is not there by which the trainer asks for the adapter's rank."""
    held = contents(adapter.tensors)
    if not adapter.tensors:
        message = "The adapter {path} holds no tensor at all; the trainer asks for {key}."
    elif held:
        message = "The adapter {path} is {held}; it has no tensor {key}, the one the trainer asks for {family} by "
        message += "(its first is {example})."
    else:
        message = "The adapter {path} has no tensor {key}, the one the trainer asks for; its first name is {example}."
    return found(
        run.where("adapter"),
        message,
        otherwise="The run ends with KeyError: '{key}', after the whole transformer has been loaded.",
        evidence={"names": list(adapter.tensors)[:5]},
        path=adapter.path,
        key=key,
        held=held,
        family=family.title,
        example=next(iter(adapter.tensors), None),
    )


def _beyond_the_blocks(run: Run, adapter: WeightFile, family: Family) -> Iterator[Finding]:
    """With low_vram only adapters are fused that touch nothing but the blocks."""
    fused = family.ai_toolkit.fused
    outside = [name for name in adapter.tensors if fused and not any(block in name for block in fused)]
    if outside and run.recipe.offload.low_vram:
        yield found(
            run.where("offload.low_vram"),
            "With low_vram, ai-toolkit fuses only adapters that touch nothing but the blocks; {path} also holds "
            "{example}.",
            otherwise="The run ends with ValueError: Unknown lora key, after the whole transformer has been loaded.",
            evidence={"names": outside[:5]},
            path=adapter.path,
            example=outside[0],
        )


def _merged_by_the_runner(run: Run, adapter: WeightFile, model: ModelFolder) -> Iterator[Finding]:
    """The first thing that keeps zdoctor's runner from merging the adapter."""
    transformer = model.components.get("transformer")
    if model.layout == "single-file":  # its tensors have other names; the runner looks before it loads anything
        return
    if transformer is None or transformer.needed is None:
        raise Unestablished("the layers that the adapter is for are not known")
    layers = {name.removesuffix(".weight"): shape for name, shape in transformer.needed.items()}
    message, example = next(_misfits(adapter, layers), ("", ""))
    if message:
        yield found(
            run.where("adapter"),
            message,
            otherwise=BEFORE,
            evidence={"names": list(adapter.tensors)[:5]},
            path=adapter.path,
            example=example,
        )


def _misfits(adapter: WeightFile, layers: Mapping[str, tuple[int, ...]]) -> Iterator[tuple[str, str]]:
    """What is wrong with an adapter for these layers, each with the name that shows it."""
    parts: dict[str, dict[str, tuple[int, ...]]] = {}
    for name, tensor in adapter.tensors.items():
        module, part = adapter_part(name)
        if not part:
            yield "{path} is no LoRA that can be merged: {example} is no part of one.", name
        parts.setdefault(module, {})[part] = tensor.shape
    if not parts:
        yield "The adapter {path} holds no tensor at all.", ""
    for module, held in parts.items():
        shape, down, up = layers.get(module, ()), held.get("A", ()), held.get("B", ())
        if len(shape) != 2:
            yield "The adapter {path} was made for another model: this one has no layer {example}.", module
        elif len(down) != 2 or len(up) != 2:
            yield "The adapter {path} is incomplete: {example} lacks one of its two matrices.", module
        elif (up[0], down[1]) != shape or up[1] != down[0]:
            yield "The adapter {path} was made for another model: {example} has another size in this one.", module
