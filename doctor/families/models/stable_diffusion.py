"""Stable Diffusion 1.5, 2 and SDXL: folders of the diffusers layout and, as sd-scripts opens them, single files."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import count
from typing import Any

from ...model.record import replace
from ...model.weights import COMFYUI_PREFIX
from ..components.autoencoder_kl import VAE, in_original_names
from ..components.clip_text import CLIP_L
from ..components.open_clip import open_clip_names
from ..components.published import CLIP_G, CLIP_H_TEXT
from ..record import Family, Fit, Loader, Memory, Tokenizer
from ..record.blank import FILES_ALONE
from ..record.block_swap import halves
from ..record.mined import mined_class
from ..record.of_trainers import AiToolkit, Flavour, Kohya, KohyaMemory, SimpleTuner
from ..record.shapes import Shapes, Tensors, split
from ..record.single_file import in_original_layout, with_or_without
from .unet_names import sd15_original_name, sdxl_original_name


def _inferred(tensors: Tensors) -> dict[str, Any]:
    """The config of SDXL in the sizes of a file. Raises BadConfig."""
    _, seen = tensors.shape(2, "add_embedding.linear_1.weight")
    wide = [tensors.shape(4, f"down_blocks.{level}.resnets.0.conv2.weight")[0] for level in range(3)]
    attention = "down_blocks.{level}.attentions.0.transformer_blocks.{number}.attn2.to_k.weight"
    depths = [
        next(n for n in count() if not tensors.has(attention.format(level=level, number=n))) for level in range(1, 3)
    ]
    return {
        **SDXL_CONFIG,
        "_class_name": "UNet2DConditionModel",
        "in_channels": tensors.shape(4, "conv_in.weight")[1],
        "out_channels": tensors.shape(4, "conv_out.weight")[0],
        "block_out_channels": wide,
        "transformer_layers_per_block": [1, *depths],
        "attention_head_dim": [split(side, _HEAD, "heads") for side in wide],
        "cross_attention_dim": tensors.shape(2, attention.format(level=1, number=0))[1],
        "projection_class_embeddings_input_dim": seen,
    }


_HEAD = 64
_UNET = replace(
    mined_class(
        "UNet2DConditionModel",
        "a UNet",
        ("down_blocks.0.resnets.0.time_emb_proj.weight", "input_blocks.1.0.emb_layers.1.weight"),
        original=sdxl_original_name,
    ),
    infer=_inferred,
)
_CLIP = ("CLIPTextModel", "CLIPTextModelWithProjection", "CLIPModel")
_COMPONENTS: dict[str, tuple[str, ...]] = {
    "unet": ("UNet2DConditionModel",),
    "text_encoder": _CLIP,
    "tokenizer": ("CLIPTokenizer",),
    "vae": ("AutoencoderKL",),
    "scheduler": (),
}
SD15_CONFIG: Mapping[str, Any] = {"cross_attention_dim": 768, "sample_size": 64}
SDXL_CONFIG: Mapping[str, Any] = {
    "sample_size": 128,
    "block_out_channels": [320, 640, 1280],
    "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"],
    "up_block_types": ["CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"],
    "mid_block_type": "UNetMidBlock2DCrossAttn",
    "transformer_layers_per_block": [1, 2, 10],
    "attention_head_dim": [5, 10, 20],
    "cross_attention_dim": 2048,
    "use_linear_projection": True,
    "addition_embed_type": "text_time",
    "addition_time_embed_dim": 256,
    "projection_class_embeddings_input_dim": 2816,
}
# Of the width of its heads no tensor tells, and its Linears may be convolutions of one pixel in files.
SD2_CONFIG: Mapping[str, Any] = {"cross_attention_dim": 1024, "sample_size": 64}
# What of a UNet gets no LoRA of kohya's, by diffusers' names and those of single files: all but what attends or,
# where convolutions of several pixels get one, what is in no block.
ATTENTION_ALONE = r"^(?!.*\.(?:transformer_blocks\.|proj_in$|proj_out$))"
NO_WINDOWS = r"^(?:time_embed|label_emb|add_embedding|input_blocks\.0\.|out\.|conv_in|conv_out)"
_VAE: Mapping[str, Any] = {**VAE, "latent_channels": 4, "use_quant_conv": True, "use_post_quant_conv": True}
_BASE = "stabilityai/stable-diffusion-xl-base-1.0"
# The lists of blocks with attention; much is computed between them.
_BLOCKS = (
    "down_blocks.*.attentions.*.transformer_blocks",
    "mid_block.attentions.*.transformer_blocks",
    "up_blocks.*.attentions.*.transformer_blocks",
)


def _scheduler(config: Mapping[str, Any]) -> dict[str, Any]:
    """As it is published."""
    return {
        "_class_name": "EulerDiscreteScheduler",
        "beta_start": 0.00085,
        "beta_end": 0.012,
        "beta_schedule": "scaled_linear",
        "num_train_timesteps": 1000,
        "prediction_type": "epsilon",
        "timestep_spacing": "leading",
        "steps_offset": 1,
        "interpolation_type": "linear",
        "use_karras_sigmas": False,
    }


def _tokenizer(name: str, repo: str) -> Tokenizer:
    return Tokenizer(name, ((_BASE, name), (repo, "")), f'hf download {_BASE} --include "{name}/*"')


# Of the cells of a picture's latents, in which the first convolutions work; at SD 1.5 attention, too.
_MEMORY = Memory(word="", config=lambda name: dict(SD15_CONFIG), heads=("", 8), text=77, pixels=8, whole=True)
# simpletuner/helpers/models/sdxl and sd1x (bc8e6ab7); how ours would train its runs was not looked into
_SIMPLETUNER = SimpleTuner(
    family="sdxl",
    flavours={"base-1.0": Flavour(_BASE)},
    default="base-1.0",
    others=("base-0.9", "refiner-0.9", "refiner-1.0"),
    linears=("to_k", "to_q", "to_v", "to_out.0"),
    taken=False,
    segments="",
)

# sd-scripts: library/model_util.py, sdxl_model_util.py, train_util.py (48d368fa)
_CHECKPOINT = "pretrained_model_name_or_path"
_UNET_INSIDE, _VAE_INSIDE = "model.diffusion_model.", "first_stage_model."


def _clip(needed: Shapes, present: Collection[str]) -> Shapes:
    return {f"text_model.{name}": shape for name, shape in needed.items()}


_SD_SCRIPTS_MEMORY = KohyaMemory(
    "sd-scripts/UNet2DConditionModel",
    (),
    halves,
    left_out=ATTENTION_ALONE,
    left_out_of_windows=NO_WINDOWS,
    drawn=2,
)
_SD_SCRIPTS = Kohya(
    script="train_network",
    network_module="networks.lora",
    files={"unet": _CHECKPOINT, "text_encoder": _CHECKPOINT, "vae": "vae"},
    blocks=0,
    guidance=7.5,
    memory=_SD_SCRIPTS_MEMORY,
    inside={"unet": _UNET_INSIDE, "text_encoder": "cond_stage_model.transformer.", "vae": _VAE_INSIDE},
    prefixes={"vae": _VAE_INSIDE},
    names={
        "unet": in_original_layout(sd15_original_name),
        "text_encoder": with_or_without("text_model."),
        "vae": in_original_names,
    },
    squeezed=r"\.attn_1\.",
    complete=("unet", "text_encoder", "vae"),
    folder=Loader({name: kinds for name, kinds in _COMPONENTS.items() if name != "tokenizer"}),
    pickled=("unet", "text_encoder", "vae"),
    text=("text_encoder",),
)

SD15 = replace(
    FILES_ALONE,
    name="sd15",
    overflows=False,
    aliases=("sd1",),
    title="Stable Diffusion 1.5",
    transformer=replace(_UNET, original=sd15_original_name),
    loader=Loader(components=_COMPONENTS, single_file=""),
    fits=(
        Fit("text_encoder", "hidden_size", ("cross_attention_dim",), 1280),
        Fit("vae", "latent_channels", ("in_channels",), 4),
    ),
    published={"text_encoder": ("CLIPTextModel", CLIP_L), "vae": ("AutoencoderKL", _VAE)},
    memory=_MEMORY,
    simpletuner=replace(
        _SIMPLETUNER,
        family="sd1x",
        flavours={
            "dreamshaper": Flavour("Lykon/dreamshaper-8"),
            "1.5": Flavour("stable-diffusion-v1-5/stable-diffusion-v1-5"),
            "1.4": Flavour("CompVis/stable-diffusion-v1-4"),
        },
        default="dreamshaper",
        others=("realvis",),
    ),
    repos={"v1-5": "stable-diffusion-v1-5/stable-diffusion-v1-5"},
    kohya={"sd-scripts": _SD_SCRIPTS},
)
SD2 = replace(
    SD15,
    name="sd2",
    aliases=(),
    title="Stable Diffusion 2",
    published={**SD15.published, "text_encoder": ("CLIPTextModel", CLIP_H_TEXT)},
    fits=(Fit("text_encoder", "hidden_size", ("cross_attention_dim",), 1280), *SD15.fits[1:]),
    memory=replace(_MEMORY, config=lambda name: dict(SD2_CONFIG)),
    simpletuner=None,
    repos={"2-1": "stabilityai/stable-diffusion-2-1"},
    kohya={
        "sd-scripts": replace(
            _SD_SCRIPTS,
            inside={**_SD_SCRIPTS.inside, "text_encoder": "cond_stage_model.model."},
            names={**_SD_SCRIPTS.names, "text_encoder": open_clip_names},
            squeezed=r"\.attn_1\.|proj_(?:in|out)\.",
        )
    },
)
_OF_SDXL = {**_COMPONENTS, "text_encoder_2": _CLIP, "tokenizer_2": ("CLIPTokenizer",)}
SDXL = replace(
    SD15,
    name="sdxl",
    aliases=(),
    title="SDXL",
    transformer=_UNET,
    loader=Loader(components=_OF_SDXL, single_file=""),
    own=Loader(
        {name: kinds for name, kinds in _OF_SDXL.items() if name != "scheduler"},
        bare=True,
        extras=True,
        whole={
            "unet": COMFYUI_PREFIX,
            "text_encoder": "conditioner.embedders.0.transformer.",
            "text_encoder_2": "conditioner.embedders.1.model.",
            "vae": "first_stage_model.",
        },
    ),
    fits=(Fit("vae", "latent_channels", ("in_channels",), 4),),
    published={
        "text_encoder": ("CLIPTextModel", CLIP_L),
        "text_encoder_2": ("CLIPTextModelWithProjection", CLIP_G),
        "vae": ("AutoencoderKL", {**_VAE, "scaling_factor": 0.13025}),
    },
    memory=replace(_MEMORY, config=lambda name: dict(SDXL_CONFIG), heads=("", 1), every_encoder=True),
    simpletuner=_SIMPLETUNER,
    repos={"xl-base": _BASE},
    lora_prefixes=("lora_unet_",),
    base_version="sdxl_base_v1-0",
    lokr=False,
    blocks=_BLOCKS,
    # all of it, as ai-toolkit has it
    lora_blocks=("conv_in", "time_embedding", "add_embedding", "down_blocks", "mid_block", "up_blocks", "conv_out"),
    quantized_blocks=_BLOCKS,
    guided=False,
    scheduler=_scheduler,
    tokenizers=(
        _tokenizer("tokenizer", "openai/clip-vit-large-patch14"),
        _tokenizer("tokenizer_2", "laion/CLIP-ViT-bigG-14-laion2B-39B-b160k"),
    ),
    ai_toolkit=AiToolkit(
        kohya=True,
        switches={
            "model/experimental_xl": "another text projection",
            "model/vae_path": "a VAE from another place",
            "network/all_layers": "training all layers",
        },
    ),
    kohya={
        "sd-scripts": replace(
            _SD_SCRIPTS,
            script="sdxl_train_network",
            files={"unet": _CHECKPOINT, "text_encoder": _CHECKPOINT, "text_encoder_2": _CHECKPOINT, "vae": "vae"},
            memory=replace(_SD_SCRIPTS_MEMORY, steps="sd-scripts/SdxlUNet2DConditionModel"),
            inside={
                "unet": _UNET_INSIDE,
                "text_encoder": "conditioner.embedders.0.transformer.",
                "text_encoder_2": "conditioner.embedders.1.model.",
                "vae": _VAE_INSIDE,
            },
            names={
                "unet": in_original_layout(sdxl_original_name),
                "text_encoder": _clip,
                "text_encoder_2": open_clip_names,
                "vae": in_original_names,
            },
            strict=True,
            spare=("text_encoder_2", "vae"),
            pickled=("unet", "text_encoder", "text_encoder_2", "vae"),
            complete=("unet", "text_encoder", "text_encoder_2", "vae"),
            folder=Loader({name: kinds for name, kinds in _OF_SDXL.items() if name != "tokenizer"}),
            text=("text_encoder", "text_encoder_2"),
        )
    },
    runner=".sdxl",
)
# of one class; the first is what is trained
FAMILIES: tuple[Family, ...] = (SDXL, SD15, SD2)
