"""Tensors are read from files, cast or quantized, and put in the place of the empty ones of a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from ..kernels.quantized_linear import Quantization, QuantizedLinear, quantize_rows, storage_of
from ..runtime.train_error import TrainError
from .safetensors_files import TensorEntry, stream_tensors
from .training_adapter import LoraDelta

# Rows are cast, merged and quantized in pieces of about this many elements. On the CPU a float32 piece stays below
# the allocator's threshold for fresh memory: with larger ones, page faults took 12 times as long as the arithmetic.
PIECE = {"cpu": 1 << 17, "cuda": 1 << 24}


def shapes_of(model: nn.Module) -> dict[str, tuple[int, ...]]:
    """Returns the shape of each parameter and buffer that is saved, by name."""
    return {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}


def linear_shapes(model: nn.Module) -> dict[str, tuple[int, int]]:
    """Returns the (out, in) shape of each Linear by module name."""
    linears = ((name, module) for name, module in model.named_modules() if isinstance(module, nn.Linear))
    return {name: (module.out_features, module.in_features) for name, module in linears}


def device_of(module: nn.Module) -> torch.device:
    return next(iter([*module.parameters(), *module.buffers()])).device


@contextmanager
def empty_parameters() -> Iterator[None]:
    """Models are built with their parameters on meta, but with real buffers and tables, which no file holds."""
    plain = nn.Module.register_parameter

    def register(self: nn.Module, name: str, param: nn.Parameter | None) -> None:
        plain(self, name, None if param is None else nn.Parameter(param.to("meta"), requires_grad=False))

    nn.Module.register_parameter = register  # type: ignore[method-assign]
    try:
        yield
    finally:
        nn.Module.register_parameter = plain  # type: ignore[method-assign]


def read_tensors(
    entries: list[TensorEntry],
    quantized: Mapping[str, tuple[int, int]],
    kind: Quantization,
    adapter: Mapping[str, LoraDelta],
    dtype: torch.dtype,
    device: torch.device,
) -> Iterator[tuple[str, Tensor]]:
    """Yields the model's tensors by name, as they arrive; of a quantized weight what `storage_of` tells."""
    with _one_thread():
        for entry, view in stream_tensors(entries):
            module, _, leaf = entry.name.rpartition(".")
            delta = adapter[module].to(device) if leaf == "weight" and module in adapter else None
            if leaf == "weight" and module in quantized:
                for part, value in _quantized(view, entry, kind, delta, device).items():
                    yield f"{module}.{part}", value
            else:
                yield entry.name, _cast(view, delta, dtype, device)


def install_tensors(model: nn.Module, values: dict[str, Tensor], quantized: Mapping[str, tuple[int, int]]) -> None:
    """Puts the tensors in the place of the empty ones."""
    for name, shape in quantized.items():
        codes, scale = values.pop(f"{name}.codes"), values.pop(f"{name}.scale")
        outliers, bias = (values.pop(f"{name}.{part}", None) for part in ("outliers", "bias"))
        replace_module(model, name, QuantizedLinear(codes, scale, outliers, bias, shape[1]))
    for name, value in values.items():
        _assign(model, name, value)


def check_no_meta(model: nn.Module) -> None:
    """Raises TrainError when a parameter or buffer has no data.

    Nothing else tells: a product with a weight on meta does not fail on the CPU, it returns whatever lies in memory.
    """
    empty = [name for name, tensor in [*model.named_parameters(), *model.named_buffers()] if tensor.is_meta]
    if empty:
        raise TrainError(
            f"{len(empty)} parameters of the model have no data (they are on meta), first {empty[0]}. The files lack "
            "them; fetch the complete model again."
        )


def replace_module(model: nn.Module, name: str, new: nn.Module) -> None:
    """Puts `new` in the place of the submodule `name`."""
    parent, _, leaf = name.rpartition(".")
    setattr(model.get_submodule(parent), leaf, new)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Pieces as small as `PIECE` gain nothing from threads; waiting for them made a busy CPU 16 times as slow."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _quantized(
    view: Tensor, entry: TensorEntry, kind: Quantization, delta: LoraDelta | None, device: torch.device
) -> dict[str, Tensor]:
    rows, columns = entry.shape
    step = max(1, PIECE.get(device.type, 1 << 22) // columns)
    storage = storage_of(kind, (rows, columns))
    whole = {part: torch.empty(shape, dtype=dtype, device=device) for part, (dtype, shape) in storage.items()}
    for start in range(0, rows, step):
        stop = min(rows, start + step)
        piece = _wide(view[start:stop], device)
        if delta is not None:
            piece = piece + delta.rows(start, stop)
        made = quantize_rows(piece, kind)._asdict()
        for part, value in whole.items():
            value[start:stop] = made[part]
    return whole


def _wide(view: Tensor, device: torch.device) -> Tensor:
    """In float32 on the device; made here but for CUDA, since MPS knows neither float8 nor float64."""
    return view.to(device).float() if device.type == "cuda" else view.float().to(device)


def _cast(view: Tensor, delta: LoraDelta | None, dtype: torch.dtype, device: torch.device) -> Tensor:
    if delta is None:
        # A copy even when nothing changes: the view's memory is reused.
        return view.to(device=device, dtype=dtype, copy=True)
    value = _wide(view, device)
    return (value + delta.rows(0, value.shape[0])).to(dtype)


def _assign(model: nn.Module, name: str, value: Tensor) -> None:
    parent, _, leaf = name.rpartition(".")
    module = model.get_submodule(parent)
    if leaf in module._parameters:
        setattr(module, leaf, nn.Parameter(value, requires_grad=False))
    else:
        module.register_buffer(leaf, value)
