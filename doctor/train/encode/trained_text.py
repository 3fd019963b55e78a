"""LoRAs on text encoders (CLIP, T5), which then encode each prompt anew; cached is what they gave untrained."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from ...model.recipe import Recipe
from ...model.record import replace
from ..families import Embedding, FamilyModule, TextFamilyModule
from ..kernels.quantized_linear import Quantization, QuantizedLinear
from ..network.lora import Network, add_network, network_dropout


@dataclass(frozen=True)
class TrainedText:
    """`networks` are the trained modules by their names in the file, of each component; `parts` encode prompts."""

    networks: Mapping[str, Network]
    parts: Sequence[Callable[[Sequence[str]], Embedding]]

    @property
    def modules(self) -> list[nn.Module]:
        return [module for network in self.networks.values() for module in network.values()]

    def of(self, texts: Sequence[str]) -> list[Embedding]:
        """Returns what these encoders give for each prompt just now, on the device."""
        made = {name: values for part in self.parts for name, values in part(texts).items()}
        return [{name: values[place] for name, values in made.items()} for place in range(len(texts))]


def load_trained_text(
    family: FamilyModule,
    recipe: Recipe,
    folders: Mapping[str, Path],
    kind: Quantization,
    dtype: torch.dtype,
    device: torch.device,
    seed: int,
) -> TrainedText | None:
    """Returns the text encoders that the recipe trains, with a LoRA on each Linear; None where it trains none.

    Raises TrainError, torch.OutOfMemoryError.
    """
    how = replace(recipe.network, excluded="", full="")
    networks: dict[str, Network] = {}
    parts: list[Callable[[Sequence[str]], Embedding]] = []
    for number, name in enumerate(sorted(how.text_rates), start=1):
        of_text = cast(TextFamilyModule, family)
        model, part = of_text.text_part(name, folders, kind, dtype, device, masked=recipe.mask_padding)
        shapes = {
            own: (module.out_features, module.in_features)
            for own, module in model.named_modules()
            if isinstance(module, nn.Linear | QuantizedLinear)
        }
        network = add_network(model, shapes, how, seed + number)
        networks[name] = {of_text.TEXT_PREFIXES[name] + own: module for own, module in network.items()}
        if recipe.offload.gradient_checkpointing:
            _checkpoint_layers(model, random=any(network_dropout(how)))
        parts.append(part)
    return TrainedText(networks, parts) if parts else None


def _checkpoint_layers(model: nn.Module, random: bool) -> None:
    """Lets each layer be computed again in backward."""
    layers = next(module for module in model.modules() if isinstance(module, nn.ModuleList))
    for layer in layers:
        again: Any = partial(checkpoint, layer.forward, use_reentrant=False, preserve_rng_state=random)
        layer.forward = again
