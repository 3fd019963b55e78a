"""The file that lycoris_config names, in the runner's words: a LoKr as LyCORIS 3.4 makes one for SimpleTuner.

A LoKr with two full matrices has a scale of 1, whatever linear_alpha says; of one whose second matrix is split the
scale is linear_alpha / linear_dim.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...configs.defaults import same, short
from ...model import Run, Value
from ...model.recipe import Network
from ...model.record import replace
from .options import Options

# The Linears in the modules of a class, by a part of their names, in Flux and in Z-Image.
CLASSES: Mapping[str, tuple[str, ...]] = {
    "Attention": ("attn", "attention"),
    "FeedForward": ("ff", "ff_context", "feed_forward"),
}
# Of this linear_dim the second matrix is full in every Linear: more than half of the longest side, 15360 in Flux.
FULL = 7680
# Above the root of the shortest side (3072 in Flux) LyCORIS swaps the two parts of a side, and the runner does not.
MOST_FACTOR = 55
# What each setting must say where it is written; None of those that only convolutions, other kinds of networks, or
# nothing here looks at.
_NEUTRAL: Mapping[str, Any] = {
    **dict.fromkeys(("dropout", "rank_dropout", "module_dropout", "use_scalar", "train_norm", "dora_wd"), False),
    **dict.fromkeys(("decompose_both", "unbalanced_factorization"), False),
    "preset": "full",
}
_OBEYED = ("algo", "multiplier", "linear_dim", "linear_alpha", "factor", "full_matrix", "apply_preset")
_INERT = (
    *("conv_dim", "conv_alpha", "use_tucker", "use_cp", "use_conv_cp", "disable_conv_cp", "block_size", "constraint"),
    *("rescaled", "wd_on_output", "bypass_mode", "tlora_min_rank", "tlora_alpha"),
)
_OF_PRESET = ("target_module", "module_algo_map", "lora_prefix", "enable_conv", "use_fnmatch")
_UNUSED = ("unet_target_module", "unet_target_name", "text_encoder_target_module", "text_encoder_target_name")


def refused_network(run: Run) -> Iterator[tuple[str, str]]:
    """The key that is at fault, and a sentence about it without its full stop."""
    if "lycoris" not in run.homes:
        at = "lycoris_config" if run.written("lycoris_config") else "network_type"
        yield at, "The file that lycoris_config names is not there"
        return
    own = _own(run.settings)
    if own.text("algo", "lora").lower() != "lokr":
        at = "lycoris/algo" if "algo" in own.settings else "lycoris_config"
        yield at, f"algo {own.text('algo', 'lora')} is not supported; use lokr, or lora_type: standard"
        return
    for name, value in own.settings.items():
        if "/" in name or name in (*_OBEYED, *_INERT):
            continue
        if name not in _NEUTRAL or not same(value.value, _NEUTRAL[name]):
            yield f"lycoris/{name}", f"{name} {short(value.value)} of a LoKr is not supported; leave it out"
    if int(own.number("multiplier", 1.0)) != 1:
        yield "lycoris/multiplier", f"multiplier {short(own.raw('multiplier'))} is not supported; use 1.0"
    if not _is_full(own) and own.whole("linear_alpha", 1) not in (0, own.whole("linear_dim", 4)):
        size = f"linear_dim {own.whole('linear_dim', 4)} with linear_alpha {own.whole('linear_alpha', 1)}"
        yield "lycoris/linear_dim", f"{size} scales a LoKr, which is not supported; use full_matrix: true"
    yield from _factor("lycoris/factor", own.settings["factor"].value if "factor" in own.settings else -1)
    yield from _preset(own)


def _preset(own: Options) -> Iterator[tuple[str, str]]:
    key = "lycoris/apply_preset"
    for name, value in own.settings.items():
        section, _, word = name.partition("/")
        inside = section == "apply_preset" and word and "/" not in word
        if inside and word not in (*_OF_PRESET, *_UNUSED) and not same(value.value, None):
            yield f"lycoris/{name}", f"{word} {short(value.value)} of apply_preset is not supported; leave it out"
    modules = _modules(own)
    if not modules:
        yield key, f"Without target_module a LoKr covers every Linear, which is not supported; use {_known()}"
    for module in modules:
        if module not in CLASSES:
            yield key, f"target_module {module} is not supported; use {_known()}"
    for module, settings in _map(own).items():
        at = f"{key}/module_algo_map/{module}"
        for name, value in settings.items() if isinstance(settings, dict) else ():
            if name == "factor":
                yield from _factor(f"{at}/factor", value)
            elif not (name == "algo" and str(value).lower() == "lokr"):
                yield f"{at}/{name}", f"{name} {short(value)} of {module} is not supported; leave it out"


def _factor(key: str, value: Any) -> Iterator[tuple[str, str]]:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or not (value == -1 or 0 < value <= MOST_FACTOR):
        yield key, f"factor {short(value)} is neither -1 nor a whole number from 1 to {MOST_FACTOR}"


def lokr(settings: Mapping[str, Value], network: Network) -> Network:
    """The LoKr of the file, where it is one; `settings` are the run's."""
    own = _own(settings)
    if own.text("algo").lower() != "lokr":
        return network
    factor = own.settings["factor"].value if "factor" in own.settings else -1
    maps = {name: found for name, found in _map(own).items() if isinstance(found, dict) and "factor" in found}
    return replace(
        network,
        lokr_full_rank=_is_full(own),
        excluded=_left_out(own),
        lokr_factor=factor if type(factor) is int and factor > 0 else -1,
        lokr_factors={part: found["factor"] for name, found in maps.items() for part in CLASSES.get(name, ())},
    )


def rank_of(settings: Mapping[str, Value], default: int) -> int:
    """linear_dim where it is one; `default` where the matrices are full."""
    own = _own(settings)
    return default if _is_full(own) else own.whole("linear_dim", 4)


def _own(settings: Mapping[str, Value]) -> Options:
    prefix = "lycoris/"
    return Options({key.removeprefix(prefix): value for key, value in settings.items() if key.startswith(prefix)})


def _is_full(own: Options) -> bool:
    return own.flag("full_matrix") or own.whole("linear_dim", 4) >= FULL


def _modules(own: Options) -> tuple[str, ...]:
    """The classes that are covered: those with settings of their own are, named or not."""
    found = own.settings.get("apply_preset/target_module")
    named = found.value if found is not None and isinstance(found.value, list) else []
    return tuple(dict.fromkeys((*map(str, named), *_map(own))))


def _map(own: Options) -> Mapping[str, Any]:
    found = own.settings.get("apply_preset/module_algo_map")
    return found.value if found is not None and isinstance(found.value, dict) else {}


def _left_out(own: Options) -> str:
    """A pattern of the Linears that are in none of the covered modules."""
    parts = [part for name in _modules(own) for part in CLASSES.get(name, ())]
    return rf"^(?!.*\.(?:{'|'.join(parts)})\.)" if parts else ""


def _known() -> str:
    return ", ".join(CLASSES)
