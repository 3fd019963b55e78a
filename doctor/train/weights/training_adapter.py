"""The training (assistant) adapter is a LoRA file that is merged into the base model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ...model.weights import adapter_part
from ..runtime.train_error import TrainError
from .safetensors_files import stream_tensors, tensor_entries


@dataclass(frozen=True)
class LoraDelta:
    """A low-rank change of one Linear: weight += scale * up @ down. down is rank x in, up is out x rank, float32."""

    down: Tensor
    up: Tensor
    scale: float

    def rows(self, start: int, stop: int) -> Tensor:
        """Returns the change of the weight's rows start..stop, float32, on the device of the adapter."""
        return (self.up[start:stop] @ self.down) * self.scale

    def to(self, device: torch.device) -> LoraDelta:
        return LoraDelta(self.down.to(device), self.up.to(device), self.scale)


def read_training_adapter(file: Path, linears: dict[str, tuple[int, int]]) -> dict[str, LoraDelta]:
    """Returns the deltas of an adapter file by module name, on the CPU, checked against the model's `linears`.

    Raises TrainError when the file is no LoRA for this model; nothing of the model needs to be loaded for that.
    """
    if not file.is_file():
        kind = "is a folder; name the .safetensors file in it" if file.is_dir() else "does not exist"
        raise TrainError(f"The training adapter {file} {kind}.")
    entries = tensor_entries([file])
    tensors = {
        entry.name: view.to(torch.float32, copy=True) for entry, view in stream_tensors(list(entries.values()))
    }
    parts: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        module, part = adapter_part(name)
        if not part:
            raise TrainError(f"{file} is not a LoRA that can be merged: {name} is neither lora_A, lora_B nor alpha.")
        parts.setdefault(module, {})[part] = tensor
    if not parts:
        raise TrainError(f"{file} holds no tensors.")
    unknown = [module for module in parts if module not in linears]
    if unknown:
        raise TrainError(
            f"The adapter {file} was made for another architecture: {len(unknown)} of its {len(parts)} modules "
            f"do not exist in this model, for example {unknown[0]}."
        )
    deltas: dict[str, LoraDelta] = {}
    for module, found in parts.items():
        if "A" not in found or "B" not in found:
            raise TrainError(f"The adapter {file} is incomplete: {module} lacks lora_{'B' if 'A' in found else 'A'}.")
        down, up = found["A"], found["B"]
        if (up.shape[0], down.shape[1]) != linears[module] or up.shape[1] != down.shape[0]:
            raise TrainError(
                f"The adapter {file} does not fit this model: {module} is {list(linears[module])}, the adapter has "
                f"{list(up.shape)} @ {list(down.shape)}."
            )
        scale = float(found["alpha"]) / down.shape[0] if "alpha" in found else 1.0
        deltas[module] = LoraDelta(down, up, scale)
    return deltas
