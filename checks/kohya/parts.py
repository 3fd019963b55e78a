"""The files that kohya's trainers open: which are named, and what lies there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ...doctor.families.part_files import kohya_of, part_files, written_path
from ...doctor.model import Component, Config, Files, Finding, ModelFolder, Run, System, found
from ...doctor.model.paths import PLACEHOLDER
from ...doctor.model.recipe import PartFile
from ...doctor.model.trainer import RUNNER
from ...doctor.rules import NotApplicable, Unestablished, prevents, rule
from ..keys.misspelled import meant
from ..model.scripts import NO_SCRIPT, channels_of, misses_the_script, model_in, script_for
from ..paths import looks_local, not_there, unless_elsewhere
from . import ELSEWHERE, TRAINERS, trains

_NAMES = {
    "transformer": "the transformer",
    "text_encoder": "the text encoder",
    "text_encoder_2": "the T5 text encoder",
    "unet": "the model",
    "vae": "the VAE",
}
_ENDINGS = (".safetensors", ".sft")
_WEIGHTS = (*_ENDINGS, ".ckpt", ".pt", ".pth")
_HUB = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
# Of what has no record.
_MODULES = {
    ("sd-scripts", "sd3"): "networks.lora_sd3",
    ("musubi-tuner", "flux2"): "networks.lora_flux_2",
    ("musubi-tuner", "qwen_image"): "networks.lora_qwen_image",
    ("musubi-tuner", "wan"): "networks.lora_wan",
    ("musubi-tuner", "framepack"): "networks.lora_framepack",
    ("musubi-tuner", "kandinsky5"): "networks.lora_kandinsky",
    ("musubi-tuner", "ideogram4"): "networks.lora_ideogram4",
    ("musubi-tuner", "hidream_o1"): "networks.lora_hidream_o1",
}
# Those of all models; one of another name may be a fork's.
_ENDS_LATE = "The run ends after the model was loaded and all was cached."
_KOHYAS = {
    *(f"networks.lora{model}" for model in ("", "_anima", "_flux", "_hunyuan_image", "_lumina", "_hv_1_5", "_krea2")),
    *("networks.lora_zimage", *_MODULES.values()),
}


@rule("KOH001", "error", "missing-part-file", trainers=(*TRAINERS, RUNNER))
@prevents("FileNotFoundError", r"No such file or directory: .*\.(safetensors|sft)")
@prevents("TypeError", r"expected str, bytes or os\.PathLike object, not NoneType")
def missing_part_file(
    config: Config, run: Run, files: Files, model: ModelFolder, elsewhere: str, system: System
) -> Iterator[Finding]:
    """A file of the model that is not named, or not there.

    What: sd-scripts and musubi-tuner take the transformer, the text encoders and the VAE from a file each. For Flux,
    sd-scripts needs all four (--pretrained_model_name_or_path, --clip_l, --t5xxl, --ae), and its parser asks for
    none. musubi-tuner opens the text encoder and the VAE for samples only; zdoctor train, which makes its caches
    itself, always. A hub id is taken for a path. A folder is opened only by sd-scripts, and only one with the
    transformer in three shards, as FLUX.1-dev was published.
    Why: The transformer is opened first, so a missing VAE shows minutes later.
    Repair: Name the files. For Flux they are flux1-dev.safetensors and ae.safetensors of
    black-forest-labs/FLUX.1-dev, clip_l.safetensors and t5xxl_fp16.safetensors of
    comfyanonymous/flux_text_encoders.
    Upstream: https://github.com/kohya-ss/sd-scripts/issues/1571, https://github.com/kohya-ss/sd-scripts/issues/1603
    Signature: FileNotFoundError: No such file or directory; TypeError: expected str, bytes or os.PathLike object,
    not NoneType
    """
    if not trains(run):
        raise NotApplicable
    hidden = ""
    parts = part_files(run)
    for part in parts:
        text = written_path(run, part)
        if part.when and run.setting(part.when) is None:
            continue
        if part.inside and (part.option == parts[0].option or _is_inside(model, part, text)):
            continue
        if part.loose and not (text and (text.endswith(_WEIGHTS) or looks_local(text))):
            continue  # a hub id will do as well
        if text is None:
            yield _unnamed(config, run, part)
            continue
        entry, component = files.at(text), model.components.get(part.name)
        if entry is None:
            continue
        if entry.kind == "denied":
            hidden = entry.path
        elif entry.is_gone or (entry.kind == "folder" and not part.loose):
            for one in _absent(run, part, text, entry.kind, component, system.os):
                yield unless_elsewhere(one, entry, elsewhere)
        elif component and (gone := [weight.name for weight in component.weights if weight.problem == "missing"]):
            yield found(
                run.where(part.option),
                "{file} is not beside the first shard of {part}.",
                otherwise="The run ends with FileNotFoundError when it opens {part}.",
                evidence={"files": gone},
                file=gone[0],
                part=_named(part),
            )
    if hidden:
        raise Unestablished(f"{hidden} could not be looked at")


def _is_inside(model: ModelFolder, part: PartFile, text: str | None) -> bool:
    """Whether the model that is there holds a part whose option is not written; of one that is not, none is known."""
    return text is None and (model.layout != "part-files" or part.name in model.components)


def _named(part: PartFile) -> str:
    return (
        "the model"
        if part.loose and part.name in ("transformer", "unet")
        else _NAMES.get(part.name, f"--{part.option}")
    )


def _unnamed(config: Config, run: Run, part: PartFile) -> Finding:
    message = "--{option} is not given; {trainer} opens {part} from it" + (" for the samples." if part.when else ".")
    otherwise = "The run ends when it opens {part}: NoneType is no path."
    if run.by_runner:
        message = "--{option} is not given; zdoctor train makes its caches itself, so it needs {part}."
        otherwise = "Nothing is trained."
    return found(
        run.where(part.option),
        message,
        otherwise=otherwise,
        evidence={"option": part.option},
        severity="warning" if config.format == "toml" and not run.by_runner else None,
        trainer=run.trainer,
        part=_named(part),
    )


def _absent(
    run: Run, part: PartFile, text: str, kind: str, component: Component | None, os: str
) -> Iterator[Finding]:
    """A path that leads nowhere, or to a folder that the trainer cannot open."""
    if kind == "folder" and component is not None and not any(weight.problem for weight in component.weights):
        return
    is_placeholder = PLACEHOLDER.search(text) is not None
    message = not_there(text, kind, os)
    if re.match(r"put (the|your)\b", text):
        message = "{text} is a placeholder: put in the real path of {what}."
    elif kind == "folder" and not is_placeholder:
        message = "{text} is a folder; {trainer} opens {what} as one safetensors file."
        if run.trainer == "sd-scripts" and part.name == "transformer":
            message += " A folder will do whose transformer/ holds diffusion_pytorch_model in exactly three shards."
    elif kind == "missing" and not is_placeholder and _HUB.fullmatch(text) and not text.endswith(_ENDINGS):
        message = "{text} reads like a hub id, and {trainer} downloads nothing: name the file of {what}."
    yield found(
        run.where(part.option),
        message,
        otherwise="The run ends when it opens {what}.",
        evidence={"option": part.option},
        text=text,
        trainer=run.trainer,
        what=_named(part),
        os=os,
    )


@rule("KOH002", "error", "wrong-network-module", trainers=TRAINERS)
@prevents("AttributeError", r"'NoneType' object has no attribute 'startswith'")
@prevents("AttributeError", r"'LoRANetwork' object has no attribute 'train_t5xxl'")
def wrong_network_module(config: Config, run: Run) -> Iterator[Finding]:
    """No network module, or the one of another model.

    What: --network_module names the Python module that builds the LoRA. It is absent, or it is kohya's module for
    another model than this script trains. Modules of other authors (lycoris.kohya) are not judged.
    Why: The module is imported after every part of the model has been loaded and everything has been cached. A
    module made for another model finds nothing to train in this one.
    Repair: networks.lora_flux for Flux in sd-scripts; networks.lora_zimage for Z-Image in musubi-tuner.
    Upstream: https://github.com/bmaltais/kohya_ss/issues/1897, https://github.com/bmaltais/kohya_ss/issues/2701
    Signature: AttributeError: 'NoneType' object has no attribute 'startswith'; 'LoRANetwork' object has no attribute
    'train_t5xxl'
    """
    if run.kind != "lora" or not trains(run) or not run.process_type:
        raise NotApplicable
    of_trainer = kohya_of(run)
    other = _MODULES.get((run.trainer, run.recipe.architecture or ""))
    expected = other if of_trainer is None or not of_trainer.files else of_trainer.network_module
    module = run.setting("network_module")
    where, evidence = run.where("network_module"), {"pointer": run.pointer("network_module"), "new": expected}
    if module is None:
        toml = config.format == "toml"
        yield found(
            where,
            "--network_module is not given"
            + ("." if expected is None else "; for this model it is {new}.")
            + (ELSEWHERE if toml else ""),
            otherwise="The run ends after the model was loaded and all was cached: AttributeError: 'NoneType' object "
            "has no attribute 'startswith'.",
            evidence=evidence,
            severity="warning" if toml else None,
        )
    elif expected not in (None, module) and (module in _KOHYAS or meant(module, sorted(_KOHYAS))[0]):
        message = "{module} builds a LoRA for another model; for this one it is {new}."
        if module not in _KOHYAS:
            message = "{module} does not exist; for this model it is {new}."
        yield found(where, message, otherwise=_ENDS_LATE, evidence=evidence, module=module)


@rule("KOH016", "error", "script-of-another-model", trainers=("sd-scripts",))
@prevents("KeyError", r"time_embed\.0\.weight")
@prevents("RuntimeError", r"size mismatch for conv_in\.weight: .*\[320, 9, 3, 3\]")
@prevents("ValueError", r"max\(\) arg is an empty sequence|max\(\) iterable argument is empty")
def script_of_another_model(run: Run, model: ModelFolder) -> Iterator[Finding]:
    """The script trains another model than the file holds.

    What: The tensors of the base model's file are those of another model than the script trains, by their names:
    Flux, SDXL, Stable Diffusion 1.5, 2 or 3.5, Lumina 2, Anima, Z-Image. Or it is a model of Stable Diffusion 1 with
    v2, one of 2 without it, or one for inpainting without train_inpainting. In the GUI, the box of the model is not
    ticked, or that of another one is.
    Why: The script looks for the parts of its own model in the file.
    Repair: The script that is named, with the network module of that model; in the GUI, tick its box. A file of
    Stable Diffusion 2 needs v2, one of 1.5 must not have it. sd-scripts has no script for Z-Image; musubi-tuner has.
    Upstream: https://github.com/bmaltais/kohya_ss/issues/2701, https://github.com/bmaltais/kohya_ss/issues/2997
    Signature: KeyError: 'time_embed.0.weight'
    """
    first = next(iter(model.components.values()), None)
    if model.layout != "part-files" or first is None or not trains(run):
        raise NotApplicable
    held = model_in(first.tensors)
    script = script_for(run, held)
    if why := misses_the_script(run, first.tensors):
        channels = channels_of(first.tensors)
        otherwise = "The run ends while the model is loaded, or at its first step."
        args: dict[str, Any] = {"path": run.recipe.base_model, "trainer": run.trainer, "channels": channels}
        yield found(run.where("base_model"), why, otherwise=otherwise, evidence={"held": held}, **args)
    if not script:
        return
    yield found(
        run.where("base_model"),
        "{path} is {held}; {script}.py trains another model, {other}.py trains this one."
        if script != NO_SCRIPT
        else "{path} is {held}; {trainer} has no script for that model, musubi-tuner has.",
        otherwise="The run ends while the model is loaded.",
        evidence={"held": held},
        path=run.recipe.base_model,
        script=run.process_type,
        other=script,
        trainer=run.trainer,
    )
