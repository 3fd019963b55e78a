"""Loading a text encoder: as transformers does it, or tensor by tensor with the Linears of its layers quantized."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from .pretrained import load_pretrained
from .quantize import Kind
from .tensorfiles import check_complete, collect, weight_files


def load_encoder(make: Any, folder: Path, what: str, kind: Kind, dtype: torch.dtype, device: torch.device) -> Any:
    """The frozen model of class `make` on the device. Raises TrainError, torch.OutOfMemoryError."""
    if kind == "none":
        return load_pretrained(make, folder, what, dtype=dtype).to(device)
    return load_streamed(make, folder, kind, dtype, device)


def load_streamed(make: Any, folder: Path, kind: Kind, dtype: torch.dtype, device: torch.device) -> Any:
    """The model with every Linear quantized as it arrives: never more than one whole weight is in memory."""
    from .load import install_tensors, linears, read_tensors

    with _empty_parameters():
        model = make(make.config_class.from_pretrained(str(folder))).eval()
    model.tie_weights()
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    unique = {name for name, _ in model.named_parameters()}
    needed = {name: shape for name, shape in shapes.items() if name in unique or not _is_parameter(model, name)}
    entries = collect(weight_files(folder))
    for prefix in ("", f"{make.base_model_prefix}."):  # a model with a head on top names its parts with a prefix
        found = {name: entries[prefix + name] for name in needed if prefix + name in entries}
        if found:
            break
    check_complete(found, needed, folder)
    quantized = {} if kind == "none" else linears(model)
    wanted = [replace(found[name], name=name) for name in needed]
    install_tensors(model, dict(read_tensors(wanted, quantized, kind, {}, dtype, device)), quantized)
    model.tie_weights()
    return model.requires_grad_(False).to(device)


def _is_parameter(model: nn.Module, name: str) -> bool:
    owner, _, leaf = name.rpartition(".")
    return leaf in model.get_submodule(owner)._parameters


@contextmanager
def _empty_parameters() -> Iterator[None]:
    """Models are built with their parameters on meta, but with real buffers, which no file holds."""
    plain = nn.Module.register_parameter

    def register(self: nn.Module, name: str, param: nn.Parameter | None) -> None:
        plain(self, name, None if param is None else nn.Parameter(param.to("meta"), requires_grad=False))

    nn.Module.register_parameter = register  # type: ignore[method-assign]
    try:
        yield
    finally:
        nn.Module.register_parameter = plain  # type: ignore[method-assign]
