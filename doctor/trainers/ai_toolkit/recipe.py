"""What ai-toolkit trains by its settings, with its own defaults and aliases (commit 27a03a91)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import Any

from ...configs.written import Setting, Written, fields_of
from ...families import family_of
from ...model.field_names import with_fields
from ...model.objective import ConceptSlider, GuidanceTarget, OutputPreservation
from ...model.recipe import Recipe
from .datasets import KEYS_OF_DATASET, dataset_of
from .network import PLUS, network_of, network_type
from .samples import samples_of

# Each was a switch is_… of its own.
_LEGACY_ARCHITECTURES = {
    "v2": "sd2",
    "v3": "sd3",
    "xl": "sdxl",
    **{name: name for name in ("pixart", "pixart_sigma", "auraflow", "flux", "lumina2", "vega", "ssd")},
}
# The fields that one setting says; `recipe_of` adds what is left.
_FIELDS = {
    "base_model": Setting("model/name_or_path"),
    "extras_model": Setting("model/extras_name_or_path"),
    "adapter": Setting("model/assistant_lora_path"),
    "vae": Setting("model/vae_path"),
    "trigger_word": Setting("trigger_word"),
    "steps": Setting("train/steps", Written.whole, 1000),
    "batch_size": Setting("train/batch_size", Written.whole, 1),
    "max_grad_norm": Setting("train/max_grad_norm", Written.number, 1.0),
    "learning_rate": Setting("train/lr", Written.number, 1e-6),
    "unload_text_encoder": Setting("train/unload_text_encoder", Written.flag),
    "train_text_encoder": Setting("train/train_text_encoder", Written.flag),
    "network_type": Setting("network/type", network_type, "lora"),
    "network.dropout": Setting("network/dropout", Written.number),
    "network.lokr_full_rank": Setting("network/lokr_full_rank", Written.flag, True),
    "network.initial_weights": Setting("network/pretrained_lora_path", Written.text),
    "optimizer_settings": Setting("train/optimizer_params", Written.mapping),
    "scheduler": Setting("train/lr_scheduler", Written.text, "constant"),
    "scheduler_settings": Setting("train/lr_scheduler_params", Written.mapping),
    "timestep_type": Setting("train/timestep_type", Written.text, "sigmoid"),
    "content_or_style": Setting("train/content_or_style", Written.text, "balanced"),
    "noise_scheduler": Setting("train/noise_scheduler", Written.text, "ddpm"),
    "timestep_sampling.first": Setting("train/min_denoising_steps", Written.whole),
    "timestep_sampling.bell": Setting("train/linear_timesteps", Written.flag),
    "timestep_sampling.half_bell": Setting("train/linear_timesteps2", Written.flag),
    "loss_type": Setting("train/loss_type", Written.text, "mse"),
    "loss.regularisation_weight": Setting("train/reg_weight", Written.number, 1.0),
    "loss.embedded_guidance": Setting("train/cfg_scale", Written.number, 1.0),
    "loss.min_snr_gamma": Setting("train/min_snr_gamma", Written.number),
    "loss.snr_gamma": Setting("train/snr_gamma", Written.number),
    "loss.noise_offset": Setting("train/noise_offset", Written.number),
    "use_ema": Setting("train/ema_config/use_ema", Written.flag),
    "ema_decay": Setting("train/ema_config/ema_decay", Written.number, 0.999),
    "dtype": Setting("train/dtype", Written.text, "fp32"),
    "gradient_checkpointing": Setting("train/gradient_checkpointing", Written.flag, True),
    "offload.interval": Setting("train/gradient_checkpointing_interval", Written.whole, 1),
    "save_every": Setting("save/save_every", Written.whole, 1000),
    "save_dtype": Setting("save/dtype", Written.text, "float16"),
    "checkpoints.push_private": Setting("save/hf_private", Written.flag),
    "keep_saves": Setting("save/max_step_saves_to_keep", Written.whole, 5),
    "disable_sampling": Setting("train/disable_sampling", Written.flag),
    "skip_first_sample": Setting("train/skip_first_sample", Written.flag),
    "sample_every": Setting("sample/sample_every", Written.whole, 100),
    "validation.first_step": Setting("sample/sample_start_step", Written.whole),
    "logging.wandb": Setting("logging/use_wandb", Written.flag),
    "logging.report_to": Setting("logging/report_to", Written.names),
}
_KEYS = {
    **{name: setting.key for name, setting in _FIELDS.items()},
    **{name: name for name in ("name", "device", "datasets")},
    **dict.fromkeys(("architecture", "variant"), "model/arch"),
    "process_type": "type",
    "output_folder": "training_folder",
    "quantization": "model/qtype",
    "text_encoder_quantization": "model/qtype_te",
    "rank": "network/linear",
    "alpha": "network/linear_alpha",
    "gradient_accumulation": "train/gradient_accumulation",
    "optimizer": "train/optimizer",
    "cache_text_embeddings": "train/cache_text_embeddings",
    "seed": "training_seed",
    "samples": "sample/samples",
    "checkpoints.push_to_hub": "save/push_to_hub",
    "loss.max_loss": "train/max_loss",
    "offload.share": "model/layer_offloading",
    "precision.quantize": "model/quantize",
    "precision.quantize_text_encoder": "model/quantize_te",
    "offload.low_vram": "model/low_vram",
    "offload.compile": "model/compile",
    "validation.prompt_width": "sample/width",
    "validation.prompt_height": "sample/height",
    "validation.guidance": "sample/guidance_scale",
    "validation.steps": "sample/sample_steps",
    "recovery_adapter": "model/accuracy_recovery_adapter",
    "validation_config": "train/validation_config",
}
# Where single components come from: a setting, the component, and the architectures that look at it.
_SOURCES = (
    ("model/vae_path", "vae", ("flux2", "flux2_klein_4b", "flux2_klein_9b", "sdxl", "sd15", "sd1")),
    ("model/te_name_or_path", "text_encoder", ("lumina2", "ltx2")),
    ("model/model_kwargs/checkpoint_filename", "transformer", ("krea2",)),
    ("model/model_kwargs/text_encoder_path", "text_encoder", ("krea2", "ideogram4")),
    ("model/model_kwargs/text_encoder_path", "mllm", ("boogu_image", "boogu_image_edit")),
    ("model/model_kwargs/vae_path", "vae", ("krea2",)),
    ("model/model_kwargs/llama_model_path", "text_encoder_4", ("hidream", "hidream_e1")),
)
# The process that trains a concept slider.
SLIDER = "concept_slider"
# The two kinds of output preservation.
CLASS, BLANK = "diff_output_preservation", "blank_prompt_preservation"


def keys_of(w: Written) -> dict[str, str]:
    """The settings key of each field, of several the one that counts."""
    keys = dict(_KEYS)
    if w.has("network/rank"):
        keys["rank"] = "network/rank"
    if not w.has("network/linear_alpha") and w.has("network/alpha"):
        keys["alpha"] = "network/alpha"
    apart = "train/gradient_accumulation_steps"
    if w.whole("train/gradient_accumulation", default=1) <= 1 and w.has(apart):
        keys["gradient_accumulation"] = apart
    if w.count("sample/samples") is None and w.has("sample/prompts"):
        keys["samples"] = "sample/prompts"
    for number in range(w.count("datasets") or 0):
        at = f"datasets/{number}"
        keys |= {f"{at}/{name}": f"{at}/{key}" for name, key in KEYS_OF_DATASET.items()}
    return keys


def recipe_of(w: Written, keys: Mapping[str, str]) -> Recipe:
    """The recipe of one process by its settings; `keys` are those of `keys_of`."""
    architecture, variant = _architecture(w)
    own_way = family_of(architecture).ai_toolkit
    datasets = tuple(dataset_of(w, number, own_way.bucket_step) for number in range(w.count("datasets") or 0))
    own: dict[str, Any] = {
        "architecture": architecture,
        "variant": variant,
        "sources": _sources(w, architecture),
        "datasets": datasets,
        "latent_mean": own_way.mode,
        "controls_match": w.raw("model/model_kwargs/match_target_res") is True,
        "gradient_accumulation": w.whole(keys["gradient_accumulation"], default=1),
        "cache_text_embeddings": w.flag("train/cache_text_embeddings")
        or any(w.flag(f"{dataset.key}/cache_text_embeddings") for dataset in datasets),
        "seed": w.whole("training_seed") if w.has("training_seed") else None,
        "optimizer": _optimizer(w.text("train/optimizer", default="adamw")),
        "checkpoints.push_to": w.text("save/hf_repo_id") if w.flag("save/push_to_hub") else "",
        "loss.prediction": "v_prediction" * (own_way.kohya and w.flag("model/is_v_pred")),
        "timestep_sampling.last": min(w.whole("train/max_denoising_steps", default=999), 999),
    }
    if w.flag("train/train_text_encoder"):  # at the rate of all else
        own["network.text_rates"] = {part: w.number("train/lr", default=1e-6) for part in own_way.trained_text}
        own["network.text_plus_ratio"] = w.number(f"network/network_kwargs/{PLUS}", default=1.0)
    parts = (network_of(w, own_way.kohya), _precision(w), _loss(w), _offload(w), _validation(w), _logging(w))
    return with_fields(Recipe(), reduce(or_, parts, fields_of(w, _FIELDS) | own))


def _sources(w: Written, architecture: str | None) -> dict[str, str]:
    looked_at = ((key, component) for key, component, by in _SOURCES if architecture in by)
    return {component: written for key, component in looked_at if (written := w.text(key))}


def _optimizer(name: str) -> str:
    """In any case; zdoctor's runner also takes a class of a package as module.Class, by its exact name.

    prodigyopt is what ai-toolkit's own form calls Prodigy.
    """
    return name if "." in name else {"prodigyopt": "prodigy"}.get(name.lower(), name.lower())


def _precision(w: Written) -> dict[str, Any]:
    quantize = w.flag("model/quantize")
    of_text = w.text("model/qtype_te", default="qfloat8") if w.flag("model/quantize_te", default=quantize) else None
    return {
        "quantization": w.text("model/qtype", default="qfloat8").partition("|")[0] if quantize else None,
        "text_encoder_quantization": of_text,
    }


def _loss(w: Written) -> dict[str, Any]:
    most = w.raw("train/max_loss")
    apart = w.number("train/differential_guidance_scale", default=3.0)
    background = w.number("train/inverted_mask_prior_multiplier", default=0.5)
    return {
        "loss.max_loss": most if type(most) in (int, float) else None,
        "loss.guidance": _guidance(w),
        "loss.differential_guidance": apart if w.flag("train/do_differential_guidance") else None,
        "loss.preservation": _preservation(w),
        **({"loss.slider": _slider(w), "loss.embedded_guidance": 1.0} if w.text("type") == SLIDER else {}),
        "loss.background_weight": background if w.flag("train/inverted_mask_prior") else None,
    }


def _guidance(w: Written) -> GuidanceTarget | None:
    if not w.flag("train/do_guidance_loss"):
        return None
    target = w.raw("train/guidance_loss_target")
    ends = [end for end in (target if isinstance(target, list) else [target]) if type(end) in (int, float)] or [3.0]
    return GuidanceTarget(
        low=float(ends[0]),
        high=float(ends[-1]),
        prompt=str(w.raw("train/unconditional_prompt") or ""),
        zero=w.flag("train/do_guidance_loss_cfg_zero"),
        fading=w.raw("train/guidance_loss_schedule") == "sigma",
    )


def _slider(w: Written) -> ConceptSlider:
    own = w.below("slider")
    return ConceptSlider(
        positive=own.text("positive_prompt"),
        negative=own.text("negative_prompt"),
        target=own.text("target_class"),
        anchor=own.text("anchor_class") if own.has("anchor_class") else None,
        strength=own.number("guidance_strength", default=3.0),
        anchor_strength=own.number("anchor_strength", default=1.0),
    )


def _preservation(w: Written) -> OutputPreservation | None:
    for name in (CLASS, BLANK):
        if w.flag(f"train/{name}"):
            word = str(w.raw(f"train/{name}_class") or "") if name == CLASS else None
            return OutputPreservation(word, w.number(f"train/{name}_multiplier", default=1.0))
    return None


def _offload(w: Written) -> dict[str, Any]:
    share = w.raw("model/layer_offloading_transformer_percent")
    share = min(1.0, max(0.0, float(share))) if isinstance(share, int | float) else 1.0
    return {
        "offload.share": share if w.flag("model/layer_offloading") else None,
        "offload.low_vram": w.raw("model/low_vram") is True,
        "offload.compile": w.flag("model/compile") or w.flag("model/block_compile"),
    }


def _validation(w: Written) -> dict[str, Any]:
    prompts, written = samples_of(w), w.raw("sample/prompts")
    flagged = written is not None and (not isinstance(written, list) or any("--" in str(one) for one in written))
    size = (w.raw("sample/width") or 512, w.raw("sample/height") or 512)
    one_size = not flagged and all((prompt.width, prompt.height) == size for prompt in prompts)
    return {"samples": prompts, "validation.one_size": one_size}


def _logging(w: Written) -> dict[str, Any]:
    return {
        "logging.project": str(w.raw("logging/project_name") or "ai-toolkit"),
        "logging.run_name": str(w.raw("logging/run_name") or ""),
        "logging.every": w.whole("logging/log_every", default=100) or 100,
    }


def _architecture(w: Written) -> tuple[str, str | None]:
    written = w.maybe("model/arch")
    if written is None:
        legacy = (name for switch, name in _LEGACY_ARCHITECTURES.items() if w.flag(f"model/is_{switch}"))
        return next(legacy, "sd1"), None
    name, _, variant = written.partition(":")
    return ("flux" if name == "flex1" else name), variant or None
