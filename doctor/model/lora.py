"""A finished LoRA as it lies on disk: what its file holds for which module, and what its numbers are."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from .record import dataclass, field
from .weights import WeightFile

LORA = "LoRA file"  # stands for a trainer: the rules about finished LoRAs are for these alone
PAIR = ("A", "B")  # the factors of a LoRA: B @ A is added to the weight


@dataclass(frozen=True)
class AdaptedModule:
    """What an adapter holds for one module of a model.

    `key` is what the file writes before each part, of which `prefix` says whose model it is and `path` which module.
    `parts` are the names of its tensors by what they are ("A", "B", "alpha", "lokr_w1"). `linears` are diffusers'
    names of the Linears that it changes, more than one where they are fused; () where the model has none of the name.
    `names` says whose names the path is written in: "d" for diffusers', "o" for the original single files', both
    where they are the same.
    """

    key: str
    prefix: str
    path: str
    parts: Mapping[str, str]
    linears: tuple[str, ...] = ()
    names: str = ""

    @property
    def of_text_encoder(self) -> bool:
        return self.prefix.startswith(("lora_te", "text_encoder"))


@dataclass(frozen=True)
class LoraBase:
    """The model that a LoRA is held against: the class of its transformer, and (out, in) by name of its Linears.

    `source` is how it was named. `exact` says that the sizes are this model's own, not those that are published.
    `reason` says why nothing is known of it, "" where something is.
    """

    source: str
    class_name: str = ""
    title: str = ""
    linears: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    exact: bool = False
    reason: str = ""


@dataclass(frozen=True)
class Lora:
    """An adapter file by its header; `path` is how it was named.

    `kind` is "LoRA", "LoKr" and the like, "" where it is no adapter; then `holds` says what it is instead, as far as
    that is known. `others` are the tensors that belong to no adapter. `class_name` is the class of the transformer
    whose modules it names, `title` the family's name; "" where no record has them. `foreign` is the name of a family
    without a record that its keys are known by. `base` is the model that it was to be held against.
    """

    path: str
    file: WeightFile
    kind: str = ""
    holds: str = ""
    modules: tuple[AdaptedModule, ...] = ()
    others: tuple[str, ...] = ()
    class_name: str = ""
    title: str = ""
    foreign: str = ""
    base: LoraBase | None = None

    @property
    def is_pairs(self) -> bool:
        """Whether it is a LoRA of two factors, with or without DoRA's magnitudes."""
        return self.kind in ("LoRA", "DoRA")

    @cached_property
    def whole_pairs(self) -> tuple[AdaptedModule, ...]:
        """The modules with both factors."""
        return tuple(module for module in self.modules if all(part in module.parts for part in PAIR))


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
