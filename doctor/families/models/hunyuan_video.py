"""HunyuanVideo and FramePack, which is made of it, as musubi-tuner (30c658c4) opens them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from ...model.record import replace
from ..components.clip_text import CLIP_L
from ..components.published import LLAMA3_8B
from ..record import Family, Memory
from ..record.blank import FILES_ALONE
from ..record.block_swap import halves_and_one
from ..record.mined import by_own_names, mined_class, mined_tensors
from ..record.of_trainers import Kohya, KohyaMemory
from ..record.shapes import Shapes
from ..record.single_file import with_or_without

# hunyuan_model/models.py
HUNYUAN_VIDEO: Mapping[str, Any] = {
    "text_states_dim": 4096,
    "text_states_dim_2": 768,
    "in_channels": 16,
    "out_channels": 16,
    "mm_double_blocks_depth": 20,
    "mm_single_blocks_depth": 40,
    "guidance_embed": True,
}
# hunyuan_model/vae.py
HUNYUAN_VAE: Mapping[str, Any] = {
    "block_out_channels": [128, 256, 512, 512],
    "down_block_types": ["DownEncoderBlockCausal3D"] * 4,
    "up_block_types": ["UpDecoderBlockCausal3D"] * 4,
    "latent_channels": 16,
    "layers_per_block": 2,
}
# hunyuan_model/text_encoder.py: with the words that LLaVA has more
_LLAMA: Mapping[str, Any] = {**LLAMA3_8B, "vocab_size": 128320}
_BLOCKS = ("double_blocks", "single_blocks")
# frame_pack/hunyuan_video_packed.py, load_packed_model
FRAMEPACK: Mapping[str, Any] = {"has_image_proj": True, "has_clean_x_embedder": True}
# frame_pack/framepack_utils.py
SIGLIP: Mapping[str, Any] = {
    "hidden_size": 1152,
    "image_size": 384,
    "intermediate_size": 4304,
    "num_attention_heads": 16,
    "num_hidden_layers": 27,
    "patch_size": 14,
}
_LISTS = ("transformer_blocks", "single_transformer_blocks")
_WINDOW, _CLEAN = 9, 2  # frames of a window, and before and after it
# Two more frames are seen in halves, sixteen in quarters, of each side and of their number.
_FARTHER = 2 / 2**3 + 16 / 4**3


def _prefixed(class_name: str, prefix: str) -> Callable[[Mapping[str, Any], Collection[str], bool], Shapes]:
    """The tensors of a class whose names have the prefix in files of other versions or programs."""
    either_way = with_or_without(prefix)
    return lambda config, present, either: either_way(mined_tensors(class_name, config), present)


HUNYUAN = replace(
    FILES_ALONE,
    name="hunyuan_video",
    title="HunyuanVideo",
    transformer=mined_class(
        "HYVideoDiffusionTransformer",
        "a HunyuanVideo transformer",
        ("txt_in.individual_token_refiner.blocks.0.norm1.weight",),
        by_kohya=by_own_names("HYVideoDiffusionTransformer"),
    ),
    published={
        "text_encoder": ("LlamaForCausalLM", _LLAMA),
        "text_encoder_2": ("CLIPTextModel", CLIP_L),
        "vae": ("AutoencoderKLCausal3D", HUNYUAN_VAE),
    },
    memory=Memory(
        word="",
        config=lambda name: dict(HUNYUAN_VIDEO),
        heads=("heads_num", 24),
        text=256,
        frames=4,
        drawn=1,
        vae="AutoencoderKLHunyuanVideo",  # diffusers' class of the same layers
    ),
    blocks=_BLOCKS,
    quantized_blocks=_BLOCKS,
    kohya={
        "musubi-tuner": Kohya(
            script="hv_train_network",
            network_module="networks.lora",
            files={
                "transformer": "dit",
                "text_encoder": "text_encoder1",
                "text_encoder_2": "text_encoder2",
                "vae": "vae",
            },
            blocks=0,
            guidance=6.0,
            cache="hv",
            samples_only=True,
            strict=True,
            memory=KohyaMemory(
                "musubi-tuner/HYVideoDiffusionTransformer",
                _BLOCKS,
                halves_and_one,
                left_out="img_mod|txt_mod|modulation",
                cast_whole=True,
                split="musubi-tuner/HYVideoDiffusionTransformerSplit",
            ),
            pickled=("transformer", "vae"),
            spare=("text_encoder",),  # ComfyUI's file holds the tokenizer, too
            prefixes={"vae": "vae."},
        )
    },
)
FRAME_PACK = replace(
    FILES_ALONE,
    name="framepack",
    title="FramePack",
    transformer=mined_class(
        "HunyuanVideoTransformer3DModelPacked",
        "a FramePack transformer",
        ("clean_x_embedder.proj.weight",),
        by_kohya=by_own_names("HunyuanVideoTransformer3DModelPacked"),
    ),
    published={
        "text_encoder": ("LlamaModel", _LLAMA),
        "text_encoder_2": ("CLIPTextModel", CLIP_L),
        "image_encoder": ("SiglipVisionModel", SIGLIP),
        "vae": ("AutoencoderKLCausal3D", HUNYUAN_VAE),
    },
    memory=Memory(
        word="",
        config=lambda name: dict(FRAMEPACK),
        heads=("num_attention_heads", 24),
        text=512 + 27 * 27,  # what SigLIP sees stands before the prompt
        frames=4,
        drawn=1,
        vae="AutoencoderKLHunyuanVideo",
        windows=(1 + _CLEAN + _FARTHER, _WINDOW + _CLEAN + _FARTHER),
    ),
    blocks=_LISTS,
    quantized_blocks=_LISTS,
    kohya={
        "musubi-tuner": Kohya(
            script="fpack_train_network",
            network_module="networks.lora_framepack",
            files={
                "transformer": "dit",
                "text_encoder": "text_encoder1",
                "text_encoder_2": "text_encoder2",
                "image_encoder": "image_encoder",
                "vae": "vae",
            },
            blocks=0,
            guidance=10.0,
            cache="fp",
            samples_only=True,
            strict=True,
            memory=KohyaMemory(
                "musubi-tuner/HunyuanVideoTransformer3DModelPacked",
                _LISTS,
                halves_and_one,
                left_out="norm",
                unscaled="norm",
                cast_whole=True,
            ),
            spare=("text_encoder",),
            prefixes={"vae": "vae."},
        )
    },
)
# of which no record is the transformer
CLASSES = (
    mined_class("AutoencoderKLCausal3D", "a HunyuanVideo VAE", ("decoder.up_blocks.3.resnets.0.conv1.conv.weight",)),
    mined_class("LlamaForCausalLM", "a Llama text encoder", ()),
    mined_class("LlamaModel", "a Llama text encoder", (), by_kohya=_prefixed("LlamaModel", "model.")),
    mined_class(
        "SiglipVisionModel",
        "a SigLIP image encoder",
        ("vision_model.head.probe", "head.probe"),
        by_kohya=_prefixed("SiglipVisionModel", "vision_model."),
    ),
)
FAMILIES: tuple[Family, ...] = (HUNYUAN, FRAME_PACK)
