"""What ai-toolkit trains by its settings, with its own defaults and aliases (commit 27a03a91)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...configs.written import Written
from ...model.recipe import (
    Checkpoints,
    Dataset,
    Ema,
    GuidanceTarget,
    Logging,
    Loss,
    LrScheduler,
    Network,
    Offload,
    Optimizer,
    OutputPreservation,
    Precision,
    Recipe,
    SamplePrompt,
    TimestepSampling,
    Validation,
)
from ...model.record import replace

_LEGACY_ARCHITECTURES = (
    ("is_v2", "sd2"),
    ("is_v3", "sd3"),
    ("is_xl", "sdxl"),
    ("is_pixart", "pixart"),
    ("is_pixart_sigma", "pixart_sigma"),
    ("is_auraflow", "auraflow"),
    ("is_flux", "flux"),
    ("is_lumina2", "lumina2"),
    ("is_vega", "vega"),
    ("is_ssd", "ssd"),
)
# Flags within a prompt: the field of a SamplePrompt that each sets, and its type.
_FLAGS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    **dict.fromkeys(("d", "seed"), ("seed", int)),
    **dict.fromkeys(("l", "cfg"), ("guidance", float)),
    **dict.fromkeys(("s", "steps"), ("steps", int)),
    "w": ("width", int),
    "h": ("height", int),
    "n": ("negative", str),
    "ctrl_img": ("control", str),
}
_KEYS = {
    "process_type": "type",
    "name": "name",
    "architecture": "model/arch",
    "variant": "model/arch",
    "device": "device",
    "base_model": "model/name_or_path",
    "extras_model": "model/extras_name_or_path",
    "adapter": "model/assistant_lora_path",
    "output_folder": "training_folder",
    "datasets": "datasets",
    "trigger_word": "trigger_word",
    "dtype": "train/dtype",
    "quantization": "model/qtype",
    "text_encoder_quantization": "model/qtype_te",
    "rank": "network/linear",
    "alpha": "network/linear_alpha",
    "network_type": "network/type",
    "steps": "train/steps",
    "batch_size": "train/batch_size",
    "gradient_accumulation": "train/gradient_accumulation",
    "gradient_checkpointing": "train/gradient_checkpointing",
    "max_grad_norm": "train/max_grad_norm",
    "learning_rate": "train/lr",
    "optimizer": "train/optimizer",
    "optimizer_settings": "train/optimizer_params",
    "scheduler": "train/lr_scheduler",
    "scheduler_settings": "train/lr_scheduler_params",
    "noise_scheduler": "train/noise_scheduler",
    "timestep_type": "train/timestep_type",
    "content_or_style": "train/content_or_style",
    "loss_type": "train/loss_type",
    "use_ema": "train/ema_config/use_ema",
    "ema_decay": "train/ema_config/ema_decay",
    "cache_text_embeddings": "train/cache_text_embeddings",
    "seed": "training_seed",
    "save_every": "save/save_every",
    "save_dtype": "save/dtype",
    "keep_saves": "save/max_step_saves_to_keep",
    "disable_sampling": "train/disable_sampling",
    "skip_first_sample": "train/skip_first_sample",
    "sample_every": "sample/sample_every",
    "samples": "sample/samples",
    "vae": "model/vae_path",
    "unload_text_encoder": "train/unload_text_encoder",
    "network.dropout": "network/dropout",
    "network.initial_weights": "network/pretrained_lora_path",
    "checkpoints.push_to_hub": "save/push_to_hub",
    "loss.max_loss": "train/max_loss",
    "offload.interval": "train/gradient_checkpointing_interval",
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
    "logging.wandb": "logging/use_wandb",
    "logging.report_to": "logging/report_to",
    "validation_config": "train/validation_config",
}
# Of each dataset.
_KEYS_OF_DATASET = {
    "resolutions": "resolution",
    "caption_dropout": "caption_dropout_rate",
    "mask_folder": "mask_path",
    "control_folders": "control_path",
}
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
        keys |= {f"{at}/{name}": f"{at}/{key}" for name, key in _KEYS_OF_DATASET.items()}
    return keys


def recipe_of(w: Written, keys: Mapping[str, str]) -> Recipe:
    """The recipe of one process by its settings; `keys` are those of `keys_of`."""
    architecture, variant = _architecture(w)
    datasets = tuple(dataset_of(w, number) for number in range(w.count("datasets") or 0))
    return Recipe(
        architecture=architecture,
        variant=variant,
        base_model=w.maybe("model/name_or_path"),
        extras_model=w.maybe("model/extras_name_or_path"),
        adapter=w.maybe("model/assistant_lora_path"),
        vae=w.maybe("model/vae_path"),
        datasets=datasets,
        trigger_word=w.maybe("trigger_word"),
        steps=w.whole("train/steps", default=1000),
        batch_size=w.whole("train/batch_size", default=1),
        gradient_accumulation=w.whole(keys["gradient_accumulation"], default=1),
        max_grad_norm=w.number("train/max_grad_norm", default=1.0),
        learning_rate=w.number("train/lr", default=1e-6),
        cache_text_embeddings=w.flag("train/cache_text_embeddings")
        or any(w.flag(f"{dataset.key}/cache_text_embeddings") for dataset in datasets),
        unload_text_encoder=w.flag("train/unload_text_encoder"),
        train_text_encoder=w.flag("train/train_text_encoder"),
        seed=w.whole("training_seed") if w.has("training_seed") else None,
        network=_network(w, keys),
        optimizer=Optimizer(w.text("train/optimizer", default="adamw").lower(), w.mapping("train/optimizer_params")),
        lr_scheduler=LrScheduler(
            w.text("train/lr_scheduler", default="constant"), w.mapping("train/lr_scheduler_params")
        ),
        timestep_sampling=_timestep_sampling(w),
        loss=_loss(w),
        ema=Ema(use=w.flag("train/ema_config/use_ema"), decay=w.number("train/ema_config/ema_decay", default=0.999)),
        precision=_precision(w),
        offload=_offload(w),
        checkpoints=Checkpoints(
            every=w.whole("save/save_every", default=1000),
            dtype=w.text("save/dtype", default="float16"),
            keep=w.whole("save/max_step_saves_to_keep", default=5),
        ),
        validation=_validation(w),
        logging=_logging(w),
    )


def _network(w: Written, keys: Mapping[str, str]) -> Network:
    factor = w.raw("network/lokr_factor")
    kwargs = w.raw("network/network_kwargs")
    inside = kwargs.items() if isinstance(kwargs, dict) else ()
    return Network(
        type=w.text("network/type", default="lora"),
        rank=w.whole(keys["rank"], default=4),
        alpha=w.number("network/linear_alpha", default=w.number("network/alpha", default=1.0)),
        dropout=w.number("network/dropout"),
        # the empty list of ai-toolkit's interface chooses nothing
        narrowed=any(value or name != "ignore_if_contains" for name, value in inside if value is not None)
        or (not isinstance(kwargs, dict) and bool(kwargs)),
        lokr_full_rank=w.flag("network/lokr_full_rank", default=True),
        lokr_factor=factor if type(factor) is int and factor > 0 else -1,
        initial_weights=w.text("network/pretrained_lora_path"),
    )


def _precision(w: Written) -> Precision:
    quantize = w.flag("model/quantize")
    of_text = w.text("model/qtype_te", default="qfloat8") if w.flag("model/quantize_te", default=quantize) else None
    return Precision(
        dtype=w.text("train/dtype", default="fp32"),
        quantization=w.text("model/qtype", default="qfloat8").partition("|")[0] if quantize else None,
        text_encoder_quantization=of_text,
    )


def _timestep_sampling(w: Written) -> TimestepSampling:
    return TimestepSampling(
        type=w.text("train/timestep_type", default="sigmoid"),
        content_or_style=w.text("train/content_or_style", default="balanced"),
        noise_scheduler=w.text("train/noise_scheduler", default="ddpm"),
        first=w.whole("train/min_denoising_steps"),
        last=min(w.whole("train/max_denoising_steps", default=999), 999),
        bell=w.flag("train/linear_timesteps"),
        half_bell=w.flag("train/linear_timesteps2"),
    )


def _loss(w: Written) -> Loss:
    most = w.raw("train/max_loss")
    apart = w.flag("train/do_differential_guidance")
    return Loss(
        type=w.text("train/loss_type", default="mse"),
        max_loss=most if type(most) in (int, float) else None,
        regularisation_weight=w.number("train/reg_weight", default=1.0),
        embedded_guidance=w.number("train/cfg_scale", default=1.0),
        guidance=_guidance(w),
        differential_guidance=w.number("train/differential_guidance_scale", default=3.0) if apart else None,
        preservation=_preservation(w),
        background_weight=w.number("train/inverted_mask_prior_multiplier", default=0.5)
        if w.flag("train/inverted_mask_prior")
        else None,
    )


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


def _preservation(w: Written) -> OutputPreservation | None:
    for name in (CLASS, BLANK):
        if w.flag(f"train/{name}"):
            word = str(w.raw(f"train/{name}_class") or "") if name == CLASS else None
            return OutputPreservation(word, w.number(f"train/{name}_multiplier", default=1.0))
    return None


def _offload(w: Written) -> Offload:
    share = w.raw("model/layer_offloading_transformer_percent")
    share = min(1.0, max(0.0, float(share))) if isinstance(share, int | float) else 1.0
    return Offload(
        gradient_checkpointing=w.flag("train/gradient_checkpointing", default=True),
        interval=w.whole("train/gradient_checkpointing_interval", default=1),
        share=share if w.flag("model/layer_offloading") else None,
        low_vram=w.raw("model/low_vram") is True,
        compile=w.flag("model/compile") or w.flag("model/block_compile"),
    )


def _validation(w: Written) -> Validation:
    prompts, written = _samples(w), w.raw("sample/prompts")
    flagged = written is not None and (not isinstance(written, list) or any("--" in str(one) for one in written))
    size = (w.raw("sample/width") or 512, w.raw("sample/height") or 512)
    return Validation(
        disabled=w.flag("train/disable_sampling"),
        skip_first=w.flag("train/skip_first_sample"),
        every=w.whole("sample/sample_every", default=100),
        prompts=prompts,
        first_step=w.whole("sample/sample_start_step"),
        one_size=not flagged and all((prompt.width, prompt.height) == size for prompt in prompts),
    )


def _logging(w: Written) -> Logging:
    named = w.raw("logging/report_to") or ""
    return Logging(
        wandb=w.flag("logging/use_wandb"),
        report_to=tuple(str(part).strip() for part in (named if isinstance(named, list) else str(named).split(","))),
        project=str(w.raw("logging/project_name") or "ai-toolkit"),
        run_name=str(w.raw("logging/run_name") or ""),
        every=w.whole("logging/log_every", default=100) or 100,
    )


def _architecture(w: Written) -> tuple[str, str | None]:
    written = w.maybe("model/arch")
    if written is None:
        legacy = (name for flag, name in _LEGACY_ARCHITECTURES if w.flag(f"model/{flag}"))
        return next(legacy, "sd1"), None
    name, _, variant = written.partition(":")
    return ("flux" if name == "flex1" else name), variant or None


def dataset_of(w: Written, number: int) -> Dataset:
    key = f"datasets/{number}"
    written = w.raw(f"{key}/resolution")
    sizes = written if isinstance(written, list) else [written]
    resolutions = tuple(int(s) for s in sizes if isinstance(s, int) and not isinstance(s, bool)) or (512,)
    extension = w.text(f"{key}/caption_ext", default=".txt")
    extension = extension if extension.startswith(".") else "." + extension
    extension = w.text(f"{key}/caption_type", default=extension)
    controls = w.raw(f"{key}/controls")
    controls = [controls] if isinstance(controls, str) else controls if isinstance(controls, list) else []
    augmented = bool(w.raw(f"{key}/augments")) or bool(w.raw(f"{key}/augmentations"))
    return Dataset(
        key=key,
        folder=w.maybe(f"{key}/dataset_path") or w.maybe(f"{key}/folder_path"),
        caption_extension=extension,
        resolutions=resolutions,
        default_caption=w.text(f"{key}/default_caption"),
        caption_dropout=w.number(f"{key}/caption_dropout_rate"),
        repeats=w.whole(f"{key}/num_repeats", default=1),
        # the trainer turns latent caching off when images are augmented
        cache_latents_to_disk=w.flag(f"{key}/cache_latents_to_disk") and not augmented,
        cache_latents=w.flag(f"{key}/cache_latents") and not augmented,
        flip_x=w.flag(f"{key}/flip_x"),
        flip_y=w.flag(f"{key}/flip_y"),
        controls=tuple(c for c in controls if isinstance(c, str) and c.strip()),
        control_folders=_control_folders(w, key),
        is_regularisation=w.flag(f"{key}/is_reg"),
        square_crop=w.flag(f"{key}/square_crop"),
        random_crop=w.flag(f"{key}/random_crop"),
        alpha_mask=w.flag(f"{key}/alpha_mask"),
        mask_folder=w.maybe(f"{key}/mask_path"),
        invert_mask=w.flag(f"{key}/invert_mask"),
        mask_min_value=w.number(f"{key}/mask_min_value"),
        trigger_word=w.maybe(f"{key}/trigger_word"),
        loss_multiplier=w.number(f"{key}/loss_multiplier", default=1.0),
        prior_reg=w.flag(f"{key}/prior_reg"),
        varied_captions=w.raw(f"{key}/shuffle_tokens") is True or w.raw(f"{key}/token_dropout_rate") is not None,
    )


def _control_folders(w: Written, key: str) -> tuple[str, ...]:
    """What is edited, by the names of the pictures; the numbered keys count before the plain one."""
    numbered = [folder for n in (1, 2, 3) if (folder := w.maybe(f"{key}/control_path_{n}"))]
    plain = w.raw(f"{key}/control_path")
    folders = numbered or (plain if isinstance(plain, list) else [plain])
    return tuple(folder for folder in folders if isinstance(folder, str) and folder)


def _samples(w: Written) -> tuple[SamplePrompt, ...]:
    made: list[SamplePrompt] = []
    listed, prompts = w.count("sample/samples"), w.entries("sample/prompts")
    base, walks = w.whole("sample/seed"), w.flag("sample/walk_seed")
    for number in range(len(prompts) if listed is None else listed):
        at = "sample/-" if listed is None else f"sample/samples/{number}"
        prompt = prompts[number] if listed is None else w.raw(f"{at}/prompt")
        if not isinstance(prompt, str):
            continue
        walked = base + number if walks else base
        made.append(
            SamplePrompt(
                prompt=prompt,
                width=w.whole(f"{at}/width", default=w.whole("sample/width", default=512)),
                height=w.whole(f"{at}/height", default=w.whole("sample/height", default=512)),
                seed=w.whole(f"{at}/seed", default=walked),
                steps=w.whole(f"{at}/sample_steps", default=w.whole("sample/sample_steps", default=20)),
                guidance=w.number(f"{at}/guidance_scale", default=w.number("sample/guidance_scale", default=7.0)),
                negative=w.text(f"{at}/neg", default=w.text("sample/neg")),
                control=w.maybe(f"{at}/ctrl_img"),
            )
        )
    return tuple(map(_with_flags, made))


def _with_flags(sample: SamplePrompt) -> SamplePrompt:
    """What the prompt says of itself (`a hat --w 512 --ctrl_img a.png`); a flag that is not known is cut off."""
    text, *flags = sample.prompt.split("--")
    changed: dict[str, Any] = {"prompt": text.strip()}
    for flag in flags:
        name, _, content = flag.partition(" ")
        field, kind = _FLAGS.get(name.strip(), ("", str))
        try:
            changed |= {field: kind(content.strip())} if field else {}
        except ValueError:
            continue  # the trainer stops on it when it samples
    return replace(sample, **changed)
