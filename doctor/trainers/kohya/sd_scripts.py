"""kohya's sd-scripts: a command line, its config file, a file of datasets, or the settings of the GUI (48d368fa)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ...configs.reading import Beside, Reading
from ...configs.written import Written
from ...families import family_of
from ...model import Config, Dataset
from .read import OfTrainer, keys_of, of_dataset, reading_of
from .starts import Start

SCRIPT = re.compile(
    r"(?:(?:flux|sdxl|sd3|lumina|hunyuan_image|anima)_)?train_(?:network|db|textual_inversion)|"
    r"(?:flux|sdxl|sd3|lumina|hunyuan_image|anima)_train|fine_tune"
)
# By the beginning of the script's name, the family; without one Stable Diffusion 1.5 or, with v2, 2.
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
_KERNELS = ("xformers", "sdpa", "mem_eff_attn")
_DTYPES = {"no": "fp32", "float": "fp32"}


def read(config: Config, environment: Mapping[str, str], beside: Beside) -> Reading:
    """One Run for each start of a training script in a shell script; one for any other file."""
    return reading_of(config, environment, beside, SCRIPT, _own)


def _own(start: Start, w: Written) -> OfTrainer:
    script = start.script or _script(w)
    dtype = w.text("mixed_precision", default="no")
    of_transformer = w.flag("fp8_base_unet")
    # the scripts of these two do not look at it
    fp8 = (w.flag("fp8_base") or of_transformer) and not script.startswith(("anima", "hunyuan_image"))
    datasets = _datasets(w)
    to_disk = w.flag("cache_text_encoder_outputs_to_disk")
    fields = {
        "architecture": _architecture(script, w),
        "base_model": w.maybe("pretrained_model_name_or_path"),
        "datasets": datasets,
        "learning_rate": w.number("unet_lr", "learning_rate", default=2e-6),
        "cache_text_embeddings": w.flag("cache_text_encoder_outputs") or to_disk,
        "dtype": _DTYPES.get(dtype, dtype),
        "quantization": "float8" if fp8 else None,
        "offload.other": "cpu_offload_checkpointing" * w.flag("cpu_offload_checkpointing"),
        "text_encoder_quantization": "float8" if fp8 and not of_transformer else None,
        "network_type": _network(w),
        "network.conv_rank": _windows(w),
        "network.narrowed": w.text("network_module").startswith(("lycoris", "networks.lora_fa")),
        "network.text_rates": _text_rates(script, w),
        "precision.network": dtype if w.flag("full_bf16") or w.flag("full_fp16") else "",
        "precision.vae": "float32" if w.flag("no_half_vae") else "",
        "precision.full_attention": not any(map(w.flag, _KERNELS)),
        "noise_scheduler": "flowmatch" if script.startswith(("flux", "sd3", "lumina", "anima")) else "ddpm",
    }
    keys = _KEYS | keys_of(datasets, "image_dir")
    keys |= {f"{dataset.key}/cache_latents_to_disk": "cache_latents_to_disk" for dataset in datasets}
    if not w.has("fp8_base") and w.has("fp8_base_unet"):
        keys["quantization"] = "fp8_base_unet"
    if not w.has("cache_text_encoder_outputs"):
        keys["cache_text_embeddings"] = "cache_text_encoder_outputs_to_disk"
    return OfTrainer(script, fields, keys)


def _script(w: Written) -> str:
    """The script that a config file is for, by its options; "" when they do not tell."""
    module = w.text("network_module")
    named = re.fullmatch(r"networks\.\w+?_(flux|sd3|lumina|hunyuan_image|anima)", module)
    if named:
        return f"{named.group(1)}_train_network"
    if w.has("ae") and w.has("t5xxl"):
        return "flux_train_network" if module else "flux_train"
    return ""


def _architecture(script: str, w: Written) -> str | None:
    if script in ("", "datasets"):
        return None
    plain = "sd2" if w.flag("v2") else "sd1"
    name = next((name for prefix, name in _ARCHITECTURES.items() if script.startswith(prefix)), plain)
    return "chroma" if name == "flux" and w.raw("model_type") == "chroma" else name


def _network(w: Written) -> str:
    module = w.text("network_module")
    if module.startswith("lycoris"):
        return w.pairs("network_args").get("algo", "lora")
    kind = re.fullmatch(r"networks\.(\w+?)(?:_[a-z0-9]+)?", module)
    return kind.group(1) if kind else module or "lora"


def _windows(w: Written) -> int:
    """The rank on convolutions of several pixels, 0: they get none."""
    written = w.pairs("network_args").get("conv_dim", 0)
    return int(written) if re.fullmatch(r"\d{1,6}", str(written)) else 0


def _text_rates(script: str, w: Written) -> dict[str, float]:
    """The learning rates of the text encoders that get a LoRA, too."""
    kohya = family_of(_architecture(script, w)).kohya.get("sd-scripts")
    if kohya is None or not script.endswith("network") or w.flag("network_train_unet_only"):
        return {}
    written = w.raw("text_encoder_lr")
    rates = written if isinstance(written, list) else [written]
    return {
        name: float(rate) if isinstance(rate, int | float) else w.number("learning_rate", default=2e-6)
        for name, rate in zip(kohya.text, [*rates, *rates[-1:] * len(kohya.text)], strict=False)
    }


def _datasets(w: Written) -> tuple[Dataset, ...]:
    """Every subset; without a file of datasets the folder that holds the numbered ones, which are its subsets."""
    if not w.has("datasets"):
        return tuple(_dataset(w, key, key) for key in ("train_data_dir", "reg_data_dir") if w.maybe(key))
    subsets = (f"datasets/{number}/subsets" for number in range(w.count("datasets") or 0))
    keys = (f"{at}/{number}" for at in subsets for number in range(w.count(at) or 0))
    return tuple(_dataset(w, key, f"{key}/image_dir") for key in keys)


def _dataset(w: Written, key: str, folder: str) -> Dataset:
    own = of_dataset("sd-scripts", key, w)
    extension = w.text("caption_extention", default=own.text("caption_extension", default=".caption"))
    if extension and not extension.startswith("."):  # as DreamBoothSubset does
        extension = f".{extension}"
    to_disk = w.flag("cache_latents_to_disk")
    return Dataset(
        key=key,
        folder=w.maybe(folder),
        caption_extension=extension,
        resolutions=_sizes(own.raw("resolution")),
        default_caption=own.text("class_tokens"),
        caption_dropout=own.number("caption_dropout_rate"),
        repeats=own.whole("num_repeats", default=w.whole("dataset_repeats", default=1)),
        cache_latents=w.flag("cache_latents") or to_disk,
        cache_latents_to_disk=to_disk,
        flip_x=own.flag("flip_aug"),
        is_regularisation=w.flag(f"{key}/is_reg") or key == "reg_data_dir",
    )


def _sizes(value: object) -> tuple[int, ...]:
    """A resolution as it is written: a number, `[width, height]`, or `"width,height"`."""
    parts = value if isinstance(value, list) else re.split(r"[,\s]+", str(value).strip())
    sizes = [int(part) for part in parts if re.fullmatch(r"\d{1,6}", str(part).strip())]
    return tuple(dict.fromkeys(sizes)) or (512,)
