"""The base model of a run is opened by its headers first and filled with its weights later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from ..families.network import described
from ..files import fingerprints
from .components.component_files import check_components, checked_tensors, component_folder
from .components.vae import VaeFiles
from .device_placement import DevicePlacement
from .families import FamilyModule, family_trained
from .job import Job
from .kernels.quantized_linear import Quantization
from .settings.names import KINDS
from .transformer.fsdp import ShardPlan, shard_note
from .transformer.load_transformer import build_empty_transformer, fill_transformer, transformer_sources
from .transformer.transformer_blocks import block_names
from .weights.materialize import linear_shapes, shapes_of
from .weights.safetensors_files import weight_files
from .weights.training_adapter import LoraDelta, read_training_adapter
from .weights.weight_cache import WeightCache, cache_folder


@dataclass(frozen=True)
class BaseModel:
    """The transformer, empty at first, with the paths of its config, its weights and the other components.

    `adapter` is what is merged into the weights by the name of the Linear, on the CPU; `kind` how they are stored.
    """

    model: nn.Module
    config: Path
    weights: Path
    components: Mapping[str, Path]
    adapter: dict[str, LoraDelta]
    kind: Quantization
    family: FamilyModule

    @property
    def divisor(self) -> int:
        """The number of pixels that both sides of a training image must be divisible by."""
        return 2 * self.vae.shrink

    @property
    def vae(self) -> VaeFiles:
        class_name, config = self.family.RECORD.published["vae"]
        factors = {key: config[key] for key in ("scaling_factor",) if key in config}
        return VaeFiles(self.components["vae"], class_name, {"shift_factor": None, **factors} if factors else {})


def open_base_model(job: Job) -> BaseModel:
    """Returns the model of the job without its weights, each file checked by its header. Raises TrainError."""
    config, weights = transformer_sources(job.model, job.extras, alone=bool(job.components))
    told = job.recipe.parts[0].config if job.recipe.parts else {}
    model = build_empty_transformer(config, told)
    checked_tensors(weights, type(model).__name__, shapes_of(model))
    adapter = {} if job.adapter is None else read_training_adapter(job.adapter, linear_shapes(model))
    family = family_trained(job.recipe.architecture, model)
    kinds = {"vae": family.RECORD.published["vae"][0], **family.TEXT_PARTS}
    parts = {name: job.components.get(name) or component_folder(name, job.model, job.extras) for name in kinds}
    check_components(parts, kinds)
    kind: Any = KINDS[job.recipe.precision.quantization]
    return BaseModel(model, config, weights, parts, adapter, kind, family)


def state_identity(job: Job, base: BaseModel) -> dict[str, str]:
    """Returns what must be the same for a saved state of the run to fit."""
    described_by = [] if base.config.is_file() else [base.config / "config.json"]
    return {
        "rank": described(job.recipe.network),
        "base model": fingerprints.of_ends([*described_by, *weight_files(base.weights)]),
        "adapter": "none" if job.adapter is None else fingerprints.of_file(job.adapter)[:16],
        "quantization": base.kind,
    }


def load_weights(job: Job, place: DevicePlacement, base: BaseModel, adapter_digest: str) -> None:
    """Fills the transformer with its weights.

    Of several processes that share it, each gets its part. Raises TrainError.
    """
    job.progress.phase(f"Loading the transformer ({base.kind}, {place.precision.name})")
    shares = ShardPlan(job.ranks, block_names(base.model)) if job.ranks.sharded else None
    fill_transformer(
        base.model,
        base.weights,
        quantization="float16" if place.precision.scaled_float16 and base.kind == "none" else base.kind,
        adapter=base.adapter,
        dtype=place.dtype,
        device=place.weights_device,
        cache=None if base.kind == "none" else WeightCache(cache_folder(), adapter_digest, job.progress.note),
        shares=shares,
        progress=job.progress,
    )
    if shares is not None:
        job.progress.note(shard_note(base.model, job.ranks))
