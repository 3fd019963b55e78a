"""kohya's sd-scripts: a command line, its config file, a file of datasets, or the settings of the GUI (48d368fa)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from ...configs.reading import Beside, Reading
from ...model import Config, Dataset, Problem, Run, Value
from ...model.recipe import (
    Checkpoints,
    LrScheduler,
    Network,
    Offload,
    Optimizer,
    Precision,
    Recipe,
    TimestepSampling,
    Validation,
)
from .gui import from_gui, is_gui
from .read import LAUNCH, Made, reading_of, starts_in_script, table_of, with_datasets
from .samples import samples_of
from .starts import Options, Start, datasets_of, flat, homes_of, is_datasets, keys_of

SCRIPT = re.compile(
    r"(?:(?:flux|sdxl|sd3|lumina|hunyuan_image|anima)_)?train(?:_network|_db|_textual_inversion)?|fine_tune"
)
_ARCHITECTURES = {
    "flux": "flux",
    "sdxl": "sdxl",
    "sd3": "sd3",
    "lumina": "lumina2",
    "hunyuan_image": "hunyuan_image",
    "anima": "anima",
}
_KEYS = {
    "architecture": "model_type",
    "base_model": "pretrained_model_name_or_path",
    "output_folder": "output_dir",
    "name": "output_name",
    "datasets": "dataset_config",
    "dtype": "mixed_precision",
    "quantization": "fp8_base",
    "text_encoder_quantization": "fp8_base",
    "rank": "network_dim",
    "alpha": "network_alpha",
    "network_type": "network_module",
    "steps": "max_train_steps",
    "batch_size": "train_batch_size",
    "gradient_accumulation": "gradient_accumulation_steps",
    "optimizer": "optimizer_type",
    "optimizer_settings": "optimizer_args",
    "scheduler": "lr_scheduler",
    "scheduler_settings": "lr_scheduler_args",
    "timestep_type": "timestep_sampling",
    "cache_text_embeddings": "cache_text_encoder_outputs",
    "save_every": "save_every_n_steps",
    "save_dtype": "save_precision",
    "sample_every": "sample_every_n_steps",
    "samples": "sample_prompts",
    "process_type": "network_module",
}
_DTYPES = {"no": "fp32", "float": "fp32"}


def read(config: Config, environment: Mapping[str, str], beside: Beside) -> Reading:
    """One Run for each start of a training script in a shell script; one for any other file."""
    if config.format == "shell":
        found = starts_in_script(config, environment, beside, SCRIPT)
        if isinstance(found, Reading):
            return found
    else:
        table = table_of(config)
        if isinstance(table, Reading):
            return table
        root, config = table
        if is_datasets(root):
            return Reading(config, (_of_datasets(config.path, datasets_of(root, config)),))
        gui = is_gui(root.value)
        script, options = from_gui(config.values) if gui else ("", flat(root, config))
        given = {name: config.values.get(f"/{name}") for name in LAUNCH if gui}
        launch = {name: value.value for name, value in given.items() if value is not None and value.value is not None}
        found = (Start(script, options, launch),)
    return reading_of(config, found, lambda start, index: _run(config.path, start, index, beside))


def _of_datasets(path: str, settings: dict[str, Value]) -> Run:
    datasets = _datasets(Options(settings))
    return Run(
        trainer="sd-scripts",
        config=path,
        root="",
        index=0,
        kind="lora",
        process_type="datasets",
        name="",
        settings={key: value for key, value in settings.items() if key not in ("general", "datasets")},
        keys={"batch_size": "general/batch_size"} | keys_of(datasets, "image_dir"),
        recipe=Recipe(architecture=None, datasets=datasets),
    )


def _run(path: str, start: Start, index: int, beside: Beside) -> Made:
    """The run of one start, and the file of its datasets."""
    options = with_datasets(start, beside)
    if isinstance(options, Problem):
        return options
    settings, described = options
    w = Options(settings)
    script = start.script or _script(w)
    keys = dict(_KEYS)
    if w.raw("fp8_base") is None and w.raw("fp8_base_unet") is not None:
        keys["quantization"] = "fp8_base_unet"
    places = ("datasets/0/batch_size", "general/batch_size")
    keys["batch_size"] = next((place for place in places if place in settings), keys["batch_size"])
    if w.whole(0, "max_train_epochs") > 0:
        keys["steps"] = "max_train_epochs"
    dtype = w.text("no", "mixed_precision")
    fp8 = w.flag("fp8_base") or w.flag("fp8_base_unet")
    datasets = _datasets(w)
    module = w.text("", "network_module")
    settings = {key: value for key, value in settings.items() if key not in ("general", "datasets")}
    made = Run(
        trainer="sd-scripts",
        config=path,
        root="",
        index=index,
        kind=_kind(script),
        process_type=script,
        name=w.text("last", "output_name"),
        output_folder=w.maybe("output_dir"),
        settings=settings,
        keys=keys | keys_of(datasets, "image_dir", cache_latents_to_disk="cache_latents_to_disk"),
        homes=homes_of(described),
        recipe=Recipe(
            architecture=_architecture(script, w),
            base_model=w.maybe("pretrained_model_name_or_path"),
            datasets=datasets,
            steps=w.whole(1600, "max_train_steps"),
            batch_size=w.whole(1, "datasets/0/batch_size", "general/batch_size", "train_batch_size"),
            gradient_accumulation=w.whole(1, "gradient_accumulation_steps"),
            max_grad_norm=w.number(1.0, "max_grad_norm"),
            learning_rate=w.number(2e-6, "unet_lr", "learning_rate"),
            cache_text_embeddings=w.flag("cache_text_encoder_outputs")
            or w.flag("cache_text_encoder_outputs_to_disk"),
            seed=w.whole(0, "seed") if w.raw("seed") is not None else None,
            precision=Precision(
                dtype=_DTYPES.get(dtype, dtype),
                quantization="float8" if fp8 else None,
                text_encoder_quantization="float8" if fp8 and not w.flag("fp8_base_unet") else None,
            ),
            network=Network(
                rank=w.whole(4, "network_dim"), alpha=w.number(1.0, "network_alpha"), type=_network(module, w)
            ),
            offload=Offload(gradient_checkpointing=w.flag("gradient_checkpointing")),
            optimizer=Optimizer(name=w.text("adamw", "optimizer_type").lower(), settings=w.pairs("optimizer_args")),
            lr_scheduler=LrScheduler(name=w.text("constant", "lr_scheduler"), settings=w.pairs("lr_scheduler_args")),
            timestep_sampling=TimestepSampling(
                noise_scheduler="flowmatch" if script.startswith(("flux", "sd3", "lumina", "anima")) else "ddpm",
                type=w.text("sigma", "timestep_sampling"),
            ),
            checkpoints=Checkpoints(every=w.whole(0, "save_every_n_steps"), dtype=w.text("float", "save_precision")),
            validation=Validation(
                disabled=w.raw("sample_prompts") is None,
                every=w.whole(0, "sample_every_n_steps"),
                prompts=samples_of(w.text("", "sample_prompts"), "sd-scripts", _architecture(script, w), beside),
            ),
        ),
    )
    return made, described


def _script(w: Options) -> str:
    """The script that a config file is for, by its options; "" when they do not tell."""
    module = w.text("", "network_module")
    named = re.fullmatch(r"networks\.\w+?_(flux|sd3|lumina|hunyuan_image|anima)", module)
    if named:
        return f"{named.group(1)}_train_network"
    if w.raw("ae") is not None and w.raw("t5xxl") is not None:
        return "flux_train_network" if module else "flux_train"
    return ""


def _kind(script: str) -> Literal["lora", "finetune", "other"]:
    if script.endswith("_inversion"):
        return "other"
    return "lora" if script.endswith("network") or not script else "finetune"


def _architecture(script: str, w: Options) -> str | None:
    if not script:
        return None
    name = next((name for prefix, name in _ARCHITECTURES.items() if script.startswith(prefix)), "sd1")
    return "chroma" if name == "flux" and w.raw("model_type") == "chroma" else name


def _network(module: str, w: Options) -> str:
    if module.startswith("lycoris"):
        return w.pairs("network_args").get("algo", "lora")
    kind = re.fullmatch(r"networks\.(\w+?)(?:_[a-z0-9]+)?", module)
    return kind.group(1) if kind else module or "lora"


def _datasets(w: Options) -> tuple[Dataset, ...]:
    """Every subset; without a file of datasets the folder that holds the numbered ones, which are its subsets."""
    made: list[Dataset] = []
    described = w.raw("datasets")
    if isinstance(described, list):
        for number, dataset in enumerate(described):
            subsets = dataset.get("subsets") if isinstance(dataset, dict) else None
            for inner in range(len(subsets) if isinstance(subsets, list) else 0):
                at = f"datasets/{number}"
                made.append(_dataset(w, f"{at}/subsets/{inner}/", "image_dir", f"{at}/", "general/", ""))
        return tuple(made)
    for key in ("train_data_dir", "reg_data_dir"):
        if w.maybe(key):
            made.append(_dataset(w, "", key))
    return tuple(made)


def _dataset(w: Options, at: str, folder_key: str, *above: str) -> Dataset:
    """`above`: the prefixes below which the trainer looks for what a subset leaves out, nearest first."""
    places = (at, *above) if at else ("",)

    def names(name: str) -> tuple[str, ...]:
        return tuple(f"{place}{name}" for place in places)

    extension = w.text(".caption", *names("caption_extension"))
    extension = w.text(extension, "caption_extention")
    if extension and not extension.startswith("."):  # as DreamBoothSubset does
        extension = f".{extension}"
    to_disk = w.flag("cache_latents_to_disk")
    return Dataset(
        key=at.rstrip("/") or folder_key,
        folder=w.maybe(f"{at}{folder_key}"),
        caption_extension=extension,
        resolutions=_sizes(w.raw(*names("resolution"))),
        default_caption=w.text("", *names("class_tokens")),
        caption_dropout=w.number(0.0, *names("caption_dropout_rate")),
        repeats=w.whole(1, *names("num_repeats"), "dataset_repeats"),
        cache_latents=w.flag("cache_latents") or to_disk,
        cache_latents_to_disk=to_disk,
        flip_x=w.flag(*names("flip_aug")),
        is_regularisation=w.flag(f"{at}is_reg") or folder_key == "reg_data_dir",
    )


def _sizes(value: object) -> tuple[int, ...]:
    """A resolution as it is written: a number, `[width, height]`, or `"width,height"`."""
    parts = value if isinstance(value, list) else re.split(r"[,\s]+", str(value).strip())
    sizes = [int(part) for part in parts if re.fullmatch(r"\d{1,6}", str(part).strip())]
    return tuple(dict.fromkeys(sizes)) or (512,)
