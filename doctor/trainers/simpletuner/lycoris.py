"""The file that lycoris_config names, in the runner's words: a LoKr or LoHa as LyCORIS 3.4 makes one for SimpleTuner.

A LoKr with two full matrices has a scale of 1, whatever linear_alpha says; of one whose second matrix is split, and
of a LoHa, the scale is linear_alpha / linear_dim.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...configs.refused import Reason, one_of
from ...configs.words import short
from ...configs.written import Written
from ...model import Run
from ...model.recipe import Network
from ...model.record import replace

# The Linears in the modules of a class, by a part of their names, in Flux and in Z-Image.
CLASSES: Mapping[str, tuple[str, ...]] = {
    "Attention": ("attn", "attention"),
    "FeedForward": ("ff", "ff_context", "feed_forward"),
}
# Of this linear_dim the second matrix is full in every Linear: more than half of the longest side, 15360 in Flux.
FULL = 7680
# Above the root of the shortest side (3072 in Flux) LyCORIS swaps the two parts of a side, and the runner does not.
MOST_FACTOR = 55
KINDS = ("lokr", "loha")


def refused_network(run: Run, options: Written) -> Iterator[Reason]:
    if "lycoris" not in run.homes:
        at = "lycoris_config" if run.written("lycoris_config") else "network_type"
        yield at, "The file that lycoris_config names is not there"
        return
    own = options.below("lycoris")
    kind = own.text("algo", default="lora").lower()
    if kind not in KINDS:
        at = "lycoris/algo" if "lycoris/algo" in options.settings else "lycoris_config"
        yield at, f"algo {own.text('algo', default='lora')} is not supported; use lokr, loha, or lora_type: standard"
        return
    if own.text("preset", default="full") != "full":
        yield "lycoris/preset", f"preset {own.text('preset')} is not supported; leave it out"
    if int(own.number("multiplier", default=1.0)) != 1:
        yield "lycoris/multiplier", f"multiplier {short(own.raw('multiplier'))} is not supported; use 1.0"
    factor = own.raw("factor")  # null is none, too
    yield from _factor("lycoris/factor", factor if "lycoris/factor" in options.settings else -1)
    yield from _preset(own, kind)


def _preset(own: Written, kind: str) -> Iterator[Reason]:
    key = "lycoris/apply_preset"
    modules, known = _modules(own), ", ".join(CLASSES)
    if not modules:
        yield key, f"Without target_module every Linear is covered, which is not supported; use {known}"
    for module in modules:
        yield from one_of(key, "target_module", module, CLASSES, known)
    for module, settings in _map(own).items():
        at = f"{key}/module_algo_map/{module}"
        for name, value in settings.items() if isinstance(settings, dict) else ():
            if name == "factor":
                yield from _factor(f"{at}/factor", value)
            elif not (name == "algo" and str(value).lower() == kind):
                yield f"{at}/{name}", f"{name} {short(value)} of {module} is not supported; leave it out"


def _factor(key: str, value: Any) -> Iterator[Reason]:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or not (value == -1 or 0 < value <= MOST_FACTOR):
        yield key, f"factor {short(value)} is neither -1 nor a whole number from 1 to {MOST_FACTOR}"


def of_lycoris(own: Written, network: Network) -> Network:
    """The network of the file."""
    factor = own.raw("factor")
    rank = own.whole("linear_dim", default=4)
    alpha = own.number("linear_alpha", default=1.0) or float(rank)  # none is as much as the rank
    whole = network.type == "lokr" and _is_full(own)
    if whole:
        rank, alpha = network.rank, float(network.rank)
    maps = {name: found for name, found in _map(own).items() if isinstance(found, dict) and "factor" in found}
    return replace(
        network,
        rank=rank,
        alpha=alpha,
        scale=alpha / rank if rank > 0 else 1.0,
        lokr_full_rank=whole,
        excluded=_left_out(own),
        lokr_factor=factor if type(factor) is int and factor > 0 else -1,
        lokr_factors={part: found["factor"] for name, found in maps.items() for part in CLASSES.get(name, ())},
    )


def _is_full(own: Written) -> bool:
    return own.flag("full_matrix") or own.whole("linear_dim", default=4) >= FULL


def _modules(own: Written) -> tuple[str, ...]:
    """The classes that are covered: those with settings of their own are, named or not."""
    return tuple(dict.fromkeys((*map(str, own.entries("apply_preset/target_module")), *_map(own))))


def _map(own: Written) -> Mapping[str, Any]:
    return own.mapping("apply_preset/module_algo_map")


def _left_out(own: Written) -> str:
    """A pattern of the Linears that are in none of the covered modules."""
    parts = [part for name in _modules(own) for part in CLASSES.get(name, ())]
    return rf"^(?!.*\.(?:{'|'.join(parts)})\.)" if parts else ""
