"""A finished LoRA as it lies on disk: what its file holds for which module, and what its numbers are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from .record import dataclass, field
from .weights import WeightFile

LORA = "LoRA file"  # stands for a trainer: the rules about finished LoRAs are for these alone
PAIR = ("A", "B")  # the factors of a LoRA: B @ A is added to the weight
ADAPTER_METADATA = "lora_adapter_metadata"  # where diffusers writes alpha


@dataclass(frozen=True)
class AdaptedModule:
    """What an adapter holds for one module of a model.

    `key` is what the file writes before each part, of which `prefix` says whose model it is and `path` which module.
    `parts` are the names of its tensors by what they are ("A", "B", "alpha", "lokr_w1"). `linears` are diffusers'
    names of the Linears that it changes, more than one where they are fused; () where the model has none of the name.
    `names` says whose names the path is written in: "d" for diffusers', "o" for the original single files', "p" for
    those that diffusers gave to attention until 2023 ("n": what had its name then, too), "t" for CLIP's; all where
    they are the same. `words` is what its factors are called: "A" (lora_A), "A.default", "down" (lora_down), "dot"
    (lora.down), "_lora", "linear" (lora_linear_layer) or "bare" (lora_A without weight), "" where it has none.
    """

    key: str
    prefix: str
    path: str
    parts: Mapping[str, str]
    linears: tuple[str, ...] = ()
    names: str = ""
    words: str = ""

    @property
    def of_text_encoder(self) -> bool:
        return self.prefix.startswith(("lora_te", "text_encoder"))


@dataclass(frozen=True)
class LoraBase:
    """The model that a LoRA is held against: the class of its transformer, and (out, in) by name of its Linears.

    `source` is how it was named, `family` the record that it is of, "" where its sizes are those of none. `exact`
    says that the sizes are this model's own, not those that are published. `reason` says why nothing is known of it,
    "" where something is.
    """

    source: str
    class_name: str = ""
    family: str = ""
    title: str = ""
    linears: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    exact: bool = False
    reason: str = ""


@dataclass(frozen=True)
class Lora:
    """An adapter file by its header; `path` is how it was named.

    `kind` is "LoRA", "LoKr" and the like, "" where it is no adapter; then `holds` says what it is instead, as far as
    that is known. `others` are the tensors that belong to no adapter. `class_name` is the class of the transformer
    whose modules it names, `families` are the records that have them, the likeliest first, and `title` is what these
    are called; "" where no record has them. `foreign` is the name of a family
    without a record that its keys are known by. `copy` is the path of a repaired copy, `copied`
    says that something lies there. `base` is the model that it was to be held against.
    """

    path: str
    file: WeightFile
    kind: str = ""
    holds: str = ""
    modules: tuple[AdaptedModule, ...] = ()
    others: tuple[str, ...] = ()
    class_name: str = ""
    families: tuple[str, ...] = ()
    title: str = ""
    foreign: str = ""
    copy: str = ""
    copied: bool = False
    base: LoraBase | None = None

    @property
    def is_pairs(self) -> bool:
        """Whether it is a LoRA of two factors, with or without DoRA's magnitudes."""
        return self.kind in ("LoRA", "DoRA")

    @cached_property
    def whole_pairs(self) -> tuple[AdaptedModule, ...]:
        """The modules with both factors, which have the same rank."""
        return tuple(module for module in self.modules if self.is_whole(module))

    @cached_property
    def half_pairs(self) -> tuple[AdaptedModule, ...]:
        """The modules of a LoRA with one factor, with two that do not fit each other, or with alpha alone."""
        parts = {*PAIR, "alpha"} if self.is_pairs else set()
        return tuple(one for one in self.modules if not parts.isdisjoint(one.parts) and not self.is_whole(one))

    def is_whole(self, module: AdaptedModule) -> bool:
        """Whether both factors are there, and fit each other."""
        if any(part not in module.parts for part in PAIR):
            return False
        down, up = (self.file.tensors[module.parts[part]].shape for part in PAIR)
        middle = "mid" in module.parts  # of a convolution: B @ mid @ A
        return len(down) >= 2 and len(up) >= 2 and (down[0] == up[1] or middle)

    def rank_of(self, module: AdaptedModule) -> int:
        """The rank of a whole pair."""
        return self.file.tensors[module.parts["A"]].shape[0]

    @cached_property
    def told_alpha(self) -> ToldAlpha | None:
        """The alpha that the metadata says, where it is one for all modules and another than the rank.

        sd-scripts and musubi-tuner write alpha keys; in names of other kinds their alpha is in the numbers already.
        """
        metadata = self.file.metadata
        told = _json(metadata.get(ADAPTER_METADATA, ""))
        alpha, rank = (told.get(f"transformer.{key}", told.get(key)) for key in ("lora_alpha", "r"))
        key = ADAPTER_METADATA
        if (alpha is None or rank is None) and any(module.words == "down" for module in self.modules):
            alpha, rank, key = metadata.get("ss_network_alpha"), metadata.get("ss_network_dim"), "ss_network_alpha"
        try:
            found = ToldAlpha(key, float(alpha or 0), float(rank or 0))
        except (TypeError, ValueError):
            return None
        return found if found.alpha > 0 and found.rank > 0 and found.alpha != found.rank else None


@dataclass(frozen=True)
class ToldAlpha:
    """Alpha and rank as the metadata says them under `key`."""

    key: str
    alpha: float
    rank: float


def _json(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


@dataclass(frozen=True)
class TensorValues:
    """What the numbers of one tensor are. The largest lies at `least` or above and below `most`, by its size.

    `bad` says that some are NaN or infinite; the sizes are those of the others. `clipped` counts those that are the
    largest that the type can hold. `number` is the one number of a tensor that has no more, such as alpha.
    """

    zero: bool
    bad: bool = False
    least: float = 0.0
    most: float = 0.0
    clipped: int = 0
    number: float | None = None


@dataclass(frozen=True)
class LoraValues:
    """The numbers of a LoRA, all of them read; those of `unread` tensors are of a type that is not known here."""

    tensors: Mapping[str, TensorValues]
    unread: tuple[str, ...] = ()
