"""A loss that is not finite has a cause, which is looked for in weights and dtype."""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter

import torch
from torch import Tensor, nn

from ...model.recipe import Recipe
from ..settings.names import DTYPES

# No trained weight of a LoRA gets near this: they are below 1, of a LoKr a few.
DIVERGED = 1e3


def explain_divergence(recipe: Recipe, model: nn.Module, parameters: Mapping[str, Tensor]) -> str:
    """Returns what is wrong and what to do, in a sentence or two. `parameters` are the trained ones by their key."""
    broken = [key for key, value in parameters.items() if not torch.isfinite(value).all()]
    if broken:
        return f"The LoRA has diverged ({broken[0]}): lower the learning rate {recipe.learning_rate}."
    sizes = {key: float(value.detach().abs().max()) for key, value in parameters.items()}
    key, largest = max(sizes.items(), key=itemgetter(1))
    if largest > DIVERGED:
        return (
            f"The LoRA has diverged ({key} holds {largest:.1e}): lower the learning rate {recipe.learning_rate}, or "
            "keep max_grad_norm at 1."
        )
    tensors = [*model.named_parameters(), *model.named_buffers()]
    floats = [(name, value) for name, value in tensors if value.is_floating_point()]
    bad = [name for name, value in floats if not torch.isfinite(value.float()).all()]
    if bad:
        return f"The base model holds non-finite weights ({bad[0]}): fetch its files again."
    instead = "" if DTYPES[recipe.precision.dtype] == "float32" else ", or set dtype to fp32 to find out"
    return (
        f"Weights, latents and captions are finite, so the model overflows in {recipe.precision.dtype} on them: "
        f"lower the learning rate {recipe.learning_rate}{instead}."
    )
