"""Lumina-Image 2.0."""

from __future__ import annotations

from ...model.record import replace
from ..components.autoencoder_kl import VAE
from ..record import Family, Fit, Flavour, Loader, Memory, SimpleTuner
from ..record.blank import FILES_ALONE
from ..record.mined import mined_class
from . import original_names

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
    repos={"lumina-image-2": "Alpha-VLLM/Lumina-Image-2.0"},
)
FAMILIES: tuple[Family, ...] = (LUMINA2,)
