"""Qwen-Image and the models that edit pictures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...model.record import replace
from ..record import Edits, Family, Fit, Loader, Memory, Tokenizer
from ..record.block_swap import of_the_last
from ..record.mined import mined_class
from ..record.of_trainers import AiToolkit, Flavour, Kohya, KohyaMemory, SimpleTuner

_IMAGE = "Qwen/Qwen-Image"
_FILES = "Comfy-Org/Qwen-Image_ComfyUI"
_COMPONENTS: Mapping[str, tuple[str, ...]] = {
    "transformer": ("QwenImageTransformer2DModel",),
    "text_encoder": ("Qwen2_5_VLForConditionalGeneration",),
    "tokenizer": (),
    "vae": ("AutoencoderKLQwenImage",),
}
TRANSFORMER = mined_class(
    "QwenImageTransformer2DModel",
    "a Qwen-Image transformer",
    ("transformer_blocks.0.txt_mod.1.weight",),
    head="attention_head_dim",
    axes=(16, 56, 56),
)


def _scheduler(config: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "num_train_timesteps": 1000,
        "shift": 1.0,
        "use_dynamic_shifting": True,
        "base_shift": 0.5,
        "max_shift": 0.9,
        "base_image_seq_len": 256,
        "max_image_seq_len": 8192,
        "shift_terminal": 0.02,
        "time_shift_type": "exponential",
    }


_MUSUBI = Kohya(
    script="qwen_image_train_network",
    network_module="networks.lora_qwen_image",
    files={"transformer": "dit", "text_encoder": "text_encoder", "vae": "vae"},
    blocks=60,
    guidance=4.0,
    cache="qi",
    samples_only=True,
    mode=True,
    memory=KohyaMemory(
        "musubi-tuner/QwenImageTransformer2DModel",
        ("transformer_blocks",),
        of_the_last,
        control_pixels=1024**2,
    ),
)
_SIMPLETUNER = SimpleTuner(
    segments="apart",
    family="qwen_image",
    flavours={"v1.0": Flavour(_IMAGE), "v2.0": Flavour("Qwen/Qwen-Image-2512")},
    default="v2.0",
    linears=("to_k", "to_q", "to_v", "to_out.0"),
    step=32,
)
# As ai-toolkit has it (extensions_built_in/diffusion_models/qwen_image); captions are not filled up to any length.
_MEMORY = Memory(
    word="qwen-image",
    config=lambda name: {"zero_cond_t": True} if "2511" in name else {},
    heads=("num_attention_heads", 24),
    text=256,
    template=8,
    dropped="visual",
    headless=True,
    tile=256,
)
QWEN_IMAGE = Family(
    name="qwen_image",
    aliases=(),
    title="Qwen-Image",
    transformer=TRANSFORMER,
    loader=Loader(_COMPONENTS, single_file=_IMAGE, extras=True),
    own=Loader(_COMPONENTS, single_file=_IMAGE, bare=True, extras=True),
    fits=(Fit("vae", "z_dim", ("in_channels",), 64, factor=4),),
    published={
        "text_encoder": (
            "Qwen2_5_VLForConditionalGeneration",
            {
                "text_config": {
                    "hidden_size": 3584,
                    "intermediate_size": 18944,
                    "num_hidden_layers": 28,
                    "num_attention_heads": 28,
                    "num_key_value_heads": 4,
                    "vocab_size": 152064,
                },
                "vision_config": {
                    "depth": 32,
                    "hidden_size": 1280,
                    "intermediate_size": 3420,
                    "out_hidden_size": 3584,
                },
            },
        ),
        "vae": ("AutoencoderKLQwenImage", {}),
    },
    lora_beside={},
    lora_prefixes=("diffusion_model.", "transformer."),
    base_version="qwen_image",
    lokr=True,
    blocks=("transformer_blocks",),
    lora_blocks=("transformer_blocks",),
    refiners=(),
    quantized_blocks=("transformer_blocks",),
    edits=None,
    guided=False,
    overflows=None,
    scheduler=_scheduler,
    distilled=None,
    memory=_MEMORY,
    packages=(("diffusers", (0, 35), "QwenImagePipeline"),),
    repos={"edit-2511": "Qwen/Qwen-Image-Edit-2511", "edit-2509": "Qwen/Qwen-Image-Edit-2509", "image": _IMAGE},
    files={
        "QwenImageTransformer2DModel": (("", f"{_FILES} split_files/diffusion_models/qwen_image_bf16.safetensors"),),
        "Qwen2_5_VLForConditionalGeneration": (
            ("", f"{_FILES} split_files/text_encoders/qwen_2.5_vl_7b.safetensors"),
        ),
        "AutoencoderKLQwenImage": (("", f"{_IMAGE} vae/diffusion_pytorch_model.safetensors"),),
    },
    alike=True,
    tokenizers=(Tokenizer("tokenizer", ((_IMAGE, "tokenizer"),), f'hf download {_IMAGE} --include "tokenizer/*"'),),
    ai_toolkit=AiToolkit(bucket_step=32),
    simpletuner=_SIMPLETUNER,
    kohya={"musubi-tuner": _MUSUBI},
    runner=".qwen_image",
    in_diffusers="",
)
EDIT = replace(
    QWEN_IMAGE,
    name="qwen_image_edit",
    title="Qwen-Image-Edit",
    edits=Edits(seen=1024**2),
    own=Loader(_COMPONENTS, single_file="Qwen/Qwen-Image-Edit", bare=True, extras=True),
    runner=".qwen_image_edit",
    simpletuner=replace(_SIMPLETUNER, flavours={"edit-v1": Flavour("Qwen/Qwen-Image-Edit")}, default="", taken=False),
    kohya={"musubi-tuner": replace(_MUSUBI, cache="qie")},
    # Qwen2.5-VL looks at a control image of a megapixel, in patches of 28 pixels
    memory=replace(_MEMORY, dropped="", headless=False, control_text=1024**2 // 28**2),
)
EDIT_PLUS = replace(
    EDIT,
    name="qwen_image_edit_plus",
    edits=Edits(most=3, pixels=1024**2, seen=384**2),
    own=Loader(_COMPONENTS, single_file="Qwen/Qwen-Image-Edit-2509", bare=True, extras=True),
    runner=".qwen_image_edit_plus",
    simpletuner=replace(
        _SIMPLETUNER,
        flavours={
            **dict.fromkeys(("edit-v2", "edit-v2+"), Flavour("Qwen/Qwen-Image-Edit-2509")),
            "edit-v3": Flavour("Qwen/Qwen-Image-Edit-2511"),
        },
        default="",
        taken=False,
    ),
    memory=replace(
        _MEMORY,
        dropped="",
        headless=False,
        several_controls=True,
        control_pixels=1024**2,
        control_text=384**2 // 28**2,
    ),
    packages=(("diffusers", (0, 36), "QwenImageEditPlusPipeline"),),
)
FAMILIES = (QWEN_IMAGE, EDIT, EDIT_PLUS)
