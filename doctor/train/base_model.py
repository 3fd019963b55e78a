"""The base model of a run: found and checked by its headers, later filled with its weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from ..families.network import described
from ..files import fingerprints
from .components.component_files import check_parts, component
from .components.vae import vae_divisor
from .device_placement import Place
from .families import Family, family_of
from .job import Job
from .kernels.quantized_linear import Kind
from .settings.names import KINDS
from .transformer.fsdp import Shares, told
from .transformer.load_transformer import build_empty, fill, sources, transformer_entries
from .weights.materialize import linears
from .weights.safetensors_files import check_complete, weight_files
from .weights.training_adapter import Delta, read_adapter
from .weights.weight_cache import WeightCache, cache_folder


@dataclass(frozen=True)
class Base:
    """The transformer, empty at first, with the places of its config, its weights and the other parts.

    `adapter` is what is merged into the weights by the name of the Linear, on the CPU; `kind` how they are stored.
    """

    model: nn.Module
    config: Path
    weights: Path
    parts: Mapping[str, Path]
    adapter: dict[str, Delta]
    kind: Kind

    @property
    def family(self) -> Family:
        return family_of(self.model)

    @property
    def divisor(self) -> int:
        """What the sides of a picture must be divisible by."""
        return vae_divisor(self.parts["vae"])


def open_base(job: Job) -> Base:
    """The model of the job without its weights, every file checked as far as its header tells. Raises TrainError."""
    config, weights = sources(job.model, job.extras, alone=bool(job.parts))
    model = build_empty(config)
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    check_complete(transformer_entries(model, weights), expected, weights)
    adapter = {} if job.adapter is None else read_adapter(job.adapter, linears(model))
    texts = family_of(model).TEXT_PARTS
    parts = {name: job.parts.get(name) or component(name, job.model, job.extras) for name in ("vae", *texts)}
    check_parts(parts, texts)
    kind: Any = KINDS[job.run.recipe.precision.quantization]
    return Base(model, config, weights, parts, adapter, kind)


def identity_of(job: Job, base: Base) -> dict[str, str]:
    """What must be the same for a saved state of the run to fit."""
    described_by = [] if base.config.is_file() else [base.config / "config.json"]
    return {
        "rank": described(job.run.recipe.network),
        "base model": fingerprints.of_ends([*described_by, *weight_files(base.weights)]),
        "adapter": "none" if job.adapter is None else fingerprints.of_file(job.adapter)[:16],
        "quantization": base.kind,
    }


def load_weights(job: Job, place: Place, base: Base, adapter_digest: str) -> None:
    """Fill the model. Of several processes that share it, each gets its part. Raises TrainError."""
    job.progress.phase(f"Loading the transformer ({base.kind}, {place.arithmetic.name})")
    shares = Shares(job.ranks, base.family.BLOCKS) if job.ranks.sharded else None
    fill(
        base.model,
        base.weights,
        quantization="float16" if place.arithmetic.half and base.kind == "none" else base.kind,
        adapter=base.adapter,
        dtype=place.dtype,
        device=place.home,
        cache=None if base.kind == "none" else WeightCache(cache_folder(), adapter_digest, job.progress.note),
        shares=shares,
    )
    if shares is not None:
        job.progress.note(told(base.model, job.ranks))
