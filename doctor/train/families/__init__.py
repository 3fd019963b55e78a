"""What of a model family takes torch, one module each; everything else is in its record (doctor/families)."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn

from ...families import families, family_with, in_diffusers
from ...families import family_of as family_of_name
from ...families.record import Family
from ...model.objective import Loss
from ..kernels.quantized_linear import Quantization
from ..runtime.train_error import TrainError
from ..runtime.transfer import to_device

# What a prompt gives the transformer, by the family's own names, on the CPU.
Embedding = Mapping[str, Tensor]
_PLAIN = Loss()


class FamilyModule(Protocol):
    """The names that a family's module holds; of flow matching `mu` and `shifted_times`, too (`FlowModule`).

    `RECORD` is its record, `MODULE` where the transformer's class is. `TEXT_PARTS` are the components that encode
    prompts, with the classes of their models, "" for a tokenizer. `RESCALES` says that a guess which guidance has
    moved is brought back to the length it had, cell by cell.
    """

    RECORD: Family
    MODULE: str
    TEXT_PARTS: Mapping[str, str]
    RESCALES: bool

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
    ) -> Callable[..., Embedding]:
        """Load what encodes prompts, its large part stored as `kind`.

        It is called with a prompt and, where the record's edits are `seen`, a list of images.
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
        controls: Sequence[Tensor] = (),
    ) -> Tensor:
        """What the model answers, float32, b x c x h x w: the way from latent to noise, of diffusion the noise or v.

        `noisy` is b x c x h x w in the model's dtype and on its device, `t` in [0, 1] the time (`noising`), on the
        CPU; `texts` one embedding each. `guidance` counts where the family is guided only. `controls` are the
        latents of the images that are edited, b x c x any size each; they count where the record has `edits`.
        """
        ...


class FlowModule(FamilyModule, Protocol):
    """A family of flow matching: how its times are shifted."""

    def mu(self, cells: int, steps: int, scheduler: Mapping[str, Any]) -> float:
        """The shift of a sample of so many 2 x 2 cells, for schedulers that ask for one; by its config."""
        ...

    def shifted_times(self, count: int, cells: int) -> Tensor:
        """The descending table of times in (0, 1] that `timestep_type: shift` picks from in training."""
        ...


class TextFamilyModule(FamilyModule, Protocol):
    """A family whose text encoders may get a LoRA, too: those of `TEXT_PREFIXES`.

    These are what stands before the names of their Linears in its file, by the names of the components.
    """

    TEXT_PREFIXES: Mapping[str, str]

    def text_part(
        self,
        name: str,
        folders: Mapping[str, Path],
        kind: Quantization,
        dtype: torch.dtype,
        device: torch.device,
        *,
        masked: bool = False,
    ) -> tuple[nn.Module, Callable[[Sequence[str]], Embedding]]:
        """Load one text encoder; what comes with it gives its part of the embeddings of prompts, one behind the
        other, on the device and with gradients.
        """
        ...


def family_named(class_name: str) -> FamilyModule | None:
    """The family whose transformer is of this class."""
    record = in_diffusers(family_with(class_name))
    return None if record.own is None else module_of(record)


def module_of(record: Family) -> FamilyModule:
    """The module of a family that is trained."""
    return cast(FamilyModule, import_module(record.runner, __name__))


def family_trained(architecture: str | None, model: nn.Module) -> FamilyModule:
    """The family of a run and its transformer, of those that have this class. Raises TrainError."""
    by_class, record = family_of(model), family_of_name(architecture)
    same = record.own is not None and record.class_name == by_class.RECORD.class_name
    return module_of(record) if same else by_class


def family_of(model: nn.Module) -> FamilyModule:
    """The family of a transformer. Raises TrainError for one that the runner does not train."""
    found = (family_named(kind.__name__) for kind in type(model).__mro__)  # FSDP2 puts a class of its own in front
    family = next((family for family in found if family is not None), None)
    if family is None:
        raise TrainError(f"This runner does not train a {type(model).__name__}.")
    return family


