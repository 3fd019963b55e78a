"""Lumina-Image 2.0."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ...model.record import replace
from ..components.autoencoder_kl import VAE
from ..record import Family, Fit, Loader, Memory
from ..record.blank import FILES_ALONE
from ..record.block_swap import of_the_last
from ..record.mined import mined_class
from ..record.of_trainers import Flavour, Kohya, KohyaMemory, SimpleTuner
from ..record.shapes import Shapes
from ..record.single_file import own_names, with_or_without
from . import original_names

# As sd-scripts writes it into its source (lumina_models.py, 48d368fa).
NEXT_DIT: Mapping[str, Any] = {
    "patch_size": 2,
    "in_channels": 16,
    "dim": 2304,
    "n_layers": 26,
    "n_heads": 24,
    "n_kv_heads": 8,
    "axes_dims": [32, 32, 32],
    "axes_lens": [300, 512, 512],
    "qk_norm": True,
    "ffn_dim_multiplier": None,
    "norm_eps": 1e-5,
    "cap_feat_dim": 2304,
}
_OWN_LISTS = ("context_refiner", "noise_refiner", "layers")
_BARE = with_or_without("model.")


def _gemma(needed: Shapes, present: Collection[str]) -> Shapes:
    """One prefix is taken off where the names have it."""
    return _BARE(needed, present)


LUMINA2 = replace(
    FILES_ALONE,
    name="lumina2",
    title="Lumina 2",
    transformer=mined_class(
        "Lumina2Transformer2DModel",
        "a Lumina 2 transformer",
        ("time_caption_embed.caption_embedder.0.weight",),
        original=original_names.lumina2,
    ),
    loader=Loader(
        components={
            "transformer": ("Lumina2Transformer2DModel",),
            "text_encoder": ("Gemma2Model", "Gemma2ForCausalLM"),
            "tokenizer": (),
            "vae": ("AutoencoderKL",),
            "scheduler": ("FlowMatchEulerDiscreteScheduler",),
        }
    ),
    fits=(
        Fit("text_encoder", "hidden_size", ("cap_feat_dim",), 1024),
        Fit("vae", "latent_channels", ("in_channels",), 16),
    ),
    base_version="lumina2",
    blocks=("context_refiner", "noise_refiner", "layers"),
    quantized_blocks=("context_refiner", "noise_refiner", "layers"),
    published={"text_encoder": ("Gemma2Model", {}), "vae": ("AutoencoderKL", VAE)},
    memory=Memory(
        word="",
        config=lambda name: {"cap_feat_dim": 2304},
        heads=("num_attention_heads", 24),
        drawn=1,
        text=256,
        template=40,
        lora=("context_refiner", "noise_refiner", "layers"),
        beside=True,
    ),
    simpletuner=SimpleTuner(
        family="lumina2",
        flavours={
            "2.0": Flavour("Alpha-VLLM/Lumina-Image-2.0"),
            "neta-lumina": Flavour("terminusresearch/neta-lumina-v1"),
        },
        default="2.0",
        linears=("to_k", "to_q", "to_v", "to_out.0", "to_qkv"),
        taken=False,
    ),
    # sd-scripts: library/lumina_util.py, networks/lora_lumina.py (48d368fa)
    kohya={
        "sd-scripts": Kohya(
            script="lumina_train_network",
            network_module="networks.lora_lumina",
            files={"transformer": "pretrained_model_name_or_path", "text_encoder": "gemma2", "vae": "ae"},
            blocks=26,
            guidance=4.0,
            memory=KohyaMemory("sd-scripts/NextDiT", _OWN_LISTS, of_the_last),
            classes={"transformer": ("NextDiT", NEXT_DIT)},
            prefixes={
                "transformer": "model.diffusion_model.",
                "text_encoder": "text_encoders.gemma2_2b.transformer.model.",
                "vae": "vae.",
            },
            names={"transformer": own_names, "text_encoder": _gemma},
            text=("text_encoder",),
        )
    },
    repos={"lumina-image-2": "Alpha-VLLM/Lumina-Image-2.0"},
)
FAMILIES: tuple[Family, ...] = (LUMINA2,)
