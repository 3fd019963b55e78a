"""The base model as it lies on disk: weight files by their headers, the parts they make up, the folder of these."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal

from .pattern import pattern
from .record import dataclass, field

# Ends of names beside weights that are stored in eight bits: without these scales every weight is wrong by a factor.
SCALES = (".weight_scale", ".scale_weight", ".scale_input", ".input_scale", ".comfy_quant", "scaled_fp8")
# What files for ComfyUI put before the names of a transformer.
COMFYUI_PREFIX = "model.diffusion_model."

_ADAPTER_KEY = pattern(
    r"(?:diffusion_model\.|transformer\.)?(.+)\.(?:(?:(lora_A|lora_B)(?:\.default)?|(lora_down|lora_up))\.weight|alpha)"
)
_PARTS = {"lora_A": "A", "lora_down": "A", "lora_B": "B", "lora_up": "B", None: "alpha"}


def adapter_part(name: str) -> tuple[str, str]:
    """The module that a tensor of a training adapter is for, and its part of the LoRA there; "" where it is none."""
    key = _ADAPTER_KEY.fullmatch(name)
    return (key[1], _PARTS[key[2] or key[3]]) if key else (name, "")


@dataclass(frozen=True)
class Tensor:
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class WeightFile:
    """One weight file, by its header only. `problem` is None when the header and the size are consistent.

    `metadata` is what the header says of it, texts by name.
    """

    name: str
    path: str
    size: int
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    problem: (
        Literal["missing", "empty", "truncated", "not-safetensors", "bad-header", "pickle", "unreadable"] | None
    ) = None
    detail: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Component:
    """One part of a model folder. `needed` are the tensors the architecture builds, None when it is not known.

    `repo` is the hub repository that the loader takes this part from, None for a plain folder on this machine;
    `key` the field or setting of the run that names it. `strict`: a name that the class lacks stops its loader.
    """

    name: str
    folder: str
    class_name: str | None = None
    config: Mapping[str, Any] | None = None
    weights: tuple[WeightFile, ...] = ()
    index: Mapping[str, str] | None = None
    index_file: str | None = None
    needed: Mapping[str, tuple[int, ...]] | None = None
    needed_reason: str = ""
    missing_files: tuple[str, ...] = ()
    problem: str | None = None
    repo: str | None = None
    key: str = "base_model"
    strict: bool = False

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        """Every tensor of every readable weight file."""
        return {name: tensor for file in self.weights for name, tensor in file.tensors.items()}


@dataclass(frozen=True)
class ModelFolder:
    """The base model as the trainer will open it.

    `source` is the config's word for it; `folder` where the files lie (the snapshot folder for a hub id), or None
    when nothing of it is on this machine; `repo` and `commit` are set when it comes from a hub cache. "part-files":
    the config names a file of its own for each part.
    """

    source: str
    layout: Literal["diffusers", "transformer-only", "single-file", "part-files", "absent"]
    folder: str | None
    components: Mapping[str, Component] = field(default_factory=dict)
    repo: str | None = None
    commit: str | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing of it is on this machine."""
        return not self.components
