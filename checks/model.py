"""The base model's files against the architecture that will be built from them, and the adapter against both."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from ..doctor.model import Component, Finding, ModelFolder, Run, found
from ..doctor.model.families import Family, family_of
from ..doctor.rules import Unestablished, rule
from .contents import contents

# transformers builds an output head that no trainer here reads: its absence changes nothing.
_UNREAD = frozenset({"lm_head.weight"})
_SCALES = (".weight_scale", ".scale_weight", ".scale_input", ".input_scale", ".comfy_quant", "scaled_fp8")

_HUB_FILE = re.compile(r"[\w-][\w.-]*/[\w.-]+/.+\.(safetensors|gguf|ckpt|pt|bin)")


@rule(
    "MDL001",
    "error",
    "missing-checkpoint-tensors",
    prevents=(("NotImplementedError", "Cannot copy out of meta tensor; no data!"),),
)
def missing_checkpoint_tensors(run: Run, model: ModelFolder) -> Iterator[Finding]:
    """Tensors the architecture needs and the weight files lack.

    What: The headers of the weight files are compared, name by name, with what config.json makes the loader build.
    The names of a single file are compared in its own layout, where q, k and v are fused.

    Why: diffusers builds the transformer and the VAE without memory (on the "meta" device) and fills in what the
    files hold. A tensor they lack stays empty, and the first move of that block to a device fails. The only hint,
    a warning about newly initialized weights, is hidden by ai-toolkit. transformers instead fills a text encoder's
    missing tensors with random numbers, and the run trains to the end on garbage. A single file is loaded strictly:
    one missing name stops it.

    Repair: Get the complete files. Loading with low_cpu_mem_usage=False, skipping the empty blocks, or to_empty()
    only turns the failure into random weights.

    Upstream: https://github.com/ostris/ai-toolkit/issues/571

    Signature: NotImplementedError: Cannot copy out of meta tensor; no data! Please use
    torch.nn.Module.to_empty() instead of torch.nn.Module.to() when moving module from meta to a different device.
    """
    if run.kind == "other":
        return
    said = False
    unjudged: list[str] = []
    for part in model.components.values():
        if not part.weights:
            continue
        if part.needed is None:
            unjudged.append(f"{part.name}: {part.needed_reason}")
            continue
        if any(weight.problem for weight in part.weights) or _foreign(part):
            unjudged.append(f"{part.name}: its weight files cannot be compared")
            continue
        missing = [name for name in part.needed if name not in part.tensors and name not in _UNREAD]
        if not missing:
            continue
        said = True
        yield found(
            run.where("base_model"),
            "{component} lacks {missing} of the {needed} tensors that its config.json asks for ({which}), "
            "for example {example}. That was computed from the headers of {files}.",
            otherwise=_consequence(part, model),
            evidence={"component": part.name, "missing": len(missing), "names": missing[:20], "folder": part.folder},
            component=part.name,
            missing=len(missing),
            needed=len(part.needed),
            which=_blocks(missing, part.needed),
            example=missing[0],
            files=_files(part),
        )
    unjudged += _absent(run, model)
    if model.layout == "absent":
        raise Unestablished(f"nothing of {model.source} is on this machine")
    if unjudged and not said:
        raise Unestablished("; ".join(unjudged))


def _absent(run: Run, model: ModelFolder) -> list[str]:
    """Parts with weights of which nothing is on this machine."""
    family = family_of(run)
    if family is None or not model.components or "cache" in model.components:
        return []
    weighty = (part for part in family.parts if not part.startswith(("tokenizer", "scheduler")))
    return [f"{part}: not on this machine" for part in weighty if part not in model.components]


def _consequence(part: Component, model: ModelFolder) -> str:
    if part.name.startswith("text_encoder"):
        return "The missing tensors are filled with random numbers, and the run trains to its end on garbage."
    if model.layout == "single-file":
        return "Loading ends with a RuntimeError that names them: missing keys in the state_dict."
    return (
        "They stay without data, and after minutes of loading, before the first step, the run ends with "
        "NotImplementedError: Cannot copy out of meta tensor; no data!"
    )


def _blocks(missing: Iterable[str], needed: Iterable[str]) -> str:
    """ "all of layers.3, parts of layers.1": where the gaps are."""
    lost, whole = _grouped(missing), _grouped(needed)
    gone = [block for block, count in lost.items() if count == whole.get(block)]
    parts = [block for block in lost if block not in gone]
    said = []
    if gone:
        said.append(f"all of {_few(gone)}")
    if parts:
        said.append(f"parts of {_few(parts)}")
    return ", ".join(said)


def _grouped(names: Iterable[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name in names:
        match = re.match(r".*?\.\d+(?=\.)", name)
        block = match.group() if match else name.partition(".")[0]
        counts[block] = counts.get(block, 0) + 1
    return counts


def _few(names: list[str], most: int = 4) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def _files(part: Component) -> str:
    return part.weights[0].name if len(part.weights) == 1 else f"{len(part.weights)} files"


@rule("MDL002", "error", "checkpoint-layout-mismatch")
def checkpoint_layout_mismatch(run: Run, model: ModelFolder) -> Iterator[Finding]:
    """Weights of another kind than the trainer opens here.

    What: A single file for a loader that opens none, another class than the trainer builds, names of another
    program's layout, shapes that differ from config.json, layers or a guidance embedder in the files that are not in
    config.json, 8-bit weights whose scales the loader does not know, names that a single file holds beyond the
    model's own, or parts that do not fit together.

    Why: The loader takes tensors by name and shape. Other names mean empty parameters; other shapes stop it; scales
    it does not know are dropped and leave every weight wrong by a factor; layers that config.json does not mention
    are left out without a word. ai-toolkit opens a single file for Z-Image only, loads it strictly, and strips no
    prefix from its names; for Flux it looks for a folder transformer/ below whatever is named.

    Repair: Use the folder in the diffusers layout as its author published it; a ComfyUI file of Z-Image goes into
    name_or_path as a file, not into transformer/.

    Signature: Cannot load because … expected shape …, but got …; or Cannot copy out of meta tensor; no data!
    or RuntimeError: Error(s) in loading state_dict for ZImageTransformer2DModel; or is not the path to a directory
    containing a config.json file
    """
    if run.kind == "other":
        return
    family = family_of(run)
    refused = _refused_file(run, model, family)
    if refused is not None:
        yield refused
        return
    for part in model.components.values():
        expected = family.parts.get(part.name, ()) if family is not None else ()
        kind = _another_kind(run, model, part, family, expected)
        if kind is not None:
            yield kind
        else:
            yield from _shapes(run, model, part)
    yield from _fit_together(run, model, family)


def _refused_file(run: Run, model: ModelFolder, family: Family | None) -> Finding | None:
    """A file where this loader opens only folders and hub ids, or a file of another ending than it knows."""
    is_file = model.layout == "single-file" or (model.layout == "absent" and _HUB_FILE.fullmatch(model.source))
    if family is None or not is_file:
        return None
    if family.single_file is not None and model.source.endswith(".safetensors"):
        return None
    part = model.components.get("transformer")
    held = contents(part.tensors) if part is not None else ""
    if family.single_file is not None:
        message = "{path} does not end in .safetensors, the only single files that {trainer} opens."
    elif held:
        message = (
            "{path} is a single file ({held}); for {family}, {trainer} opens only a folder in the diffusers layout "
            "or the hub id of one."
        )
    else:
        message = (
            "{path} is a single file; for {family}, {trainer} opens only a folder in the diffusers layout or the hub "
            "id of one."
        )
    return found(
        run.where("base_model"),
        message,
        otherwise="Loading fails at once: OSError: … is not the path to a directory containing a config.json file.",
        evidence={"file": model.source},
        path=model.source,
        held=held,
        family=family.name,
        trainer=run.trainer,
    )


def _another_kind(
    run: Run, model: ModelFolder, part: Component, family: Family | None, expected: tuple[str, ...]
) -> Finding | None:
    """Another class, other names, or scaled weights: the part is not what the loader takes it for."""
    place, evidence = run.where("base_model"), {"component": part.name, "folder": part.folder}
    single = model.layout == "single-file" and part.name == "transformer"
    wrong_class = part.class_name is not None and part.class_name not in expected
    if family is not None and expected and wrong_class and not part.name.startswith(("tokenizer", "scheduler")):
        return found(
            place,
            "{component} is a {actual}, but {family} needs a {expected} (config.json in {folder}).",
            otherwise="Loading fails, or builds a model that these weights do not fill.",
            evidence=evidence,
            component=part.name,
            actual=part.class_name,
            family=family.name,
            expected=expected[0],
            folder=part.folder,
        )
    plain = not (part.config or {}).get("quantization_config")
    scales = [name for name in part.tensors if plain and name.endswith(_SCALES)]
    if scales and (not single or not _foreign(part)):
        return found(
            place,
            "{component} holds scaled 8-bit weights ({count} scales such as {example}); the loader has no place for "
            "the scales."
            if single
            else "{component} holds scaled 8-bit weights ({count} scales such as {example}); the loader drops "
            "the scales.",
            otherwise="Loading ends with a RuntimeError: unexpected keys in the state_dict."
            if single
            else "Every scaled weight is wrong by its factor; the run trains on garbage without an error.",
            evidence=evidence,
            component=part.name,
            count=len(scales),
            example=scales[0],
        )
    if not _foreign(part):
        return None
    held = contents(part.tensors)
    needed = part.needed or {}
    return found(
        place,
        "{files} of {component} holds {held}; its names are not those the trainer loads (such as {example})."
        if held and len(part.weights) == 1
        else "The files of {component} hold {held}; its names are not those the trainer loads (such as {example})."
        if held
        else "The tensors of {component} have another program's names, not those the trainer loads (such as "
        "{example}).",
        otherwise="Loading ends with a RuntimeError: missing keys in the state_dict."
        if single
        else "The missing tensors are filled with random numbers, and the run trains to its end on garbage."
        if part.name.startswith("text_encoder")
        else "The run finds no weight and ends while it loads: Cannot copy out of meta tensor; no data!",
        evidence=evidence,
        component=part.name,
        files=_files(part),
        held=held,
        example=next(name for name in part.tensors if name not in needed),
    )


def _shapes(run: Run, model: ModelFolder, part: Component) -> Iterator[Finding]:
    needed = part.needed or {}
    tensors = part.tensors
    evidence = {"component": part.name, "folder": part.folder}
    wrong = [name for name, shape in needed.items() if name in tensors and tensors[name].shape != shape]
    if wrong:
        yield found(
            run.where("base_model"),
            "The tensor {example} of {component} has shape {actual}, but config.json asks for {expected} (from the "
            "file headers)."
            if len(wrong) == 1
            else "{component} has {count} tensors of another shape than config.json asks for: {example} is {actual} "
            "and should be {expected} (from the file headers).",
            otherwise="Loading fails with a shape mismatch, after the file has been read.",
            evidence=evidence,
            count=len(wrong),
            component=part.name,
            example=wrong[0],
            actual=list(tensors[wrong[0]].shape),
            expected=list(needed[wrong[0]]),
        )
    more = _blocks_beyond(needed, tensors)
    beyond = [name for name in tensors if needed and name not in needed]
    if beyond and model.layout == "single-file" and part.name == "transformer":
        yield found(
            run.where("base_model"),
            "{component} holds {count} tensors that the model has no place for, such as {example}; {trainer} loads a "
            "single file strictly."
            if len(beyond) > 1
            else "{component} holds a tensor that the model has no place for, {example}; {trainer} loads a single "
            "file strictly.",
            otherwise="Loading ends with a RuntimeError: unexpected keys in the state_dict.",
            evidence={**evidence, "names": beyond[:20]},
            component=_files(part),
            count=len(beyond),
            example=beyond[0],
            trainer=run.trainer,
        )
        return
    guidance = [name for name in beyond if ".guidance_embedder." in name]
    if guidance and not wrong:
        yield found(
            run.where("base_model"),
            "The files of {component} hold a guidance embedder, as FLUX.1-dev has, but config.json says "
            "guidance_embeds false, as for schnell.",
            otherwise="The embedder is skipped without a word, and the model trains without the guidance it knows.",
            evidence=evidence,
            component=part.name,
        )
    if more and not wrong:
        yield found(
            run.where("base_model"),
            "The files of {component} hold blocks that config.json leaves out: {count}, from {example} on.",
            otherwise="They are skipped without a word: a model without its last layers is trained.",
            evidence=evidence,
            component=part.name,
            count=len(more),
            example=more[0],
        )


def _blocks_beyond(needed: Mapping[str, object], tensors: Iterable[str]) -> list[str]:
    """Whole blocks in the files whose number continues a stack of blocks that the config ends earlier."""
    expected = {block: count for block, count in _grouped(needed).items() if block[-1].isdigit()}
    stacks = {block.rpartition(".")[0]: count for block, count in expected.items()}
    seen = _grouped(name for name in tensors if name not in needed)
    return [
        block
        for block, count in seen.items()
        if block not in expected and block[-1].isdigit() and stacks.get(block.rpartition(".")[0]) == count
    ]


def _foreign(part: Component) -> bool:
    """Whether these are other tensors altogether: most needed names are absent, and most names are not needed."""
    needed, tensors = part.needed, part.tensors
    if not needed or not tensors:
        return False
    strangers = sum(name not in needed for name in tensors)
    return 2 * sum(name in tensors for name in needed) < len(needed) and 2 * strangers >= len(tensors)


def _fit_together(run: Run, model: ModelFolder, family: Family | None) -> Iterator[Finding]:
    """Widths that must agree between parts of one model."""
    parts = model.components
    transformer = parts.get("transformer")
    if family is None or transformer is None or transformer.config is None:
        return
    if transformer.class_name not in family.parts["transformer"]:
        return
    for fit in family.fits:
        other = parts.get(fit.part)
        own = next((key for key in fit.own if transformer.config.get(key)), fit.own[-1])
        width = transformer.config.get(own, fit.default)
        value = other.config.get(fit.key) if other is not None and other.config is not None else None
        if isinstance(value, int) and isinstance(width, int) and value * fit.factor != width:
            yield found(
                run.where("base_model"),
                "{component} has {key} {value}, but the transformer's {own} {width} asks for {wanted} (from both "
                "config.json): they belong to different models.",
                otherwise="The first step, or the first sample before it, fails with a size mismatch.",
                evidence={"component": fit.part},
                component=fit.part,
                key=fit.key,
                value=value,
                own=own,
                width=width,
                wanted=width // fit.factor,
            )
