"""The settings that kohya_ss, the GUI, saves as JSON, in the words of sd-scripts' options (45088f04)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...configs.words import options_in
from ...model import Value
from ...model.record import replace
from .names import NAMES
from .starts import LISTS

_MARKS = ("flux1_checkbox", "LyCORIS_preset", "num_cpu_threads_per_process", "model_list", "max_resolution")
_FORWARDED, _OF_NETWORK, _ZERO = (frozenset(NAMES[f"gui{name}"]) for name in ("", "_network_args", "_zero"))
_RENAMED, _MODULES, _BOXES = (NAMES[f"gui_{name}"] for name in ("renamed", "modules", "boxes"))


def is_gui(tree: object) -> bool:
    """Whether a JSON text is what the GUI saves."""
    return isinstance(tree, dict) and ("LoRA_type" in tree or sum(mark in tree for mark in _MARKS) >= 2)


def is_of_the_gui_itself(tree: object) -> bool:
    """Whether it is the config.toml that the GUI begins with: what its fields hold at first, tab by tab."""
    return isinstance(tree, dict) and isinstance(tree.get("accelerate_launch"), dict) and "basic" in tree


def is_of_another_tab(tree: object) -> bool:
    """Whether it is of a tab of the GUI that starts none of the scripts that are known here: Stable Cascade's."""
    return isinstance(tree, dict) and "effnet_checkpoint_path" in tree


def from_gui(values: Mapping[str, Value]) -> tuple[str, dict[str, Value]]:
    """The script that the GUI starts, and the options that it writes for it; empty values it leaves out."""
    tree = {pointer[1:]: value for pointer, value in values.items() if pointer.count("/") == 1}

    plain = {name: value.value for name, value in tree.items()}
    prefix = next((prefix for box, prefix in _BOXES.items() if plain.get(box)), "")
    kind = plain.get("LoRA_type")
    options: dict[str, Value] = {}
    for name, value in tree.items():
        option = _RENAMED.get(name, name)
        if value.value in ("", False, None, []) or (value.value == 0 and name in _ZERO):
            continue
        if name == "LoRA_type":
            module = "lycoris.kohya" if "LyCORIS" in str(kind) or kind == "LoCon" else _MODULES.get(str(kind), "")
            module = "networks.lora_sd3" if kind == "Standard" and prefix == "sd3_" else module
            options[option] = replace(value, value=module)
        elif name == "xformers":
            options["xformers" if value.value is True else str(value.value)] = replace(value, value=True)
        elif option not in _FORWARDED or _foreign(name, prefix, value.value):
            continue
        elif name in ("optimizer_args", "lr_scheduler_args") and isinstance(value.value, str):
            options[option] = replace(value, value=value.value.replace('"', "").split(), style=None)
        else:
            options[option] = value
    if kind == "Flux1":
        options |= _of_flux(tree, plain)
    options |= _schedule(tree, options) | _additional(tree)
    train = "train_network" if kind is not None else "train" if prefix else "train_db"
    return prefix + train, options


def _of_flux(tree: Mapping[str, Value], plain: Mapping[str, Any]) -> dict[str, Value]:
    """What the GUI makes of the settings of a Flux LoRA: which parts learn, by their rates, and the network_args."""
    made: dict[str, Value] = {}
    rate = tree.get("unet_lr")
    if rate is not None and _number(rate.value) and not _number(plain.get("text_encoder_lr")):
        made["network_train_unet_only"] = replace(rate, value=True)
    ggpo = bool(plain.get("train_lora_ggpo"))
    given = [
        (name, value)
        for name, value in tree.items()
        if name in _OF_NETWORK
        and value.value not in ("", False, None, 0, "0")
        and (ggpo or not name.startswith("ggpo_"))
    ]
    if given:
        listed = [f"{name}={value.value}" for name, value in given]
        made["network_args"] = replace(given[0][1], value=listed, style=None)
    return made


def _schedule(tree: Mapping[str, Value], options: Mapping[str, Value]) -> dict[str, Value]:
    """Steps from epochs where no steps are written, and the warm-up, which the GUI also has in percent."""
    made: dict[str, Value] = {}
    epochs = tree.get("epoch")
    counted = "max_train_steps" in options or "max_train_epochs" in options
    if epochs is not None and _number(epochs.value) and not counted and "dataset_config" not in options:
        made["max_train_epochs"] = epochs
    percent = tree.get("lr_warmup")
    if "lr_warmup_steps" not in options and percent is not None and _number(percent.value):
        made["lr_warmup_steps"] = replace(percent, value=_number(percent.value) / 100)
    return made


def _additional(tree: Mapping[str, Value]) -> dict[str, Value]:
    """The options among the additional parameters, which the GUI puts behind the others."""
    text = tree.get("additional_parameters")
    if text is None or not isinstance(text.value, str):
        return {}
    return {
        # no place of its own to be edited at
        name: replace(text, value=value, where=replace(text.where, pointer=f"{text.where.pointer}/{name}"))
        for name, value in options_in(text.value, LISTS)
    }


def _number(value: object) -> float:
    try:
        return float(str(value))
    except ValueError:
        return 0.0


def _foreign(name: str, prefix: str, value: object) -> bool:
    """Whether the GUI keeps this setting for another model than the one that is chosen."""
    if name == "max_token_length":
        return prefix not in ("", "sdxl_") or str(value) == "75"  # its word for the default
    return name.startswith("flux1_") and prefix != "flux_"
