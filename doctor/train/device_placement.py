"""The device placement of a run: device, precision, compiled blocks, weights that wait in host memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ..families.network import offloaded_share
from .job import Job
from .runtime.precision import ComputePrecision, choose_precision
from .runtime.train_error import TrainError
from .settings.names import KINDS
from .transformer.transformer_blocks import why_not_compiled

CUDA: Any = torch.cuda


@dataclass(frozen=True)
class DevicePlacement:
    """The device of the steps and the precision there; `offloaded` is the share of the weights in host memory."""

    device: torch.device
    precision: ComputePrecision
    compiled: bool
    offloaded: float

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of all that is not quantized."""
        return self.precision.dtype

    @property
    def weights_device(self) -> torch.device:
        return torch.device("cpu") if self.offloaded else self.device


def choose_placement(job: Job) -> DevicePlacement:
    """Returns what the config asks for as far as this machine has it; notes say what it has not. Raises TrainError.

    Of a card that is there and cannot be used it raises what PyTorch says, RuntimeError.
    """
    recipe = job.recipe
    note, sharded = job.progress.note, job.ranks.sharded
    device = _device(job)
    quantizations = (recipe.precision.quantization, recipe.precision.text_encoder_quantization)
    if device.type == "mps" and "float8" in (KINDS.get(name) for name in quantizations):
        raise TrainError(
            "PyTorch keeps no float8 weights on MPS. Write qtype: int8 (and qtype_te: int8), which is as large and "
            "more exact."
        )
    precision = choose_precision(recipe.precision.dtype, device)
    if precision.note:
        note(precision.note)
    compiled = job.recipe.offload.compile
    if compiled and (reason := why_not_compiled(device)):
        raise TrainError(reason)
    if compiled and (precision.scaled_float16 or sharded):
        note("Blocks are not compiled: that goes neither with float16 nor with weights shared among GPUs.")
        compiled = False
    offloaded = offloaded_share(job.run)
    if offloaded and device.type != "cuda":
        note("layer_offloading has no effect: the weights are in the memory of this computer anyway.")
        offloaded = 0.0
    if offloaded and sharded:
        raise TrainError("layer_offloading does not go with weights shared among GPUs. Take one of the two out.")
    return DevicePlacement(device, precision, compiled, offloaded)


def _device(job: Job) -> torch.device:
    name = job.device or job.run.device
    if name == "cuda" and job.ranks.size > 1:
        name = f"cuda:{job.ranks.local}"
    try:
        device = torch.device(name)
        there = _is_there(device)
    except RuntimeError:
        raise TrainError(f"{name!r} is not a device; write cuda, cuda:1, mps or cpu.") from None
    if not there:
        if device.type == "cuda" and torch.cuda.device_count():  # the driver counts cards that CUDA cannot use
            CUDA.init()  # raises why
        none = f"PyTorch {torch.__version__} sees no {device.type.upper()} device"
        if job.device is not None:
            raise TrainError(f"{job.device} was asked for, but {none}.")
        job.progress.note(f"{none}: the run trains on the CPU, which is slow.")
        return torch.device("cpu")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise TrainError(
            f"There is no {name}: the last device that PyTorch sees is cuda:{torch.cuda.device_count() - 1}."
        )
    if device.type == "cuda" and device.index is not None:
        torch.cuda.set_device(device)  # what asks for no device would take room for a context on the first one
    return device


def _is_there(device: torch.device) -> bool:
    """Whether PyTorch has such devices on this machine. Raises RuntimeError for what is none to compute on."""
    if device.type == "mps":
        return torch.backends.mps.is_available()
    return device.type == "cpu" or bool(torch.get_device_module(device).is_available())
