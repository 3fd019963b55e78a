"""kohya's musubi-tuner: a command line, its config file, or a file of datasets (30c658c4)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ...configs.reading import Beside, Reading
from ...configs.written import Written
from ...model import Config, Dataset
from .datasets import buckets_of, resolution_of
from .read import OfTrainer, keys_of, of_dataset, reading_of
from .starts import Start

SCRIPT = re.compile(
    r"(flux_2|flux_kontext|fpack|hidream_o1|hv_1_5|hv|ideogram4|kandinsky5|krea2|qwen_image|wan|zimage)_train(_network)?"
)
_ARCHITECTURES = {"fpack": "framepack", "hv": "hunyuan_video"}
_QWEN_IMAGE = {
    "original": "qwen_image",
    "edit": "qwen_image_edit",
    "edit-2509": "qwen_image_edit_plus",
    "edit-2511": "qwen_image_edit_plus",
}
# by --task; of the others there is no record
_WAN = {
    **dict.fromkeys(("t2v-14B", "t2i-14B"), "wan21"),
    "t2v-1.3B": "wan21_1b",
    "i2v-14B": "wan21_i2v",
    "t2v-A14B": "wan22_14b",
    "i2v-A14B": "wan22_14b_i2v",
}
_MODULES = {
    "lora_zimage": "zimage",
    "lora_flux": "flux_kontext",
    "lora_flux_2": "flux_2",
    "lora_qwen_image": "qwen_image",
}
_FP8_ENCODERS = ("fp8_llm", "fp8_t5", "fp8_vl", "fp8_text_encoder")
_KEYS = {
    "base_model": "dit",
    "adapter": "base_weights",
    "text_encoder_quantization": "fp8_llm",
    "architecture": "network_module",
    "precision.scaled": "fp8_scaled",
}


def read(config: Config, environment: Mapping[str, str], beside: Beside) -> Reading:
    """One Run for each start of a training script; the scripts that fill the caches are no runs."""
    return reading_of(config, environment, beside, SCRIPT, _own)


def _own(start: Start, w: Written) -> OfTrainer:
    script = start.script or _script(w)
    model = re.sub(r"_train(_network)?$", "", script)
    # without an option of its own, the trainer takes what accelerate was started with
    dtype = w.text("mixed_precision", default=str(start.launch.get("mixed_precision", "")))
    weights = w.raw("base_weights")
    weights = weights[0] if isinstance(weights, list) and weights else weights
    datasets = tuple(_dataset(w, f"datasets/{number}") for number in range(w.count("datasets") or 0))
    fields = {
        "architecture": None if script in ("", "datasets") else _architecture(model, w),
        "variant": _qwen_version(w) if model == "qwen_image" else None,
        "base_model": w.maybe("dit"),
        "adapter": weights if isinstance(weights, str) else None,
        "datasets": datasets,
        "learning_rate": w.number("learning_rate", default=2e-6),
        "cache_text_embeddings": True,
        "dtype": {"no": "fp32"}.get(dtype, dtype) or ("" if start.launch or not start.script else "fp32"),
        "quantization": "float8" if w.flag("fp8_base") else None,
        "precision.scaled": w.flag("fp8_base") and w.flag("fp8_scaled"),
        "precision.split_attention": w.flag("split_attn"),
        "offload.activations": w.flag("gradient_checkpointing_cpu_offload"),
        "offload.low_vram": w.flag("offload_inactive_dit"),
        "sources": {"transformer_2": high_noise} if (high_noise := w.maybe("dit_high_noise")) else {},
        "text_encoder_quantization": "float8" if any(map(w.flag, _FP8_ENCODERS)) else None,
        "network_type": {"networks.loha": "loha", "networks.lokr": "lokr"}.get(w.text("network_module"), "lora"),
        "noise_scheduler": "flowmatch",
    }
    keys = keys_of(datasets, "image_directory")
    keys |= {
        f"{one.key}/folder_path": name for one in datasets if (name := f"{one.key}/video_directory") in w.settings
    }
    if w.flag("block_swap_h2d_only"):  # so many buffers on the card are filled in turns
        ring = w.whole("block_swap_ring_size", default=2)
        fields["offload.swapped"] = max(0, w.whole("blocks_to_swap") - ring)
    return OfTrainer(script, fields, _KEYS | keys)


def _architecture(model: str, w: Written) -> str:
    """The family, or the member of it that the options choose."""
    if model == "flux_2":
        size = re.fullmatch(r"klein-(?:base-)?([49]b)", w.text("model_version"))
        return f"flux2_klein_{size[1]}" if size else "flux2"
    if model == "wan":
        task = w.text("task", default="t2v-14B")
        return _WAN.get(task, f"wan_{task}")
    if model == "hv" and (channels := w.whole("dit_in_channels", default=16)) != 16:
        return f"hunyuan_video_{channels}"  # of which there is no record
    if model == "qwen_image":
        version = _qwen_version(w)
        return _QWEN_IMAGE.get(version, f"{model}_{version}")
    return _ARCHITECTURES.get(model, model)


def _qwen_version(w: Written) -> str:
    """What model_version says, in small letters, or one of the flags that say so without it."""
    plus, edit = w.flag("edit_plus"), w.flag("edit")
    return w.text("model_version").lower() or ("edit-2509" if plus else "edit" if edit else "original")


def _script(w: Written) -> str:
    """The script that a config file is for, by its network module; "" when that does not tell."""
    module = w.text("network_module").rpartition(".")[2]
    return f"{_MODULES[module]}_train_network" if module in _MODULES else ""


def _dataset(w: Written, key: str) -> Dataset:
    alone, own = w.below(key), of_dataset("musubi-tuner", key, w)
    size = own.raw("resolution")
    sizes = size if isinstance(size, list) else [size]
    width, height = resolution_of(True, own) or (960, 544)
    return Dataset(
        key=key,
        folder=alone.maybe("video_directory", "image_directory"),
        caption_extension=own.text("caption_extension"),
        resolutions=tuple(dict.fromkeys(s for s in sizes if isinstance(s, int) and not isinstance(s, bool)))
        or (960, 544),
        buckets=buckets_of("musubi-tuner", own, width, height),
        frames=_frames(own) if alone.maybe("video_directory", "video_jsonl_file") else 1,
        repeats=own.whole("num_repeats", default=1),
        cache_latents=True,
        cache_latents_to_disk=True,
        controls=(folder,) if (folder := alone.maybe("control_directory")) else (),
    )


def _frames(own: Written) -> int:
    """Of the longest film; 0 where each is taken as long as it is."""
    if own.text("frame_extraction") == "full":
        return 0
    written = own.raw("target_frames")
    every = written if isinstance(written, list) else [written]
    return max((one for one in every if isinstance(one, int) and not isinstance(one, bool)), default=1)