def family_titles() -> str:
    """The families for people, with their classes."""
    known = {family.class_name: family.title for family in reversed(families()) if family.own is not None}
    return ", ".join(f"{title} ({name})" for name, title in reversed(known.items()))


def shift(cells: int, scheduler: Mapping[str, Any]) -> float:
    """The shift (mu) for a latent of so many 2 x 2 cells, for schedulers that ask for one; by its config."""
    few, many = scheduler.get("base_image_seq_len", 256), scheduler.get("max_image_seq_len", 4096)
    low, high = scheduler.get("base_shift", 0.5), scheduler.get("max_shift", 1.15)
    return float(low + (high - low) * (cells - few) / (many - few))


def mu_of_cells(cells: int, steps: int, scheduler: Mapping[str, Any]) -> float:
    """`mu` of families whose steps do not count."""
    return shift(cells, scheduler)


def shifted_by_size(cells: int, count: int, scheduler: Mapping[str, Any]) -> Tensor:
    """An even table of times, shifted the more the larger the picture is, as its scheduler does."""
    grid = torch.linspace(1.0, 1.0 / count, count)
    growth = math.exp(shift(cells, scheduler))
    return growth * grid / (1.0 + (growth - 1.0) * grid)


def plain_channels(model: nn.Module) -> int:
    """The channels of the latents of a model that takes them as they are."""
    config: Any = model.config
    return int(config.in_channels)


def packed_channels(model: nn.Module) -> int:
    """The channels of the latents of a model that takes them in cells of 2 x 2."""
    config: Any = model.config
    return int(config.in_channels) // 4


def stacked(texts: Sequence[Embedding], name: str, like: Tensor) -> Tensor:
    """What prompts give by this name, one behind the other, on the device and in the dtype of `like`."""
    return to_device(torch.stack([text[name] for text in texts]), like.device, like.dtype)


def packed(latent: Tensor) -> Tensor:
    """b x c x h x w to b x (h/2 w/2) x 4c: cells of 2 x 2."""
    count, depth, height, width = latent.shape
    cells = latent.reshape(count, depth, height // 2, 2, width // 2, 2).permute(0, 2, 4, 1, 3, 5)
    return cells.reshape(count, height * width // 4, 4 * depth)


def unpacked(cells: Tensor, height: int, width: int) -> Tensor:
    """The latent b x c x height x width of its `packed` cells."""
    split = cells.reshape(len(cells), height // 2, width // 2, -1, 2, 2).permute(0, 3, 1, 4, 2, 5)
    return split.reshape(len(cells), -1, height, width)


def scheduler_config(family: Family, model_folder: Path, model: nn.Module, loss: Loss = _PLAIN) -> dict[str, Any]:
    """The config of the model folder's scheduler, else of that of models like this one, with what a run's loss says
    of it. Raises TrainError.
    """
    file = model_folder / "scheduler" / "scheduler_config.json"
    of_model: Any = model.config
    config = family.scheduler(of_model)
    if file.is_file():
        try:
            config = {**json.loads(file.read_text(encoding="utf-8"))}
        except (OSError, ValueError, TypeError) as error:
            raise TrainError(f"{file} cannot be read: {error}.") from error
    said = {"prediction_type": loss.prediction, "rescale_betas_zero_snr": loss.zero_terminal_snr}
    return {**config, **{key: value for key, value in said.items() if value}}


def scheduler_of(family: Family, model_folder: Path, model: nn.Module, loss: Loss = _PLAIN) -> Any:
    """diffusers' scheduler that samples are drawn with."""
    config = scheduler_config(family, model_folder, model, loss)
    name = str(config.get("_class_name", "")) if family.diffuses else ""
    make: Any = getattr(import_module("diffusers"), name or "FlowMatchEulerDiscreteScheduler")
    return make.from_config(config)
