"""What is particular to a family of models, one file each; everything else in the runner is the same for all.

To add a family: a file here with these names, its class below, and what `doctor/model/families` and
`doctor/families` know of its files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ..kernels.quantized_linear import Quantization
from ..runtime.train_error import TrainError
from . import flux, zimage

# What a prompt gives the transformer, by the family's own names, on the CPU.
Embedding = Mapping[str, Tensor]


class Family(Protocol):
    """The names that a family's file holds.

    `TITLE` is its name for people, `CLASS_NAME` the transformer's class in `MODULE`, `VERSIONS` what other programs
    find in a LoRA's ss_base_model_version, by the architecture of the config, `PREFIX` what a LoRA's file writes
    before the name of a Linear.
    `TEXT_PARTS` are the parts that encode prompts, with the classes of their models, "" for a tokenizer; `BLOCKS` the
    lists of blocks that may be checkpointed or moved one by one, in the order in which they run. `GUIDED` says that
    the model takes the guidance as a number, so that no second pass with the negative prompt is needed.
    """

    TITLE: str
    CLASS_NAME: str
    MODULE: str
    VERSIONS: Mapping[str, str]
    PREFIX: str
    TEXT_PARTS: Mapping[str, str]
    BLOCKS: tuple[str, ...]
    GUIDED: bool

    def is_quantized(self, name: str) -> bool:
        """Whether the Linear of this name is stored in a quantized format."""
        ...

    def is_target(self, name: str) -> bool:
        """Whether a LoRA covers the Linear of this name."""
        ...

    def channels(self, model: nn.Module) -> int:
        """Of the latents that the model was made for."""
        ...

    def text_encoder(
        self,
        folders: Mapping[str, Path],
        kind: Quantization,
        dtype: torch.dtype,
        device: torch.device,
        *,
        masked: bool = False,
    ) -> Callable[[str], Embedding]:
        """Load what encodes prompts, its large part stored as `kind`.

        `masked`: what fills a short prompt up is not looked at, neither here nor by the transformer.
        Raises TrainError; torch.OutOfMemoryError where it does not fit on `device`.
        """
        ...

    def predict(
        self,
        model: nn.Module,
        noisy: Tensor,
        t: Tensor,
        texts: Sequence[Embedding],
        guidance: float = 1.0,
        control: Tensor | None = None,
    ) -> Tensor:
        """What the model takes for the way from latent to noise, float32, b x c x h x w.

        `noisy` is b x c x h x w in the model's dtype and on its device, `t` in [0, 1] the share of noise, on the
        CPU; `texts` one embedding each. `guidance` counts where the family is `GUIDED` only. `control` are the
        latents of the images that are edited, b x c x any size; they count where `refuse` lets control images pass.
        """
        ...

    def scheduler(self, model_folder: Path, model: nn.Module) -> Any:
        """diffusers' scheduler that previews are painted with: the folder's, else that of models like this one."""
        ...

    def shift(self, cells: int) -> float:
        """The dynamic shift (mu) for a latent of so many 2 x 2 cells, for schedulers that ask for one."""
        ...

    def shifted_times(self, count: int, cells: int) -> Tensor:
        """The descending table of times in (0, 1] that `timestep_type: shift` picks from in training."""
        ...


_FAMILIES: tuple[Family, ...] = (zimage, flux)


def family_named(class_name: str) -> Family | None:
    """The family whose transformer is of this class."""
    return next((family for family in _FAMILIES if class_name == family.CLASS_NAME), None)


def family_of(model: nn.Module) -> Family:
    """The family of a transformer. Raises TrainError for one that the runner does not train."""
    found = (family_named(kind.__name__) for kind in type(model).__mro__)  # FSDP2 puts a class of its own in front
    family = next((family for family in found if family is not None), None)
    if family is None:
        raise TrainError(f"This runner does not train a {type(model).__name__}.")
    return family


def family_titles() -> str:
    """The families for people, with their classes."""
    return ", ".join(f"{family.TITLE} ({family.CLASS_NAME})" for family in _FAMILIES)
