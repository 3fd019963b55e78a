"""kohya's musubi-tuner: a command line, its config file, or a file of datasets (30c658c4)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ...configs.reading import Beside, Reading
from ...model import Config, Dataset, Problem, Run
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
from .read import Made, reading_of, starts_in_script, table_of, with_datasets
from .samples import samples_of
from .starts import Options, Start, datasets_of, flat, homes_of, is_datasets, keys_of

SCRIPT = re.compile(
    r"(flux_2|flux_kontext|fpack|hidream_o1|hv_1_5|hv|ideogram4|kandinsky5|krea2|qwen_image|wan|zimage)_train(_network)?"
)
_ARCHITECTURES = {"flux_2": "flux2", "zimage": "zimage", "fpack": "framepack", "hv": "hunyuan_video"}
_MODULES = {
    "lora_zimage": "zimage",
    "lora_flux": "flux_kontext",
    "lora_flux_2": "flux_2",
    "lora_qwen_image": "qwen_image",
}
_KEYS = {
    "base_model": "dit",
    "adapter": "base_weights",
    "output_folder": "output_dir",
    "name": "output_name",
    "datasets": "dataset_config",
    "dtype": "mixed_precision",
    "quantization": "fp8_base",
    "text_encoder_quantization": "fp8_llm",
    "rank": "network_dim",
    "alpha": "network_alpha",
    "network_type": "network_module",
    "process_type": "network_module",
    "architecture": "network_module",
    "steps": "max_train_steps",
    "batch_size": "datasets/0/batch_size",
    "gradient_accumulation": "gradient_accumulation_steps",
    "optimizer": "optimizer_type",
    "optimizer_settings": "optimizer_args",
    "scheduler": "lr_scheduler",
    "scheduler_settings": "lr_scheduler_args",
    "timestep_type": "timestep_sampling",
    "save_every": "save_every_n_steps",
    "save_dtype": "save_precision",
    "sample_every": "sample_every_n_steps",
    "samples": "sample_prompts",
}


def read(config: Config, environment: Mapping[str, str], beside: Beside) -> Reading:
    """One Run for each start of a training script; the scripts that fill the caches are no runs."""
    if config.format == "shell":
        found = starts_in_script(config, environment, beside, SCRIPT)
        if isinstance(found, Reading):
            return found
    else:
        table = table_of(config)
        if isinstance(table, Reading):
            return table
        root, config = table
        options = datasets_of(root, config) if is_datasets(root) else flat(root, config)
        found = (Start("datasets" if is_datasets(root) else "", options, {}),)
    return reading_of(config, found, lambda start, index: _run(config.path, start, index, beside))


def _run(path: str, start: Start, index: int, beside: Beside) -> Made:
    """The run of one start, and the file of its datasets."""
    options = with_datasets(start, beside)
    if isinstance(options, Problem):
        return options
    settings, described = options
    w = Options(settings)
    script = start.script or _script(w)
    model = re.sub(r"_train(_network)?$", "", script)
    architecture = None if script in ("", "datasets") else _ARCHITECTURES.get(model, model)
    # without an option of its own, the trainer takes what accelerate was started with
    dtype = w.text(str(start.launch.get("mixed_precision", "")), "mixed_precision")
    weights = w.raw("base_weights")
    fp8 = w.flag("fp8_base")
    keys = dict(_KEYS)
    places = ("datasets/0/batch_size", "general/batch_size")
    keys["batch_size"] = next((place for place in places if place in settings), keys["batch_size"])
    if w.whole(0, "max_train_epochs") > 0:
        keys["steps"] = "max_train_epochs"
    datasets = _datasets(w)
    settings = {key: value for key, value in settings.items() if key not in ("general", "datasets")}
    made = Run(
        trainer="musubi-tuner",
        config=path,
        root="",
        index=index,
        kind="finetune" if script.endswith("_train") else "lora",
        process_type=script,
        name=w.text("last", "output_name"),
        output_folder=w.maybe("output_dir"),
        settings=settings,
        keys=keys | keys_of(datasets, "image_directory"),
        homes=homes_of(described),
        recipe=Recipe(
            architecture=architecture,
            base_model=w.maybe("dit"),
            adapter=weights[0]
            if isinstance(weights, list) and weights
            else weights
            if isinstance(weights, str)
            else None,
            datasets=datasets,
            steps=w.whole(1600, "max_train_steps"),
            batch_size=w.whole(1, "datasets/0/batch_size", "general/batch_size"),
            gradient_accumulation=w.whole(1, "gradient_accumulation_steps"),
            max_grad_norm=w.number(1.0, "max_grad_norm"),
            learning_rate=w.number(2e-6, "learning_rate"),
            cache_text_embeddings=True,
            seed=w.whole(0, "seed") if w.raw("seed") is not None else None,
            precision=Precision(
                dtype={"no": "fp32"}.get(dtype, dtype) or ("" if start.launch or not start.script else "fp32"),
                quantization="float8" if fp8 else None,
                text_encoder_quantization="float8" if w.flag("fp8_llm") or w.flag("fp8_t5") else None,
            ),
            network=Network(
                rank=w.whole(4, "network_dim"),
                alpha=w.number(1.0, "network_alpha"),
                type={"networks.loha": "loha", "networks.lokr": "lokr"}.get(w.text("", "network_module"), "lora"),
            ),
            offload=Offload(gradient_checkpointing=w.flag("gradient_checkpointing")),
            optimizer=Optimizer(name=w.text("adamw", "optimizer_type").lower(), settings=w.pairs("optimizer_args")),
            lr_scheduler=LrScheduler(name=w.text("constant", "lr_scheduler"), settings=w.pairs("lr_scheduler_args")),
            timestep_sampling=TimestepSampling(
                noise_scheduler="flowmatch", type=w.text("sigma", "timestep_sampling")
            ),
            checkpoints=Checkpoints(every=w.whole(0, "save_every_n_steps"), dtype=w.text("float", "save_precision")),
            validation=Validation(
                disabled=w.raw("sample_prompts") is None,
                every=w.whole(0, "sample_every_n_steps"),
                prompts=samples_of(w.text("", "sample_prompts"), "musubi-tuner", architecture, beside),
            ),
        ),
    )
    return made, described


def _script(w: Options) -> str:
    """The script that a config file is for, by its network module; "" when that does not tell."""
    module = w.text("", "network_module").rpartition(".")[2]
    return f"{_MODULES[module]}_train_network" if module in _MODULES else ""


def _datasets(w: Options) -> tuple[Dataset, ...]:
    described = w.raw("datasets")
    count = len(described) if isinstance(described, list) else 0
    return tuple(_dataset(w, f"datasets/{number}") for number in range(count))


def _dataset(w: Options, at: str) -> Dataset:
    def names(name: str) -> tuple[str, str]:
        return f"{at}/{name}", f"general/{name}"

    size = w.raw(*names("resolution"))
    sizes = size if isinstance(size, list) else [size]
    return Dataset(
        key=at,
        folder=w.maybe(f"{at}/image_directory", f"{at}/video_directory"),
        caption_extension=w.text("", *names("caption_extension")),
        resolutions=tuple(dict.fromkeys(s for s in sizes if isinstance(s, int) and not isinstance(s, bool)))
        or (960, 544),
        repeats=w.whole(1, *names("num_repeats")),
        cache_latents=True,
        cache_latents_to_disk=True,
        controls=(folder,) if (folder := w.maybe(f"{at}/control_directory")) else (),
    )
