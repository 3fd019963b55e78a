"""ai-toolkit's dialect: a parsed config to Runs, with the trainer's own defaults and aliases (commit 27a03a91)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from ...configs.written import Written
from ...model import Dataset, Run, SamplePrompt, Value
from ...model.recipe import (
    Checkpoints,
    Ema,
    Loss,
    LrScheduler,
    Network,
    Offload,
    Optimizer,
    Precision,
    Recipe,
    TimestepSampling,
    Validation,
)
from ...model.record import replace

JOBS = ("extension", "train", "extract", "generate", "mod")
TRAINERS = ("sd_trainer", "diffusion_trainer", "ui_trainer")
OTHER_TRAINING = (
    "textual_inversion_trainer",
    "concept_slider",
    "image_reference_slider_trainer",
    "ultimate_slider_trainer",
    "concept_replacer",
    "slider",
    "slider_old",
    "vae",
    "lora_hack",
    "rescale_sd",
    "esrgan",
    "reference",
)
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
}


def misspelt(process_type: object) -> str | None:
    """The trainer that was meant by a process type that is none; extensions of one's own stay as they are."""
    if not isinstance(process_type, str) or process_type in TRAINERS + OTHER_TRAINING:
        return None
    from difflib import get_close_matches

    near = get_close_matches(process_type, (*TRAINERS, *OTHER_TRAINING[:5]), 1, 0.85)
    return near[0] if near else None


def runs(path: str, values: Mapping[str, Value]) -> tuple[tuple[Run, ...], str]:
    """The training runs of a parsed config by its values, and why there are none."""
    job = values["/job"].value
    processes = values["/config/process"].value
    made: list[Run] = []
    for index, process in enumerate(processes):
        kind = process["type"]
        known = TRAINERS + OTHER_TRAINING if job in ("extension", "train") else ()
        if kind in known:
            made.append(_run(path, values, index))
    if made:
        return tuple(made), ""
    if job not in ("extension", "train"):
        return (), f"this is an {job} job: nothing is trained" if job == "extract" else f"a {job} job trains nothing"
    return (), f"the process type {processes[0]['type']} trains nothing that zdoctor knows"


def _run(path: str, values: Mapping[str, Value], index: int) -> Run:
    root = f"/config/process/{index}"
    prefix = root + "/"
    settings = {pointer[len(prefix) :]: value for pointer, value in values.items() if pointer.startswith(prefix)}
    w = Written(settings)
    whole = Written(values)
    architecture, variant = _architecture(w)
    keys = dict(_KEYS)
    if w.raw("network/rank") is not None:
        keys["rank"] = "network/rank"
    if w.raw("network/linear_alpha") is None and w.raw("network/alpha") is not None:
        keys["alpha"] = "network/alpha"
    accumulation = w.whole("train/gradient_accumulation", 1)
    if accumulation <= 1 and w.raw("train/gradient_accumulation_steps") is not None:
        keys["gradient_accumulation"] = "train/gradient_accumulation_steps"
        accumulation = w.whole("train/gradient_accumulation_steps", 1)
    if not isinstance(w.raw("sample/samples"), list) and w.raw("sample/prompts") is not None:
        keys["samples"] = "sample/prompts"
    job_name = str(whole.raw("/config/name"))
    name = w.text("name", job_name)
    folder = w.maybe("training_folder")
    if folder is None and whole.raw("/job") == "train":
        folder = whole.maybe("/config/training_folder")
    quantize = w.flag("model/quantize")
    qtype = w.text("model/qtype", "qfloat8").partition("|")[0]
    base = w.maybe("model/name_or_path")
    datasets = tuple(_dataset(w, number) for number in range(len(w.entries("datasets"))))
    return Run(
        trainer="ai-toolkit",
        config=path,
        root=root,
        index=index,
        kind=_kind(w),
        process_type=w.text("type", ""),
        name=name,
        device=w.text("device", "cuda"),
        output_folder=None if folder is None else _joined(folder, name),
        metadata=whole.mapping("/meta"),
        settings=settings,
        keys=keys,
        recipe=Recipe(
            architecture=architecture,
            variant=variant,
            base_model=base,
            extras_model=w.maybe("model/extras_name_or_path"),
            adapter=w.maybe("model/assistant_lora_path"),
            datasets=datasets,
            trigger_word=w.maybe("trigger_word"),
            steps=w.whole("train/steps", 1000),
            batch_size=w.whole("train/batch_size", 1),
            gradient_accumulation=accumulation,
            max_grad_norm=w.number("train/max_grad_norm", 1.0),
            learning_rate=w.number("train/lr", 1e-6),
            cache_text_embeddings=w.flag("train/cache_text_embeddings")
            or any(w.flag(f"{dataset.key}/cache_text_embeddings") for dataset in datasets),
            seed=w.whole("training_seed", 0) if w.raw("training_seed") is not None else None,
            precision=Precision(
                dtype=w.text("train/dtype", "fp32"),
                quantization=qtype if quantize else None,
                text_encoder_quantization=w.text("model/qtype_te", "qfloat8")
                if w.flag("model/quantize_te", quantize)
                else None,
            ),
            network=Network(
                rank=w.whole(keys["rank"], 4),
                alpha=w.number("network/linear_alpha", w.number("network/alpha", 1.0)),
                type=w.text("network/type", "lora"),
            ),
            offload=Offload(gradient_checkpointing=w.flag("train/gradient_checkpointing", True)),
            optimizer=Optimizer(
                name=w.text("train/optimizer", "adamw").lower(), settings=w.mapping("train/optimizer_params")
            ),
            lr_scheduler=LrScheduler(
                name=w.text("train/lr_scheduler", "constant"), settings=w.mapping("train/lr_scheduler_params")
            ),
            timestep_sampling=TimestepSampling(
                noise_scheduler=w.text("train/noise_scheduler", "ddpm"),
                type=w.text("train/timestep_type", "sigmoid"),
                content_or_style=w.text("train/content_or_style", "balanced"),
            ),
            loss=Loss(type=w.text("train/loss_type", "mse")),
            ema=Ema(use=w.flag("train/ema_config/use_ema"), decay=w.number("train/ema_config/ema_decay", 0.999)),
            checkpoints=Checkpoints(
                every=w.whole("save/save_every", 1000),
                dtype=w.text("save/dtype", "float16"),
                keep=w.whole("save/max_step_saves_to_keep", 5),
            ),
            validation=Validation(
                disabled=w.flag("train/disable_sampling"),
                skip_first=w.flag("train/skip_first_sample"),
                every=w.whole("sample/sample_every", 100),
                prompts=_samples(w),
            ),
        ),
    )


