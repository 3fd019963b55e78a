"""FLUX.2 in diffusers' own class, as its published folders are: SimpleTuner and zdoctor's runner open these."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...model.record import replace
from ..components.published import MISTRAL_SMALL, QWEN3_8B
from ..components.qwen3 import QWEN3_4B
from ..flux.tensors import DOUBLE_NORMS, SINGLE_NORMS, in_blocks
from ..record import Edits, Family, Fit, Loader, Memory, Origin, Tokenizer
from ..record.blank import FILES_ALONE
from ..record.mined import mined_class
from ..record.of_trainers import Flavour, SimpleTuner

_DEV = "black-forest-labs/FLUX.2-dev"
_4B = "black-forest-labs/FLUX.2-klein-base-4B"
_9B = "black-forest-labs/FLUX.2-klein-base-9B"
_BLOCKS = ("transformer_blocks", "single_transformer_blocks")
_COMPONENTS: Mapping[str, tuple[str, ...]] = {
    "transformer": ("Flux2Transformer2DModel",),
    "text_encoder": ("Qwen3ForCausalLM", "Qwen3Model"),
    "tokenizer": (),
    "vae": ("AutoencoderKLFlux2",),
}
CONFIG_4B: Mapping[str, Any] = {
    "guidance_embeds": False,
    "num_layers": 5,
    "num_single_layers": 20,
    "num_attention_heads": 24,
    "joint_attention_dim": 7680,
}
CONFIG_9B: Mapping[str, Any] = {
    **CONFIG_4B,
    "num_layers": 8,
    "num_single_layers": 24,
    "num_attention_heads": 32,
    "joint_attention_dim": 12288,
}
# A part of a block in diffusers' names -> in Black Forest Labs', where q, k and v of a double block are fused.
_DOUBLE = {
    **DOUBLE_NORMS,
    **dict.fromkeys(("attn.to_q", "attn.to_k", "attn.to_v"), "img_attn.qkv"),
    **dict.fromkeys(("attn.add_q_proj", "attn.add_k_proj", "attn.add_v_proj"), "txt_attn.qkv"),
    "attn.to_out.0": "img_attn.proj",
    "attn.to_add_out": "txt_attn.proj",
    "ff.linear_in": "img_mlp.0",
    "ff.linear_out": "img_mlp.2",
    "ff_context.linear_in": "txt_mlp.0",
    "ff_context.linear_out": "txt_mlp.2",
}
_SINGLE = {**SINGLE_NORMS, "attn.to_qkv_mlp_proj": "linear1", "attn.to_out": "linear2"}
_OUTER = {
    "x_embedder": "img_in",
    "context_embedder": "txt_in",
    "time_guidance_embed.timestep_embedder.linear_1": "time_in.in_layer",
    "time_guidance_embed.timestep_embedder.linear_2": "time_in.out_layer",
    "time_guidance_embed.guidance_embedder.linear_1": "guidance_in.in_layer",
    "time_guidance_embed.guidance_embedder.linear_2": "guidance_in.out_layer",
    "double_stream_modulation_img.linear": "double_stream_modulation_img.lin",
    "double_stream_modulation_txt.linear": "double_stream_modulation_txt.lin",
    "single_stream_modulation.linear": "single_stream_modulation.lin",
    "norm_out.linear": "final_layer.adaLN_modulation.1",
    "proj_out": "final_layer.linear",
}


def flux2_original_name(name: str) -> str:
    """The name in Black Forest Labs' files of a tensor that diffusers calls `name`; several may share one."""
    return in_blocks(name, _DOUBLE, _SINGLE, _OUTER)


def _scheduler(config: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "num_train_timesteps": 1000,
        "shift": 3.0,
        "use_dynamic_shifting": True,
        "base_shift": 0.5,
        "max_shift": 1.15,
        "base_image_seq_len": 256,
        "max_image_seq_len": 4096,
    }


def _tokenizer(repo: str, of_encoder: str = "") -> Tokenizer:
    """That of the model's repository, or of its text encoder's own, where musubi-tuner takes it from."""
    places = ((of_encoder, ""),) if of_encoder else ()
    command = f'hf download {repo} --include "tokenizer/*"'
    return Tokenizer("tokenizer", (*places, (repo, "tokenizer")), command, chats=True)


