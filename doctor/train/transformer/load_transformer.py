"""The transformer is built empty, then filled tensor by tensor, quantized as the tensors arrive.

At no time does more than one full-precision weight exist, so the peak is the size of the quantized model plus one
tensor. A training adapter is merged into each weight before it is quantized. What was made so is kept for the next
start (`weight_cache`); on the CPU each tensor goes to that file as it is made and the file is mapped, so the peak is
one tensor. Where several processes share the model out (`fsdp`), each reads and keeps its rows only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import torch
from torch import Tensor, nn

from ...families import families
from ...families.part_files import title_of
from ...progress import Progress
from ..components.component_files import checked_tensors, component_class, component_config
from ..families import family_named, family_of, family_titles
from ..kernels.quantized_linear import Quantization, storage_of
from ..runtime.train_error import TrainError
from ..weights.materialize import (
    check_no_meta,
    empty_parameters,
    install_tensors,
    linear_shapes,
    read_tensors,
    shapes_of,
)
from ..weights.safetensors_files import TensorEntry
from ..weights.training_adapter import LoraDelta
from ..weights.weight_cache import Layout, WeightCache, weight_key
from .fsdp import ShardPlan, shard_model


def transformer_folder(model_folder: Path) -> Path:
    """Returns the folder of the transformer or UNet in a model's, or `model_folder` itself when it is one."""
    names = {family.own.main: None for family in families() if family.own is not None}
    for folder in (*(model_folder / name for name in names), model_folder):
        if _class_name(folder) is not None:
            return folder
    raise TrainError(f"{model_folder} has no transformer: expected transformer/config.json in it.")


def transformer_sources(model: Path, extras: Path | None, *, alone: bool = False) -> tuple[Path, Path]:
    """Returns the paths of the transformer's config and of its weights, a folder or a single file each.

    A single file has its config, as its other parts, from the `extras`; `alone`, its config is inferred from it.
    Raises TrainError.
    """
    if model.is_file() and alone:
        return model, model
    if not model.is_file():
        folder = transformer_folder(model)
        return folder, folder
    if extras is None:
        raise TrainError(
            f"{model} is a single file, and nothing says where its config.json, text encoder and VAE are. Name a "
            "diffusers folder of the model in extras_name_or_path."
        )
    return transformer_folder(extras), model


def build_empty_transformer(place: Path, told: Mapping[str, Any] = MappingProxyType({})) -> nn.Module:
    """Returns the transformer of a config.json or single file with all parameters on meta. Raises TrainError.

    `told` is what the run says of a single file, where its tensors do not tell.
    """
    if place.is_file():
        path, name = place, component_class(place)
        what = f"{path} holds {title_of(name) or 'no part of a model that is known here'}"
    else:
        path, name = place / "config.json", _class_name(place)
        what = f"{path} describes {name or 'no model'}"
    family = family_named(name or "")
    if family is None:
        raise TrainError(f"{what}; this runner trains {family_titles()} only.")
    config = component_config(place, family.RECORD.class_name)
    config = {**told, **config} if place.is_file() else config
    make: Any = getattr(import_module(family.MODULE), family.RECORD.class_name)
    try:
        with empty_parameters():
            model = make.from_config(config)
    except (AssertionError, TypeError, ValueError, RuntimeError) as error:
        raise TrainError(
            f"No {family.RECORD.title} transformer can be built from {path}: {error or type(error).__name__}."
        ) from error
    return cast(nn.Module, model.eval().requires_grad_(False))


