"""How large a model is: the numbers a memory prediction rests on."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from ..families.flux.tensors import flux_block_linears
from ..families.loading import BY_FILES
from ..families.part_files import CLIP_L, QWEN3_4B, T5_XXL
from ..families.tensors import needed_tensors
from ..families.zimage.tensors import lora_linears, quantizable
from ..model import Component, ModelFolder, Run, Unknown
from ..model.record import dataclass

_VAE_PARAMETERS = 83_800_000


@dataclass(frozen=True)
class Kind:
    """What a prediction for one kind of transformer rests on.

    `published` is a word in the names of its published models, `encoders` are part -> class and config of these.
    `kept` is what a block keeps for its backward, `moment` what it needs for a moment beside that: bytes per token
    and unit of width in 16-bit training; `half_kept` and `half_moment` are the same where zdoctor's runner multiplies
    in float16 (doctor/train/kernels/float16.py). All were fitted to traces of the full-size model
    (benchmarks/trace.py). A prompt has `text` tokens, and sequences are padded to a multiple of `padding`. `beside`
    says that ai-toolkit loads the text encoders while the transformer is on the card, and
    quantizes the transformer there.
    """

    class_name: str
    published: str
    encoders: Mapping[str, tuple[str, Mapping[str, Any]]]
    kept: float
    moment: float
    half_kept: float
    half_moment: float
    text: int
    padding: int
    beside: bool


# RMSNorm and RoPE of diffusers keep 32-bit copies, hence the sizes.
_ZIMAGE = Kind(
    class_name="ZImageTransformer2DModel",
    published="z-image",
    encoders={"text_encoder": ("Qwen3ForCausalLM", QWEN3_4B)},
    kept=69.5,
    moment=14.0,
    half_kept=96.6,
    half_moment=14.4,
    text=256,
    padding=32,
    beside=False,
)
_FLUX = Kind(
    class_name="FluxTransformer2DModel",
    published="flux.1",
    encoders={"text_encoder": ("CLIPTextModel", CLIP_L), "text_encoder_2": ("T5EncoderModel", T5_XXL)},
    kept=44.7,
    moment=16.6,
    half_kept=73.5,
    half_moment=26.5,
    text=512,
    padding=1,
    beside=True,
)
_KINDS = {"zimage": _ZIMAGE, "z_image": _ZIMAGE, "flux": _FLUX, "flux_kontext": _FLUX}


@dataclass(frozen=True)
class Sizes:
    """What of the model matters for memory: counts are numbers of parameters.

    `linears` are the (inputs, outputs) of the Linears that a LoRA may cover, by their names; `block` are the numbers
    in the Linears of the largest block, `text_linears` those of the largest text encoder, which is stored in
    `text_stored` bytes each.
    """

    kind: Kind
    width: int
    heads: int
    layers: int
    refiners: int
    blocks: int
    block: int
    block_rows: int
    rest: int
    linears: Mapping[str, tuple[int, int]]
    text_encoder: int
    text_linears: int
    text_stored: int
    vae: int
    vae_width: int
    stored: int
    assumed: str = ""

    @property
    def lora_sides(self) -> int:
        return sum(sum(sides) for sides in self.linears.values())


def sizes_of(run: Run, model: ModelFolder) -> Sizes | Unknown:
    """The sizes of a Z-Image or Flux model from its own config.json and headers; the published ones stand in for a
    model that is not on this machine yet and has a published one's name.
    """
    if run.trainer in BY_FILES:
        return Unknown(f"memory is not predicted for {run.trainer}, which swaps blocks and casts weights as it goes")
    kind = _KINDS.get(run.recipe.architecture or "")
    if kind is None:
        return Unknown(f"memory is predicted for Z-Image and Flux only, this run trains {run.recipe.architecture}")
    transformer = model.components.get("transformer")
    published = model.layout in ("absent", "single-file") and kind.published in model.source.lower()
    config = transformer.config if transformer is not None and transformer.needed is not None else None
    if config is None and published:
        config = {"guidance_embeds": True} if kind is _FLUX and "schnell" not in model.source.lower() else {}
    if config is None:
        return Unknown("the transformer's config.json is not on this machine")
    # not `needed`, which is in the layout of the files: in a single file q, k and v are fused
    shapes = needed_tensors(kind.class_name, config) or {}
    blocks = quantizable(shapes) if kind is _ZIMAGE else flux_block_linears(shapes)
    linears = (
        lora_linears(shapes, run.recipe.network.refiners)
        if kind is _ZIMAGE
        else {name: (inputs, out) for name, (out, inputs) in blocks.items()}
    )
    in_blocks = sum(prod(shape) for shape in blocks.values())
    encoders = {name: _shapes(model.components.get(name)) for name in kind.encoders}
    guessed = published or not all(encoders.values())
    for name, (class_name, published_config) in kind.encoders.items():
        encoders[name] = encoders[name] or needed_tensors(class_name, published_config) or {}
    largest = max(encoders, key=lambda name: _count(encoders[name]))  # CLIP, the other one of Flux, stays as it is
    vae = model.components.get("vae")
    widths = vae.config.get("block_out_channels") if vae is not None and vae.config else None
    first = widths[0] if isinstance(widths, list) and widths and isinstance(widths[0], int) else 128
    return Sizes(
        kind=kind,
        **(_zimage_sides(config) if kind is _ZIMAGE else _flux_sides(config)),
        blocks=in_blocks,
        block=_largest_block(blocks),
        block_rows=sum(shape[0] for shape in blocks.values()),
        rest=_count(shapes) - in_blocks,
        linears={name.removesuffix(".weight"): sides for name, sides in linears.items()},
        text_encoder=sum(map(_count, encoders.values())),
        text_linears=_count({n: shape for n, shape in encoders[largest].items() if _is_linear(n, shape)}),
        text_stored=_stored_width(model.components.get(largest)),
        vae=_parameters(vae) or _VAE_PARAMETERS,
        vae_width=first,
        stored=_stored_width(transformer),
        assumed="parts that are not on this machine taken as published" if guessed else "",
    )


def _largest_block(shapes: Mapping[str, tuple[int, ...]]) -> int:
    """Of weights whose names begin with a list of blocks and the number in it."""
    found: dict[str, int] = {}
    for name, shape in shapes.items():
        block = ".".join(name.split(".")[:2])
        found[block] = found.get(block, 0) + prod(shape)
    return max(found.values(), default=0)


def _zimage_sides(config: Mapping[str, Any]) -> dict[str, int]:
    return {
        "width": int(config.get("dim", 3840)),
        "heads": int(config.get("n_heads", 30)),
        "layers": int(config.get("n_layers", 30)),
        "refiners": int(config.get("n_refiner_layers", 2)),
    }


def _flux_sides(config: Mapping[str, Any]) -> dict[str, int]:
    heads = int(config.get("num_attention_heads", 24))
    return {
        "width": heads * int(config.get("attention_head_dim", 128)),
        "heads": heads,
        "layers": int(config.get("num_layers", 19)) + int(config.get("num_single_layers", 38)),
        "refiners": 0,
    }


def _count(shapes: Mapping[str, tuple[int, ...]]) -> int:
    return sum(prod(shape) for shape in shapes.values())


def _shapes(component: Component | None) -> Mapping[str, tuple[int, ...]]:
    if component is None:
        return {}
    return component.needed or {name: tensor.shape for name, tensor in component.tensors.items()}


def _parameters(component: Component | None) -> int:
    return _count(_shapes(component))


def _is_linear(name: str, shape: tuple[int, ...]) -> bool:
    """Whether this is the weight of a Linear inside a text encoder, not of an embedding or a head."""
    others = ("embed_tokens.weight", "shared.weight", "relative_attention_bias.weight", "lm_head.weight")
    return len(shape) == 2 and name.endswith(".weight") and not name.endswith(others)


def _stored_width(component: Component | None) -> int:
    """Bytes per number of the largest tensor on disk, 2 when nothing is there."""
    tensors = component.tensors.values() if component is not None else ()
    largest = max(tensors, key=lambda tensor: prod(tensor.shape), default=None)
    return {"F32": 4, "F64": 8, "F8_E4M3": 1, "F8_E5M2": 1}.get(largest.dtype, 2) if largest else 2
