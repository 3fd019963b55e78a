"""FLUX.2: dev, and the smaller Klein, as their authors' own files have them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...model.record import replace
from ...model.weights import Tensor
from ..components.published import MISTRAL_SMALL, QWEN3_8B
from ..components.qwen3 import QWEN3_4B
from ..record import Edits, Family, Loader, Memory, Origin
from ..record.blank import FILES_ALONE
from ..record.block_swap import by_ratio
from ..record.mined import by_own_names, mined_class
from ..record.of_trainers import AiToolkit, Kohya, KohyaMemory

_BLOCKS = ("double_blocks", "single_blocks")
# What ai-toolkit (27a03a91) writes into its source: flux2/src/model.py, flux2_klein_model.py.
KLEIN_4B_CONFIG: Mapping[str, Any] = {
    "context_in_dim": 7680,
    "hidden_size": 3072,
    "num_heads": 24,
    "depth": 5,
    "depth_single_blocks": 20,
    "use_guidance_embed": False,
}
KLEIN_9B_CONFIG: Mapping[str, Any] = {
    "context_in_dim": 12288,
    "hidden_size": 4096,
    "num_heads": 32,
    "depth": 8,
    "depth_single_blocks": 24,
    "use_guidance_embed": False,
}
_VAE = "ai-toolkit/flux2_vae"
_SMALL = 96  # channels of the last level in the smaller decoder


def _vae(tensors: Mapping[str, Tensor]) -> tuple[str, Mapping[str, Any]]:
    last = tensors.get("decoder.up.0.block.0.conv1.bias")
    small = last is not None and last.shape[:1] == (_SMALL,)
    return "Flux2AutoEncoderSmall" if small else "Flux2AutoEncoder", {}


def _loader(file: str, config: Mapping[str, Any], text: str, encoder: str, vae: str) -> Loader:
    return Loader(
        components={
            "transformer": ("Flux2",),
            "text_encoder": (encoder,),
            "tokenizer": (),
            "vae": ("Flux2AutoEncoder", "Flux2AutoEncoderSmall"),
        },
        origins={
            "transformer": Origin(file=lambda repo: file, built=lambda tensors: ("Flux2", config)),
            "text_encoder": Origin(repo=text, folder=""),
            "tokenizer": Origin(repo=text, folder=""),
            "vae": Origin(repo=vae, file=lambda repo: "ae.safetensors", built=_vae, beside="ae.safetensors"),
        },
    )


def _musubi(cache: str) -> dict[str, Kohya]:
    files = {"transformer": "dit", "text_encoder": "text_encoder", "vae": "vae"}
    memory = KohyaMemory(
        "musubi-tuner/Flux2", _BLOCKS, by_ratio, unscaled="_modulation", whole_vae=True, control_pixels=1024**2
    )
    return {
        "musubi-tuner": Kohya(
            script="flux_2_train_network",
            network_module="networks.lora_flux_2",
            files=files,
            blocks=0,
            guidance=4.0,
            cache=cache,
            samples_only=True,
            strict=True,
            memory=memory,
            fused=True,
            mode=True,
            classes={"vae": ("Flux2AutoEncoder", {})},
            in_cells=True,
        )
    }


def _published(class_name: str, config: Mapping[str, Any]) -> Mapping[str, tuple[str, Mapping[str, Any]]]:
    """Its VAE is that of diffusers under other names."""
    return {"text_encoder": (class_name, config), "vae": ("AutoencoderKLFlux2", {})}


# Control images may be smaller than a megapixel: no more than the picture's own size is certain.
_MEMORY = Memory(
    word="", config=lambda name: {}, heads=("num_heads", 48), text=512, several_controls=True, lora=_BLOCKS, drawn=1
)

FLUX2 = replace(
    FILES_ALONE,
    name="flux2",
    title="FLUX.2",
    transformer=mined_class(
        "Flux2",
        "a FLUX.2 transformer",
        ("double_stream_modulation_img.lin.weight",),
        by_kohya=by_own_names("Flux2"),
    ),
    loader=_loader(
        "flux2-dev.safetensors",
        {},
        "mistralai/Mistral-Small-3.1-24B-Instruct-2503",
        "Mistral3ForConditionalGeneration",
        "",
    ),
    base_version="flux2",
    blocks=_BLOCKS,
    quantized_blocks=_BLOCKS,
    edits=Edits(most=3, pixels=1024**2, at_most=True),
    guided=True,
    published=_published("Mistral3ForConditionalGeneration", MISTRAL_SMALL),
    memory=_MEMORY,
    kohya=_musubi("f2d"),
    repos={"flux.2-dev": "black-forest-labs/FLUX.2-dev"},
    in_diffusers="flux2 in diffusers",
    ai_toolkit=AiToolkit(switches={"model/vae_path": "a VAE from another place"}, mode=True),
)
KLEIN_4B = replace(
    FLUX2,
    name="flux2_klein_4b",
    title="FLUX.2 Klein 4B",
    loader=_loader(
        "flux-2-klein-base-4b.safetensors",
        KLEIN_4B_CONFIG,
        "Qwen/Qwen3-4B",
        "Qwen3ForCausalLM",
        "ai-toolkit/flux2_vae",
    ),
    base_version="flux2_klein_4b",
    guided=False,
    published=_published("Qwen3ForCausalLM", QWEN3_4B),
    memory=replace(_MEMORY, config=lambda name: dict(KLEIN_4B_CONFIG), encoder_aside=True),
    kohya=_musubi("f2k4b"),
    repos={"klein-base-4b": "black-forest-labs/FLUX.2-klein-base-4B"},
    in_diffusers="flux2_klein_4b in diffusers",
)
KLEIN_9B = replace(
    KLEIN_4B,
    name="flux2_klein_9b",
    title="FLUX.2 Klein 9B",
    loader=_loader("flux-2-klein-base-9b.safetensors", KLEIN_9B_CONFIG, "Qwen/Qwen3-8B", "Qwen3ForCausalLM", _VAE),
    base_version="flux2_klein_9b",
    published=_published("Qwen3ForCausalLM", QWEN3_8B),
    memory=replace(_MEMORY, config=lambda name: dict(KLEIN_9B_CONFIG), encoder_aside=True),
    kohya=_musubi("f2k9b"),
    repos={"klein-base-9b": "black-forest-labs/FLUX.2-klein-base-9B"},
    in_diffusers="flux2_klein_9b in diffusers",
)
FAMILIES: tuple[Family, ...] = (FLUX2, KLEIN_4B, KLEIN_9B)