def fill_transformer(
    model: nn.Module,
    folder: Path,
    *,
    quantization: Quantization,
    adapter: Mapping[str, LoraDelta],
    dtype: torch.dtype,
    device: torch.device,
    cache: WeightCache | None = None,
    shares: ShardPlan | None = None,
    progress: Progress | None = None,
) -> None:
    """Gives every parameter of an empty model its value.

    Files and shapes are checked before the first byte of a weight is read. Quantized weights that `cache` holds are
    mapped instead of made; else they are put there, where that can be done. With `shares` this process gets its part
    of the weights; all the processes call this together. Raises TrainError.
    """
    needed = shapes_of(model)
    entries = checked_tensors(folder, type(model).__name__, needed)
    is_quantized = family_of(model).RECORD.is_quantized
    quantized = {n: s for n, s in linear_shapes(model).items() if quantization != "none" and is_quantized(n)}
    loading = _Loading(entries, quantized, quantization, adapter, dtype, device, shares, progress or Progress())
    layout = _layout(needed, quantized, quantization, dtype)
    if cache is None or quantization == "none":
        values = dict(loading.read())
    else:
        values = _through_cache(loading, cache, layout, folder)
    if shares is None:
        install_tensors(model, values, quantized)
    else:
        empty = {name: torch.empty(shape, dtype=kind, device="meta") for name, (kind, shape) in layout.items()}
        install_tensors(model, {n: v if shares.covers(n) else values[n] for n, v in empty.items()}, quantized)
        shard_model(model, values, shares, device)
    check_no_meta(model)
    for module in model.modules():  # tables that no file holds, which each pass would bring there
        for name, buffer in module._buffers.items():
            module._buffers[name] = None if buffer is None else buffer.to(device)


@dataclass(frozen=True)
class _Loading:
    """What the tensors of a transformer are made of, and where they go."""

    entries: list[TensorEntry]
    quantized: Mapping[str, tuple[int, int]]
    quantization: Quantization
    adapter: Mapping[str, LoraDelta]
    dtype: torch.dtype
    device: torch.device
    shares: ShardPlan | None
    progress: Progress

    def read(self, *, whole: bool = False) -> Iterator[tuple[str, Tensor]]:
        """The tensors from the files: those of this process, or all."""
        entries, adapter, shares = self.entries, self.adapter, self.shares
        if shares is not None and not whole:
            entries = [shares.part(entry) for entry in entries]
            adapter = {name: shares.delta(name, delta) for name, delta in adapter.items()}
        values = read_tensors(entries, self.quantized, self.quantization, adapter, self.dtype, self.device)
        parts = len(storage_of(self.quantization, (1, 1))) if self.quantized else 1
        total = len(entries) + (parts - 1) * len(self.quantized)  # of a quantized one come codes, scale, …
        for done, value in enumerate(values, 1):
            self.progress.count(done, total, "tensors")
            yield value


def _through_cache(loading: _Loading, cache: WeightCache, layout: Layout, folder: Path) -> dict[str, Tensor]:
    """The tensors of this process from the cache, where they are put first if it lacks them and has room."""
    dtype = str(loading.dtype).removeprefix("torch.")
    words = {"adapter": cache.adapter, "quantization": loading.quantization, "dtype": dtype}
    key = weight_key(loading.entries, **words)
    shares, device = loading.shares, loading.device

    def checked(values: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
        yield from values
        if weight_key(loading.entries, **words).words != key.words:
            raise TrainError(f"The files of {folder} changed while they were read.")

    def get() -> dict[str, Tensor] | None:
        return cache.get(key, layout, device, None if shares is None else shares.part)

    values = get()
    if shares is not None:
        if shares.ranks.any_rank(values is None):
            if shares.ranks.local == 0 and values is None:
                cache.put(key, layout, checked(loading.read(whole=True)))
            shares.ranks.all_gather(None)
            values = values or get()
        return values or dict(loading.read())
    if values is None and device.type == "cpu" and cache.put(key, layout, checked(loading.read())):
        values = get()
    if values is None:
        values = dict(loading.read())
        if device.type != "cpu":
            cache.put(key, layout, checked(values.items()))
    return values


def _layout(
    expected: Mapping[str, tuple[int, ...]],
    quantized: Mapping[str, tuple[int, int]],
    kind: Quantization,
    dtype: torch.dtype,
) -> Layout:
    """Types and shapes of what `read_tensors` gives, by name."""
    plain = {
        name: (dtype, shape) for name, shape in expected.items() if name.removesuffix(".weight") not in quantized
    }
    return plain | {
        f"{name}.{part}": spec for name, shape in quantized.items() for part, spec in storage_of(kind, shape).items()
    }


def _class_name(folder: Path) -> str | None:
    name = component_config(folder, "").get("_class_name") if (folder / "config.json").is_file() else None
    return name if isinstance(name, str) else None
