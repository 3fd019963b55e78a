"""kohya's sd-scripts: a command line, its config file, a file of datasets, or the settings of the GUI (48d368fa)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from ...configs.reading import Beside, Reading
from ...configs.written import Written
from ...model import Config, Dataset
from ...model.recipe import Network, Precision, Recipe, TimestepSampling
from .gui import from_gui, is_gui
from .read import LAUNCH, reading_of, starts_in_script, table_of
from .run import BATCH_SIZES, OfTrainer, run_of
from .starts import Start, datasets_of, flat, is_datasets, keys_of

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
    "text_encoder_quantization": "fp8_base",
    "batch_size": "train_batch_size",
    "cache_text_embeddings": "cache_text_encoder_outputs",
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
        gui = is_gui(root.value)
        if is_datasets(root):
            script, options = "datasets", datasets_of(root, config)
        else:
            script, options = from_gui(config.values) if gui else ("", flat(root, config))
        given = {name: config.values.get(f"/{name}") for name in LAUNCH if gui}
        launch = {name: value.value for name, value in given.items() if value is not None and value.value is not None}
        found = (Start(script, options, launch),)
    return reading_of(
        config, found, lambda start, index: run_of("sd-scripts", config.path, start, index, beside, _own)
    )


def _own(start: Start, w: Written) -> OfTrainer:
    script = start.script or _script(w)
    keys = dict(_KEYS)
    if not w.has("fp8_base") and w.has("fp8_base_unet"):
        keys["quantization"] = "fp8_base_unet"
    dtype = w.text("mixed_precision", default="no")
    of_transformer = w.flag("fp8_base_unet")
    fp8 = w.flag("fp8_base") or of_transformer
    datasets = _datasets(w)
    to_disk = w.flag("cache_text_encoder_outputs_to_disk")
    recipe = Recipe(
        architecture=_architecture(script, w),
        base_model=w.maybe("pretrained_model_name_or_path"),
        datasets=datasets,
        batch_size=w.whole(*BATCH_SIZES, "train_batch_size", default=1),
        learning_rate=w.number("unet_lr", "learning_rate", default=2e-6),
        cache_text_embeddings=w.flag("cache_text_encoder_outputs") or to_disk,
        precision=Precision(
            dtype=_DTYPES.get(dtype, dtype),
            quantization="float8" if fp8 else None,
            text_encoder_quantization="float8" if fp8 and not of_transformer else None,
        ),
        network=Network(type=_network(w)),
        timestep_sampling=TimestepSampling(
            noise_scheduler="flowmatch" if script.startswith(("flux", "sd3", "lumina", "anima")) else "ddpm"
        ),
    )
    keys |= keys_of(datasets, "image_dir", cache_latents_to_disk="cache_latents_to_disk")
    return OfTrainer(script, _kind(script), keys, recipe)


def _script(w: Written) -> str:
    """The script that a config file is for, by its options; "" when they do not tell."""
    module = w.text("network_module")
    named = re.fullmatch(r"networks\.\w+?_(flux|sd3|lumina|hunyuan_image|anima)", module)
    if named:
        return f"{named.group(1)}_train_network"
    if w.has("ae") and w.has("t5xxl"):
        return "flux_train_network" if module else "flux_train"
    return ""


def _kind(script: str) -> Literal["lora", "finetune", "other"]:
    if script.endswith("_inversion"):
        return "other"
    return "lora" if script.endswith("network") or script in ("", "datasets") else "finetune"


def _architecture(script: str, w: Written) -> str | None:
    if script in ("", "datasets"):
        return None
    name = next((name for prefix, name in _ARCHITECTURES.items() if script.startswith(prefix)), "sd1")
    return "chroma" if name == "flux" and w.raw("model_type") == "chroma" else name


def _network(w: Written) -> str:
    module = w.text("network_module")
    if module.startswith("lycoris"):
        return w.pairs("network_args").get("algo", "lora")
    kind = re.fullmatch(r"networks\.(\w+?)(?:_[a-z0-9]+)?", module)
    return kind.group(1) if kind else module or "lora"


def _datasets(w: Written) -> tuple[Dataset, ...]:
    """Every subset; without a file of datasets the folder that holds the numbered ones, which are its subsets."""
    made: list[Dataset] = []
    for number in range(w.count("datasets") or 0):
        at = f"datasets/{number}"
        for inner in range(w.count(f"{at}/subsets") or 0):
            made.append(_dataset(w, f"{at}/subsets/{inner}/", "image_dir", f"{at}/", "general/", ""))
    if w.has("datasets"):
        return tuple(made)
    for key in ("train_data_dir", "reg_data_dir"):
        if w.maybe(key):
            made.append(_dataset(w, "", key))
    return tuple(made)


def _dataset(w: Written, at: str, folder_key: str, *above: str) -> Dataset:
    """`above`: the prefixes below which the trainer looks for what a subset leaves out, nearest first."""
    places = (at, *above) if at else ("",)

    def names(name: str) -> tuple[str, ...]:
        return tuple(f"{place}{name}" for place in places)

    extension = w.text(*names("caption_extension"), default=".caption")
    extension = w.text("caption_extention", default=extension)
    if extension and not extension.startswith("."):  # as DreamBoothSubset does
        extension = f".{extension}"
    to_disk = w.flag("cache_latents_to_disk")
    return Dataset(
        key=at.rstrip("/") or folder_key,
        folder=w.maybe(f"{at}{folder_key}"),
        caption_extension=extension,
        resolutions=_sizes(w.raw(*names("resolution"))),
        default_caption=w.text(*names("class_tokens")),
        caption_dropout=w.number(*names("caption_dropout_rate")),
        repeats=w.whole(*names("num_repeats"), "dataset_repeats", default=1),
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
