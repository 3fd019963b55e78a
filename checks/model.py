"""The base model's files against the architecture that will be built from them, and the adapter against both."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from ..doctor.model import Component, Finding, ModelFolder, Run, found
from ..doctor.rules import Unestablished, rule

_CLASSES = {
    "transformer": ("ZImageTransformer2DModel",),
    "text_encoder": ("Qwen3ForCausalLM", "Qwen3Model"),
    "vae": ("AutoencoderKL",),
}
# transformers builds an output head that no trainer here reads: its absence changes nothing.
_UNREAD = frozenset({"lm_head.weight"})
_SCALES = (".weight_scale", ".scale_weight", ".scale_input", ".input_scale", ".comfy_quant", "scaled_fp8")


@rule(
    "MDL001",
    "error",
    "missing-checkpoint-tensors",
    prevents=(("NotImplementedError", "Cannot copy out of meta tensor; no data!"),),
)
def missing_checkpoint_tensors(run: Run, model: ModelFolder) -> Iterator[Finding]:
    """Tensors the architecture needs and the weight files lack.

    What: The headers of the weight files are compared, name by name, with what config.json makes the loader build.

    Why: diffusers builds the transformer and the VAE without memory (on the "meta" device) and fills in what the
    files hold. A tensor they lack stays empty, and the first move of that block to a device fails. The only hint,
    a warning about newly initialized weights, is hidden by ai-toolkit. transformers instead fills a text encoder's
    missing tensors with random numbers, and the run trains to the end on garbage.

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
        if any(weight.problem for weight in part.weights) or _layout(part):
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
            otherwise=_consequence(part),
            evidence={"component": part.name, "missing": len(missing), "names": missing[:20], "folder": part.folder},
            component=part.name,
            missing=len(missing),
            needed=len(part.needed),
            which=_blocks(missing, part.needed),
            example=missing[0],
            files=_files(part),
        )
    if model.layout == "absent":
        raise Unestablished(f"nothing of {model.source} is on this machine")
    if unjudged and not said:
        raise Unestablished("; ".join(unjudged))


def _consequence(part: Component) -> str:
    if part.name.startswith("text_encoder"):
        return "The missing tensors are filled with random numbers, and the run trains to its end on garbage."
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
    """Weights of another kind than the folder says.

    What: Another class than the trainer builds, names of another program's layout, shapes that differ from
    config.json, more layers in the files than in config.json, 8-bit weights whose scales the loader drops, or
    parts that do not fit together.

    Why: The loader takes tensors by name and shape. Other names mean empty parameters; other shapes stop it; scales
    it does not know are dropped and leave every weight wrong by a factor; layers that config.json does not mention
    are left out without a word.

    Repair: Use the folder in the diffusers layout as its author published it; a ComfyUI file goes into
    name_or_path as a file, not into transformer/.

    Signature: Cannot load because … expected shape …, but got …; or Cannot copy out of meta tensor; no data!
    """
    if run.kind == "other":
        return
    place = run.where("base_model")
    zimage = run.architecture in ("zimage", "z_image")
    for part in model.components.values():
        evidence = {"component": part.name, "folder": part.folder}
        expected = _CLASSES.get(part.name, ()) if zimage else ()
        if expected and part.class_name is not None and part.class_name not in expected:
            yield found(
                place,
                "{component} is a {actual}, but Z-Image needs a {expected} (config.json in {folder}).",
                otherwise="Loading fails, or builds a model that these weights do not fill.",
                evidence=evidence,
                component=part.name,
                actual=part.class_name,
                expected=expected[0],
                folder=part.folder,
            )
            continue
        plain = model.layout != "single-file" and not (part.config or {}).get("quantization_config")
        scales = [name for name in part.tensors if plain and name.endswith(_SCALES)]
        if scales:
            yield found(
                place,
                "{component} holds scaled 8-bit weights ({count} scales such as {example}); the loader drops "
                "the scales.",
                otherwise="Every scaled weight is wrong by its factor; the run trains on garbage without an error.",
                evidence=evidence,
                component=part.name,
                count=len(scales),
                example=scales[0],
            )
            continue
        layout = _layout(part)
        if layout:
            yield found(
                place,
                "The tensors of {component} have {layout} names, not those the trainer loads (such as {example}).",
                otherwise="The run finds no weight and ends while it loads: Cannot copy out of meta tensor; no data!",
                evidence=evidence,
                component=part.name,
                layout=layout,
                example=next(name for name in part.tensors if name not in (part.needed or {})),
            )
            continue
        yield from _shapes(run, part)
    yield from _fit_together(run, model)


def _shapes(run: Run, part: Component) -> Iterator[Finding]:
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


def _layout(part: Component) -> str:
    """Whose names these are when most of the needed ones are absent; "" when the names are the loader's own."""
    needed, tensors = part.needed, part.tensors
    if not needed or not tensors:
        return ""
    strangers = [name for name in tensors if name not in needed]
    if 2 * sum(name in tensors for name in needed) >= len(needed) or 2 * len(strangers) < len(tensors):
        return ""
    if any(".lora_" in name or name.startswith("lora_") for name in strangers):
        return "a LoRA's"
    if any(name.startswith("model.diffusion_model.") or ".attention.qkv." in name for name in strangers):
        return "ComfyUI's"
    return "another program's"


def _fit_together(run: Run, model: ModelFolder) -> Iterator[Finding]:
    """Widths that must be equal between parts of a Z-Image model."""
    parts = model.components
    transformer = parts.get("transformer")
    if transformer is None or transformer.class_name != "ZImageTransformer2DModel" or transformer.config is None:
        return
    for name, key, own, default in (
        ("text_encoder", "hidden_size", "cap_feat_dim", 2560),
        ("vae", "latent_channels", "in_channels", 16),
    ):
        other = parts.get(name)
        width = transformer.config.get(own, default)
        value = other.config.get(key) if other is not None and other.config is not None else None
        if isinstance(value, int) and isinstance(width, int) and value != width:
            yield found(
                run.where("base_model"),
                "{component} has {key} {value}, but the transformer takes {own} {width} (from both config.json): "
                "they belong to different models.",
                otherwise="The first step, or the first sample before it, fails with a size mismatch.",
                evidence={"component": name},
                component=name,
                key=key,
                value=value,
                own=own,
                width=width,
            )
