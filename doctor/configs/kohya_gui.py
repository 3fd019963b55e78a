"""The settings that kohya_ss, the GUI, saves as JSON, in the words of sd-scripts' options (45088f04)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..model import Value

_MARKS = ("flux1_checkbox", "LyCORIS_preset", "num_cpu_threads_per_process", "model_list", "max_resolution")
_RENAMED = {
    "max_resolution": "resolution",
    "optimizer": "optimizer_type",
    "epoch": "epoch",
    "LoRA_type": "network_module",
    "flux1_cache_text_encoder_outputs": "cache_text_encoder_outputs",
    "flux1_cache_text_encoder_outputs_to_disk": "cache_text_encoder_outputs_to_disk",
    "flux_fused_backward_pass": "fused_backward_pass",
    "flux1_clip_l": "clip_l",
    "flux1_t5xxl": "t5xxl",
}
_MODULES = {
    "Flux1": "networks.lora_flux",
    "Flux1 OFT": "networks.oft_flux",
    "Standard": "networks.lora",
    "Kohya LoCon": "networks.lora",
    "Kohya DyLoRA": "networks.dylora",
    "LoRA-FA": "networks.lora_fa",
    "Kohya LoHa": "networks.loha",
    "Kohya LoKr": "networks.lokr",
    "HunyuanImage-2.1": "networks.lora_hunyuan_image",
    "Anima": "networks.lora_anima",
    "Lumina": "networks.lora_lumina",
}
_BOXES = {
    "sdxl": "sdxl_",
    "flux1_checkbox": "flux_",
    "sd3_checkbox": "sd3_",
    "hunyuan_image_checkbox": "hunyuan_image_",
    "anima_checkbox": "anima_",
    "lumina_checkbox": "lumina_",
}
# what only the GUI itself reads, or only starts the trainer with
_OWN = frozenset(["additional_parameters", "model_list", "save_as_bool", "vae_batch_size"])


def is_gui(tree: object) -> bool:
    """Whether a JSON text is what the GUI saves."""
    return isinstance(tree, dict) and sum(mark in tree for mark in _MARKS) >= 2


def from_gui(values: Mapping[str, Value]) -> tuple[str, dict[str, Value]]:
    """The script that the GUI starts, and the options that it writes for it; empty values it leaves out."""
    tree = {pointer[1:]: value for pointer, value in values.items() if pointer.count("/") == 1}

    def on(name: str) -> bool:
        return name in tree and bool(tree[name].value)

    prefix = next((prefix for box, prefix in _BOXES.items() if on(box)), "")
    kind = tree["LoRA_type"].value if "LoRA_type" in tree else None
    options: dict[str, Value] = {}
    for name, value in tree.items():
        if value.value in ("", False, None, []) or name in _OWN or isinstance(value.value, dict):
            continue
        if name == "LoRA_type":
            module = "lycoris.kohya" if "LyCORIS" in str(kind) or kind == "LoCon" else _MODULES.get(str(kind), "")
            if kind == "Standard" and prefix == "sd3_":
                module = "networks.lora_sd3"
            value = replace(value, value=module)
        elif name == "xformers":
            options[str(value.value)] = replace(value, value=True)
            continue
        elif (name.startswith("flux1_") and prefix != "flux_") or (
            value.value == 0
            and name
            in (
                "max_train_steps",
                "max_train_epochs",
                "unet_lr",
                "text_encoder_lr",
                "seed",
            )
        ):
            continue
        elif name in ("optimizer_args", "lr_scheduler_args") and isinstance(value.value, str):
            value = replace(value, value=value.value.replace('"', "").split(), style=None)
        options[_RENAMED.get(name, name)] = value
    train = "train_network" if kind is not None else "train" if prefix else "train_db"
    return prefix + train, options
