"""Weights of another kind than the trainer opens: other classes, names, shapes, files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ...doctor.families import family_of, family_with, loader_of, opened_by
from ...doctor.families.part_files import kohya_of
from ...doctor.families.record import Loader
from ...doctor.model import Component, Finding, ModelFolder, Run, found
from ...doctor.model.pattern import pattern
from ...doctor.model.trainer import RUNNER
from ...doctor.model.weights import COMFYUI_PREFIX, SCALES
from ...doctor.rules import NotApplicable, prevents, rule
from ...doctor.trainers import trainer_of
from .contents import contents
from .scripts import is_of_another_script
from .tensors import files, foreign, grouped

Evidence = Mapping[str, object]
NONE: Evidence = {}
# What every loader takes out before it compares.
_UNREAD = ("lm_head.weight", "embeddings.position_ids")
_UNEXPECTED = "Loading ends with a RuntimeError: unexpected keys in the state_dict."
_HUB_FILE = pattern(r"[\w-][\w.-]*/[\w.-]+/.+\.(safetensors|gguf|ckpt|pt|bin)")


@rule("MDL002", "error", "checkpoint-layout-mismatch", trainers=("ai-toolkit", RUNNER, "sd-scripts", "musubi-tuner"))
@prevents("RuntimeError", r"Error\(s\) in loading state_dict for (?!LoRA|Lora|Peft)")
@prevents("ValueError", r"because \S+ expected shape .*, but got")
def checkpoint_layout_mismatch(run: Run, model: ModelFolder) -> Iterator[Finding]:
    """Weights of another kind than the trainer opens here.

    What: A single file for a loader that opens none, another class than the trainer builds, names of another
    program's layout, shapes that differ from config.json, layers or a guidance embedder in the files that are not in
    config.json, 8-bit weights whose scales the loader does not know, names that a single file holds beyond the
    model's own, or parts that do not fit together.
    Why: The loader takes tensors by name and shape. Other names mean empty parameters; other shapes stop it; scales
    it does not know are dropped and leave every weight wrong by a factor; layers that config.json does not mention
    are left out without a word. ai-toolkit opens a single file for Z-Image only, loads it strictly, and strips no
    prefix from its names; for Flux it looks for a folder transformer/ below whatever is named. `zdoctor train` opens
    single files of both, under either layout's names.
    Repair: Use the folder in the diffusers layout as its author published it, or let diffusers convert the file
    into one; a ComfyUI file of Z-Image goes into name_or_path as a file, not into transformer/.
    Upstream: https://github.com/huggingface/diffusers/pull/12888, https://github.com/invoke-ai/InvokeAI/pull/8918
    (files with a prefix, a stray norm_final.weight or text encoders in them)
    Signature: Cannot load because … expected shape …, but got …; or Cannot copy out of meta tensor; no data!
    or RuntimeError: Error(s) in loading state_dict for ZImageTransformer2DModel; or is not the path to a directory
    containing a config.json file
    """
    loader = loader_of(run)
    if not opened_by(run).name:
        raise NotApplicable  # MDL001 says that nothing is known of its files
    if (refused := _refused_file(run, model, loader)) is not None:
        yield refused
        return
    if is_of_another_script(run, model):
        return
    for part in model.components.values():
        kind = _another_kind(run, model, part, loader)
        if kind is None:
            yield from _shapes(run, model, part)
            continue
        yield kind
        if "arch" in kind.evidence:
            return  # the other parts are of that other model too
    yield from _fit_together(run, model, loader)


def _said(run: Run, part: Component, message: str, otherwise: str, *, more: Evidence = NONE, **args: Any) -> Finding:
    """A finding about a component; its name and folder are evidence always."""
    evidence = {"component": part.name, "folder": part.folder, **more}
    return found(run.where(part.key), message, otherwise=otherwise, evidence=evidence, **args)


def _another_kind(run: Run, model: ModelFolder, part: Component, loader: Loader | None) -> Finding | None:
    """Another class, other names, or scaled weights: the part is not what the loader takes it for."""
    expected = loader.components.get(part.name, ()) if loader is not None else ()
    strict = part.strict or (model.layout == "part-files" and _is_complete(run, part))
    wrong_class = part.class_name is not None and part.class_name not in expected
    if expected and wrong_class and not part.name.startswith(("tokenizer", "scheduler")):
        other = family_with(part.class_name).name if loader is not None and part.name == loader.main else ""
        needs = "{component} is a {actual}, but {family} needs a {expected} (config.json in {folder})."
        return _said(
            run,
            part,
            "This is a model for arch {arch}: its " + needs if other else needs,
            "Loading fails, or builds a model that these weights do not fill.",
            more={"arch": other} if other else {},
            actual=part.class_name,
            family=family_of(run.recipe.architecture).title,
            expected=expected[0],
        )
    plain = not (part.config or {}).get("quantization_config")
    scales = [name for name in part.tensors if plain and name.endswith(SCALES)]
    if scales and (not part.strict or not foreign(part)):
        return _said(
            run,
            part,
            "{component} holds scaled 8-bit weights ({count} scales such as {example}); the loader "
            + ("has no place for the scales." if strict else "drops the scales."),
            _UNEXPECTED
            if strict and not run.by_runner
            else "Every scaled weight is wrong by its factor; the run trains on garbage without an error.",
            count=len(scales),
            example=scales[0],
        )
    return _foreign(run, model, part, strict) if foreign(part) else None


def _is_complete(run: Run, part: Component) -> bool:
    """Whether a tensor that lacks in a file of a part stops its loading."""
    kohya = kohya_of(run)
    return trainer_of(run.trainer).strict_names or (kohya is not None and part.name in kohya.complete)


def _foreign(run: Run, model: ModelFolder, part: Component, strict: bool) -> Finding:
    held = contents(part.tensors)
    if held:
        one = len(part.weights) == 1
        what = "{files} of {component} holds {held}" if one else "The files of {component} hold {held}"
        what += "; its names are not those the trainer loads"
    else:
        what = "The tensors of {component} have another program's names, not those the trainer loads"
    if run.by_runner:
        otherwise = "The run ends with the names that are missing, when it looks at the headers of these files."
    elif strict:
        otherwise = "Loading ends with a RuntimeError: missing keys in the state_dict."
    elif part.name.startswith("text_encoder") and model.layout != "part-files":
        otherwise = "The missing tensors are filled with random numbers, and the run trains to its end on garbage."
    else:
        otherwise = "The run finds no weight and ends while it loads: Cannot copy out of meta tensor; no data!"
    return _said(
        run,
        part,
        what + " (such as {example}).",
        otherwise,
        more=_conversion(run, part) if part.strict else {},
        files=files(part),
        held=held,
        example=next(name for name in part.tensors if name not in (part.needed or {})),
    )


def _shapes(run: Run, model: ModelFolder, part: Component) -> Iterator[Finding]:
    needed, tensors = part.needed or {}, part.tensors
    wrong = [name for name, shape in needed.items() if name in tensors and tensors[name].shape != shape]
    if wrong:
        yield _said(
            run,
            part,
            "The tensor {example} of {component} has shape {actual}, but {asker} asks for {expected} (from the "
            "file headers)."
            if len(wrong) == 1
            else "{component} has {count} tensors of another shape than {asker} asks for: {example} is {actual} "
            "and should be {expected} (from the file headers).",
            "Loading fails with a shape mismatch, after the file has been read.",
            count=len(wrong),
            example=wrong[0],
            actual=list(tensors[wrong[0]].shape),
            expected=list(needed[wrong[0]]),
            asker="config.json" if model.layout != "part-files" and part.config is not None else run.trainer,
        )
    beyond = [name for name in tensors if needed and name not in needed]
    if model.layout == "part-files":  # what is beyond is left alone, or said with the missing names
        by_kohya = kohya_of(run)
        beyond = [name for name in beyond if not name.endswith(_UNREAD)]
        strict = by_kohya is not None and by_kohya.strict and part.name not in by_kohya.spare
        if strict and beyond and not foreign(part):
            yield _too_many(run, part, beyond, "it", {"component": part.name})
    elif beyond and part.strict and not run.by_runner:
        more = {"component": part.name, "folder": part.folder, **_conversion(run, part)}
        yield _too_many(run, part, beyond, "a single file", more)
    elif not wrong:
        yield from _passed_over(run, part, beyond)


def _too_many(run: Run, part: Component, beyond: Sequence[str], what: str, evidence: Evidence) -> Finding:
    """A file that is loaded strictly holds more names than the model has."""
    many = "{component} holds {count} tensors that the model has no place for, such as {example}"
    one = "{component} holds a tensor that the model has no place for, {example}"
    return found(
        run.where(part.key),
        (many if len(beyond) > 1 else one) + "; {trainer} loads {what} strictly.",
        otherwise=_UNEXPECTED,
        evidence={**evidence, "names": beyond[:20]},
        component=files(part),
        count=len(beyond),
        example=beyond[0],
        trainer=run.trainer,
        what=what,
    )


def _passed_over(run: Run, part: Component, beyond: Sequence[str]) -> Iterator[Finding]:
    """A guidance embedder, or whole blocks, that the files hold and config.json leaves out."""
    if any(".guidance_embedder." in name or name.startswith("guidance_in.") for name in beyond):
        yield _said(
            run,
            part,
            "The files of {component} hold a guidance embedder, as FLUX.1-dev has, but config.json says "
            "guidance_embeds false, as for schnell.",
            "The embedder is skipped without a word, and the model trains without the guidance it knows.",
        )
    if more := _blocks_beyond(part.needed or {}, beyond):
        yield _said(
            run,
            part,
            "The files of {component} hold blocks that config.json leaves out: {count}, from {example} on.",
            "They are skipped without a word: a model without its last layers is trained.",
            count=len(more),
            example=more[0],
        )


def _blocks_beyond(needed: Iterable[str], beyond: Iterable[str]) -> list[str]:
    """Whole blocks in the files whose number continues a stack of blocks that the config ends earlier."""
    expected = {block: count for block, count in grouped(needed).items() if block[-1].isdigit()}
    stacks = {block.rpartition(".")[0]: count for block, count in expected.items()}
    more = ((block, count) for block, count in grouped(beyond).items() if block[-1].isdigit())
    return [block for block, count in more if block not in expected and stacks.get(block.rpartition(".")[0]) == count]


def _fit_together(run: Run, model: ModelFolder, loader: Loader | None) -> Iterator[Finding]:
    """Widths that must agree between parts of one model."""
    parts = model.components
    transformer = parts.get("transformer")
    if loader is None or transformer is None or transformer.config is None:
        return
    if transformer.class_name not in loader.components["transformer"]:
        return
    for fit in family_of(run.recipe.architecture).fits:
        other = parts.get(fit.component)
        own = next((key for key in fit.own if transformer.config.get(key)), fit.own[-1])
        width = transformer.config.get(own, fit.default)
        value = other.config.get(fit.key) if other is not None and other.config is not None else None
        if isinstance(value, int) and isinstance(width, int) and value * fit.factor != width:
            yield found(
                run.where("base_model"),
                "{component} has {key} {value}, but the transformer's {own} {width} asks for {wanted} (from both "
                "config.json): they belong to different models.",
                otherwise="The first step, or the first sample before it, fails with a size mismatch.",
                evidence={"component": fit.component},
                key=fit.key,
                value=value,
                own=own,
                width=width,
                wanted=width // fit.factor,
            )


def _refused_file(run: Run, model: ModelFolder, loader: Loader | None) -> Finding | None:
    """A file where this loader opens only folders and hub ids, or a file of another ending than it knows."""
    is_file = model.layout == "single-file" or (model.layout == "absent" and _HUB_FILE.fullmatch(model.source))
    if loader is None or not is_file or loader.origin(loader.main).file is not None:
        return None
    if loader.single_file is not None and model.source.endswith(".safetensors"):
        return None
    part = model.components.get("transformer")
    held = contents(part.tensors) if part is not None else ""
    message = "{path} does not end in .safetensors, the only single files that {trainer} opens."
    if loader.single_file is None:
        message = "{path} is a single file" + (" ({held})" if held else "") + "; for {family}, {trainer} opens only "
        message += "a folder in the diffusers layout or the hub id of one."
    error = "" if run.by_runner else ": OSError: … is not the path to a directory containing a config.json file"
    return found(
        run.where("base_model"),
        message,
        otherwise="Loading fails at once" + error + ".",
        evidence={"file": model.source} | _flux_conversion(part, loader),
        path=model.source,
        held=held,
        family=family_of(run.recipe.architecture).title,
        trainer=run.trainer,
    )


def _flux_conversion(part: Component | None, loader: Loader) -> dict[str, object]:
    """What diffusers needs to convert a file that is a whole FLUX.1-dev or schnell."""
    if part is None or loader.single_file is not None or not part.needed:
        return {}
    if any(name not in part.tensors or part.tensors[name].shape != shape for name, shape in part.needed.items()):
        return {}
    guided = any(name.removeprefix(COMFYUI_PREFIX).startswith("guidance_in.") for name in part.needed)
    return {
        "file": part.weights[0].path,
        "convert": loader.components["transformer"][0],
        "config": f"black-forest-labs/FLUX.1-{'dev' if guided else 'schnell'}",
        "alone": False,
    }


def _conversion(run: Run, part: Component) -> dict[str, object]:
    """What diffusers needs to convert a Z-Image file that holds more than the trainer takes, or has a prefix."""
    loader = loader_of(run)
    names = {name.removeprefix(COMFYUI_PREFIX) for name in part.tensors}
    scaled = any(name.endswith(SCALES) for name in names)
    if loader is None or loader.single_file is None or not part.needed or scaled or not names >= part.needed.keys():
        return {}
    apart = run.recipe.extras_model not in (None, run.recipe.base_model)
    config = run.recipe.extras_model if apart else loader.single_file
    return {"file": part.weights[0].path, "convert": part.class_name, "config": config, "alone": True}