def _kind(w: Written) -> Literal["lora", "finetune", "other"]:
    if w.text("type", "") not in TRAINERS:
        return "other"
    if w.raw("network") is not None:
        return "lora"
    if w.raw("embedding") is not None or w.raw("decorator") is not None or w.flag("adapter/train"):
        return "other"
    return "finetune"


def _architecture(w: Written) -> tuple[str, str | None]:
    written = w.maybe("model/arch")
    if written is None:
        legacy = (name for flag, name in _LEGACY_ARCHITECTURES if w.flag(f"model/{flag}"))
        return next(legacy, "sd1"), None
    name, _, variant = written.partition(":")
    return ("flux" if name == "flex1" else name), variant or None


def _joined(folder: str, name: str) -> str:
    return folder + name if folder.endswith(("/", "\\")) else f"{folder}/{name}"


def _dataset(w: Written, number: int) -> Dataset:
    key = f"datasets/{number}"
    written = w.raw(f"{key}/resolution")
    sizes = written if isinstance(written, list) else [written]
    resolutions = tuple(int(s) for s in sizes if isinstance(s, int) and not isinstance(s, bool)) or (512,)
    extension = w.text(f"{key}/caption_ext", ".txt")
    extension = extension if extension.startswith(".") else "." + extension
    extension = w.text(f"{key}/caption_type", extension)
    controls = w.raw(f"{key}/controls")
    controls = [controls] if isinstance(controls, str) else controls if isinstance(controls, list) else []
    augmented = bool(w.raw(f"{key}/augments")) or bool(w.raw(f"{key}/augmentations"))
    return Dataset(
        key=key,
        folder=w.maybe(f"{key}/dataset_path") or w.maybe(f"{key}/folder_path"),
        caption_extension=extension,
        resolutions=resolutions,
        default_caption=w.text(f"{key}/default_caption", ""),
        caption_dropout=w.number(f"{key}/caption_dropout_rate", 0.0),
        repeats=w.whole(f"{key}/num_repeats", 1),
        # the trainer turns latent caching off when images are augmented
        cache_latents_to_disk=w.flag(f"{key}/cache_latents_to_disk") and not augmented,
        cache_latents=w.flag(f"{key}/cache_latents") and not augmented,
        flip_x=w.flag(f"{key}/flip_x"),
        flip_y=w.flag(f"{key}/flip_y"),
        controls=tuple(c for c in controls if isinstance(c, str) and c.strip()),
        control_folders=_control_folders(w, key),
        is_regularisation=w.flag(f"{key}/is_reg"),
    )


def _control_folders(w: Written, key: str) -> tuple[str, ...]:
    """What is edited, by the names of the pictures; the numbered keys count before the plain one."""
    numbered = [folder for n in (1, 2, 3) if (folder := w.maybe(f"{key}/control_path_{n}"))]
    plain = w.raw(f"{key}/control_path")
    folders = numbered or (plain if isinstance(plain, list) else [plain])
    return tuple(folder for folder in folders if isinstance(folder, str) and folder)


def _samples(w: Written) -> tuple[SamplePrompt, ...]:
    made: list[SamplePrompt] = []
    listed = isinstance(w.raw("sample/samples"), list)
    base = w.whole("sample/seed", 0)
    for number, entry in enumerate(w.entries("sample/samples" if listed else "sample/prompts")):
        at = f"sample/samples/{number}" if listed else "sample/-"
        prompt = w.raw(f"{at}/prompt") if listed else entry
        if not isinstance(prompt, str):
            continue
        walked = base + number if w.flag("sample/walk_seed") else base
        made.append(
            SamplePrompt(
                prompt=prompt,
                width=w.whole(f"{at}/width", w.whole("sample/width", 512)),
                height=w.whole(f"{at}/height", w.whole("sample/height", 512)),
                seed=w.whole(f"{at}/seed", walked),
                steps=w.whole(f"{at}/sample_steps", w.whole("sample/sample_steps", 20)),
                guidance=w.number(f"{at}/guidance_scale", w.number("sample/guidance_scale", 7.0)),
                negative=w.text(f"{at}/neg", w.text("sample/neg", "")),
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