# Prompts are filled up to 512 tokens, which the transformer sees.
_MEMORY = Memory(
    word="klein-base-4b",
    config=lambda name: dict(CONFIG_4B),
    heads=("num_attention_heads", 48),
    text=512,
    several_controls=True,
    headless=True,
)
# simpletuner/helpers/models/flux2/model.py and transformer.py (bc8e6ab7)
_SIMPLETUNER = SimpleTuner(
    family="flux2",
    classes=(
        *("Flux2TransformerBlock", "Flux2SingleTransformerBlock", "Flux2Attention", "Flux2ParallelSelfAttention"),
        *("Flux2FeedForward", "Flux2Modulation", "Flux2TimestepGuidanceEmbeddings", "Flux2Transformer2DModel"),
        *("AdaLayerNormContinuous", "Linear", "ModuleList", "TimestepEmbedding"),
    ),
    flavours={},
    default="",
    linears=("attn.to_q", "attn.to_k", "attn.to_v", "attn.to_out.0", "attn.to_qkv_mlp_proj"),
    step=16,
    mode=True,
    in_cells=True,
)
KLEIN_4B = replace(
    FILES_ALONE,
    name="flux2_klein_4b in diffusers",
    title="FLUX.2",
    transformer=mined_class(
        "Flux2Transformer2DModel",
        "a FLUX.2 transformer",
        ("double_stream_modulation_img.linear.weight",),
        head="attention_head_dim",
        axes=(32, 32, 32, 32),
        original=flux2_original_name,
        swapped=("norm_out.linear.weight",),
    ),
    loader=Loader(_COMPONENTS),
    own=Loader(_COMPONENTS, single_file=_4B, bare=True, extras=True),
    fits=(
        Fit("text_encoder", "hidden_size", ("joint_attention_dim",), 15360, factor=3),
        Fit("vae", "latent_channels", ("in_channels",), 128, factor=4),
    ),
    published={"text_encoder": ("Qwen3ForCausalLM", QWEN3_4B), "vae": ("AutoencoderKLFlux2", {})},
    lora_prefixes=("transformer.",),
    base_version="flux2_klein_4b",
    lokr=False,
    blocks=_BLOCKS,
    lora_blocks=_BLOCKS,
    quantized_blocks=_BLOCKS,
    edits=Edits(most=3, pixels=1024**2, at_most=True),
    guided=False,
    simpletuner=replace(_SIMPLETUNER, flavours={"klein-4b": Flavour(_4B)}),
    scheduler=_scheduler,
    memory=_MEMORY,
    packages=(("diffusers", (0, 37), "Flux2KleinPipeline"),),
    repos={"klein-base-4b": _4B},
    files={"Flux2Transformer2DModel": (("", f"{_4B} flux-2-klein-base-4b.safetensors"),)},
    tokenizers=(_tokenizer(_4B, "Qwen/Qwen3-4B"),),
    runner=".flux2",
)
KLEIN_9B = replace(
    KLEIN_4B,
    name="flux2_klein_9b in diffusers",
    own=Loader(_COMPONENTS, single_file=_9B, bare=True, extras=True),
    simpletuner=replace(_SIMPLETUNER, flavours={"klein-9b": Flavour(_9B)}, default="klein-9b"),
    published={**KLEIN_4B.published, "text_encoder": ("Qwen3ForCausalLM", QWEN3_8B)},
    base_version="flux2_klein_9b",
    memory=replace(_MEMORY, word="klein-base-9b", config=lambda name: dict(CONFIG_9B)),
    repos={"klein-base-9b": _9B},
    files={"Flux2Transformer2DModel": (("", f"{_9B} flux-2-klein-base-9b.safetensors"),)},
    tokenizers=(_tokenizer(_9B, "Qwen/Qwen3-8B"),),
)
DEV = replace(
    KLEIN_4B,
    name="flux2 in diffusers",
    loader=Loader(
        components={
            "transformer": ("Flux2Transformer2DModel",),
            "text_encoder": ("Mistral3ForConditionalGeneration",),
            "vae": ("AutoencoderKLFlux2",),
        },
        origins={"text_encoder": Origin(repo="mistralai/Mistral-Small-3.1-24B-Instruct-2503", folder="")},
    ),
    own=Loader(
        {**_COMPONENTS, "text_encoder": ("Mistral3ForConditionalGeneration",)},
        single_file=_DEV,
        bare=True,
        extras=True,
    ),
    fits=KLEIN_4B.fits[1:],
    published={**KLEIN_4B.published, "text_encoder": ("Mistral3ForConditionalGeneration", MISTRAL_SMALL)},
    base_version="flux2",
    guided=True,
    memory=replace(_MEMORY, word="flux.2-dev", config=lambda name: {}, headless=False),
    simpletuner=replace(_SIMPLETUNER, flavours={"dev": Flavour(_DEV)}),
    repos={"flux.2-dev": _DEV},
    files={"Flux2Transformer2DModel": (("", f"{_DEV} flux2-dev.safetensors"),)},
    tokenizers=(_tokenizer(_DEV),),
    runner=".flux2_dev",
)
FAMILIES: tuple[Family, ...] = (KLEIN_4B, KLEIN_9B, DEV)
