"""How large a Z-Image model is: the numbers a memory prediction rests on."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from ..model import Component, ModelFolder, Run, Unknown
from ..model.families import BY_FILES
from ..model.record import dataclass
from . import needed_tensors
from .zimage import lora_linears, quantizable

QWEN3_4B: Mapping[str, Any] = {
    "hidden_size": 2560,
    "intermediate_size": 9728,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "tie_word_embeddings": True,
}
_VAE_PARAMETERS = 83_800_000


@dataclass(frozen=True)
class Sizes:
    """What of the model matters for memory: counts are numbers of parameters, `linears` the sides of LoRA targets."""

    width: int
    heads: int
    layers: int
    refiners: int
    blocks: int
    block_rows: int
    rest: int
    linears: tuple[tuple[int, int], ...]
    text_encoder: int
    vae: int
    vae_width: int
    stored: int
    assumed: str = ""

    @property
    def lora_sides(self) -> int:
        return sum(sum(sides) for sides in self.linears)


def sizes_of(run: Run, model: ModelFolder) -> Sizes | Unknown:
    """The sizes of a Z-Image model from its own config.json and headers; the published ones stand in for a model
    that is not on this machine yet and is called Z-Image.
    """
    if run.trainer in BY_FILES:
        return Unknown(f"memory is not predicted for {run.trainer}, which swaps blocks and casts weights as it goes")
    if run.architecture not in ("zimage", "z_image"):
        return Unknown(f"memory is predicted for Z-Image only, this run trains {run.architecture}")
    transformer = model.components.get("transformer")
    published = model.layout in ("absent", "single-file") and "z-image" in model.source.lower()
    config = transformer.config if transformer is not None and transformer.needed is not None else None
    if config is not None:
        # not `needed`, which is in the layout of the files: in a single file q, k and v are fused
        shapes = needed_tensors("ZImageTransformer2DModel", config) or {}
    elif published:
        shapes, config = needed_tensors("ZImageTransformer2DModel", {}) or {}, {}
    else:
        return Unknown("the transformer's config.json is not on this machine")
    blocks = quantizable(shapes)
    total = sum(prod(shape) for shape in shapes.values())
    text_encoder, vae = model.components.get("text_encoder"), model.components.get("vae")
    encoder_parameters = _parameters(text_encoder)
    vae_parameters = _parameters(vae)
    guessed = encoder_parameters == 0 or published
    if encoder_parameters == 0:
        published_encoder = needed_tensors("Qwen3ForCausalLM", QWEN3_4B) or {}
        encoder_parameters = sum(prod(shape) for shape in published_encoder.values())
    widths = vae.config.get("block_out_channels") if vae is not None and vae.config else None
    first = widths[0] if isinstance(widths, list) and widths and isinstance(widths[0], int) else 128
    return Sizes(
        width=int(config.get("dim", 3840)),
        heads=int(config.get("n_heads", 30)),
        layers=int(config.get("n_layers", 30)),
        refiners=int(config.get("n_refiner_layers", 2)),
        blocks=sum(prod(shape) for shape in blocks.values()),
        block_rows=sum(shape[0] for shape in blocks.values()),
        rest=total - sum(prod(shape) for shape in blocks.values()),
        linears=tuple(lora_linears(shapes).values()),
        text_encoder=encoder_parameters,
        vae=vae_parameters or _VAE_PARAMETERS,
        vae_width=first,
        stored=_stored_width(transformer),
        assumed="parts that are not on this machine taken as published" if guessed else "",
    )


def _parameters(component: Component | None) -> int:
    if component is None:
        return 0
    shapes = component.needed or {name: tensor.shape for name, tensor in component.tensors.items()}
    return sum(prod(shape) for shape in shapes.values())


def _stored_width(component: Component | None) -> int:
    """Bytes per number of the largest tensor on disk, 2 when nothing is there."""
    tensors = component.tensors.values() if component is not None else ()
    largest = max(tensors, key=lambda tensor: prod(tensor.shape), default=None)
    return {"F32": 4, "F64": 8, "F8_E4M3": 1, "F8_E5M2": 1}.get(largest.dtype, 2) if largest else 2
