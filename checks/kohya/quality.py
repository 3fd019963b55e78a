"""Settings of kohya's trainers that run and are seldom what was meant."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...doctor.families import family_of
from ...doctor.model import Config, Finding, ModelFolder, Run, found
from ...doctor.rules import NotApplicable, prevents, rule
from ..training import UNDISTILLED
from . import TRAINERS, left_to_the_command_line, number, on, trains

_GUIDED = ("guidance_in.in_layer.bias", "time_text_embed.guidance_embedder.linear_1.bias")
# option, the parser's default, what the documentation asks for, and what the default does
_CLEAN = "The loss compares a clean picture with a direction: that of a perfect model is not 0."
_FIXED = "Noise levels are drawn with one fixed shift, whatever the size of the pictures."
_DEFAULTS = (
    ("guidance_scale", "3.5", "1.0", "The LoRA learns the pictures as the model makes them at guidance 3.5."),
    ("model_prediction_type", "sigma_scaled", "raw", _CLEAN),
    ("timestep_sampling", "sigma", "flux_shift", _FIXED),
)


@rule("KOH007", "warning", "flux-defaults", trainers=("sd-scripts",))
def flux_defaults(config: Config, run: Run, model: ModelFolder) -> Iterator[Finding]:
    """Flux trained with the parser's defaults.

    What: guidance_scale, model_prediction_type or timestep_sampling is left out for FLUX.1-dev in sd-scripts.
    Why: The defaults are 3.5, sigma_scaled and sigma. The trainer's own documentation asks for 1.0, raw and
    flux_shift (or sigmoid). With guidance 3.5 the LoRA learns the pictures as the model would make them at that
    guidance. sigma_scaled turns the prediction into a clean picture and then compares it with noise minus picture,
    as raw does: the loss of a perfect model is not 0.
    Repair: --guidance_scale 1.0 --model_prediction_type raw --timestep_sampling flux_shift
    Upstream: sd-scripts docs/flux_train_network.md, library/flux_train_utils.py (48d368fa)
    Signature: None; the LoRA is weak, or its pictures are washed out.
    """
    if run.recipe.architecture != "flux" or not trains(run) or config.format == "toml":
        raise NotApplicable  # a command line may give them
    part = model.components.get("transformer")
    schnell = part is not None and bool(part.tensors) and not any(name.endswith(_GUIDED) for name in part.tensors)
    for key, default, better, effect in _DEFAULTS:
        if run.setting(key) is None and not (schnell and key == "guidance_scale"):
            yield found(
                run.where(key),
                "{key} is left out; its default is {default}, and the trainer's documentation asks for {new}.",
                otherwise=effect,
                evidence={"key": key, "new": better, "pointer": run.pointer(key)},
                default=default,
            )


@rule("KOH008", "note", "eight-bit-file-made-larger", trainers=("sd-scripts",))
def eight_bit_file_made_larger(run: Run, model: ModelFolder) -> Iterator[Finding]:
    """An 8-bit transformer that is loaded in 16 bits.

    What: The file holds float8 weights, and neither fp8_base nor fp8_base_unet is set.
    Why: sd-scripts then turns every weight into the run's dtype: 23 GB for Flux, at the quality of 8 bits. It works.
    fp8_base is a matter of memory; a file that lacks tensors fails with it and without it (MDL001).
    Repair: fp8_base_unet keeps the transformer as it is, fp8_base the text encoders too.
    Upstream: sd-scripts flux_train_network.py load_target_model (48d368fa)
    Signature: None; twice the memory.
    """
    recipe = run.recipe
    part = model.components.get("transformer")
    if part is None or recipe.precision.quantization is not None or recipe.architecture != "flux" or not trains(run):
        raise NotApplicable
    wide = [tensor for tensor in part.tensors.values() if len(tensor.shape) == 2]
    eight = [tensor for tensor in wide if tensor.dtype.startswith("F8_")]
    if not eight or 2 * len(eight) < len(wide):
        return
    size = sum(tensor.shape[0] * tensor.shape[1] for tensor in wide) * (4 if recipe.precision.dtype == "fp32" else 2)
    yield found(
        run.where("base_model"),
        "The transformer is stored in 8 bits, and without fp8_base it is loaded in {bits} bits: {size:.0f} GB "
        "(computed from its header).",
        otherwise="It works, with more memory and no more precision.",
        evidence={"size": size},
        bits=32 if recipe.precision.dtype == "fp32" else 16,
        size=size / 1e9,
    )


@rule("KOH009", "warning", "turbo-trained-as-it-is", trainers=("musubi-tuner",))
def turbo_trained_as_it_is(run: Run) -> Iterator[Finding]:
    """The distilled Z-Image-Turbo trained without its adapter.

    What: The file of --dit is called turbo, and no --base_weights is given.
    Why: Training undoes the distillation. musubi-tuner's documentation asks for the base model, the De-Turbo weights,
    or Turbo with ostris' training adapter merged in by --base_weights.
    Repair: Train Z-Image, or --base_weights zimage_turbo_training_adapter_v2.safetensors
    Upstream: musubi-tuner docs/zimage.md (30c658c4)
    Signature: None; pictures at 8 steps become blurred.
    """
    recipe = run.recipe
    distilled = family_of(recipe.architecture).distilled
    if distilled is None or run.kind != "lora" or recipe.adapter is not None:
        raise NotApplicable
    if distilled.is_meant(recipe.base_model or ""):
        yield found(
            run.where("base_model"),
            "{model} is a distilled model by its name, and it is trained without its adapter (--base_weights).",
            otherwise=UNDISTILLED,
            evidence={"pointer": run.pointer("adapter")},
            model=recipe.base_model,
        )


@rule("KOH010", "warning", "learning-rate-of-the-parser", trainers=TRAINERS)
def learning_rate_of_the_parser(config: Config, run: Run) -> Iterator[Finding]:
    """A LoRA at the learning rate of a full fine-tune.

    What: No learning rate is given for a LoRA. The parser's default is 2e-6.
    Why: It is a rate for all weights of a model; a LoRA learns next to nothing with it. Optimizers that find the rate
    themselves (Prodigy, D-Adaptation) want 1.
    Repair: --learning_rate 1e-4
    Upstream: sd-scripts library/train_util.py add_optimizer_arguments; musubi-tuner training/parser_common.py
    Signature: None; the LoRA changes nothing.
    """
    if run.kind != "lora" or not trains(run) or not run.process_type or config.format == "toml":
        raise NotApplicable  # a command line may give it
    if any(run.setting(key) is not None for key in ("learning_rate", "unet_lr")) or number(run, "text_encoder_lr"):
        return
    yield found(
        run.where("learning_rate"),
        "No learning rate is given, and the parser's default is 2e-6.",
        otherwise="The LoRA learns next to nothing.",
        evidence={"pointer": run.pointer("learning_rate"), "new": "1e-4"},
    )


# as published, with the VAE of the first release; most models made from it hold one that was mended for fp16
_SDXL_AS_PUBLISHED = re.compile(
    r"(.*[/\\])?(stable-diffusion-xl-base-(0\.9|1\.0)|sd_xl_base_(0\.9|1\.0)(_0\.9vae)?\.safetensors)"
)


@rule("KOH021", "warning", "vae-of-sdxl-in-half-precision", trainers=("sd-scripts",))
@prevents("RuntimeError", r"NaN detected in latents")
def vae_of_sdxl_in_half_precision(config: Config, run: Run) -> Iterator[Finding]:
    """The VAE of SDXL in fp16.

    What: mixed_precision fp16 with SDXL as it was published, without no_half_vae and without another vae. Models made
    from it, of which most hold a VAE that was mended for fp16, are not judged.
    Why: Its activations are too large for fp16 in some pictures, and no number comes out. The trainer's documentation
    asks for no_half_vae with fp16; in bf16 it works.
    Repair: no_half_vae, or a vae that is made for fp16, such as sdxl-vae-fp16-fix.
    Upstream: sd-scripts docs/sdxl_train_network.md, library/train_util.py cache_batch_latents (48d368fa)
    Signature: RuntimeError: NaN detected in latents: …
    """
    base = (run.recipe.base_model or "").rstrip("/")
    if run.recipe.architecture != "sdxl" or not trains(run) or not _SDXL_AS_PUBLISHED.fullmatch(base):
        raise NotApplicable
    if left_to_the_command_line(config, run, "no_half_vae") or on(run, "no_half_vae"):
        return
    if run.recipe.precision.dtype == "fp16" and not run.setting("vae"):
        yield found(
            run.where("dtype"),
            "The VAE of {model} gives no numbers for some pictures in fp16: add no_half_vae.",
            otherwise="At such a picture the run ends with RuntimeError: NaN detected in latents.",
            evidence={"key": "no_half_vae"},
            model=base,
        )
