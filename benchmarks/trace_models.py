"""The models that trace.py tries: their configs with few blocks and as published, and the settings of their steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zdoctor.doctor.families.models.anima import OWN_CONFIG as ANIMA_OF_SD_SCRIPTS
from zdoctor.doctor.families.models.flux2 import KLEIN_4B_CONFIG, KLEIN_9B_CONFIG
from zdoctor.doctor.families.models.flux2_in_diffusers import CONFIG_4B, CONFIG_9B
from zdoctor.doctor.families.models.hidream import CONFIG as HIDREAM_CONFIG
from zdoctor.doctor.families.models.hunyuan_video import FRAMEPACK, HUNYUAN_VIDEO
from zdoctor.doctor.families.models.krea2 import CONFIG as KREA2_CONFIG
from zdoctor.doctor.families.models.lumina2 import NEXT_DIT
from zdoctor.doctor.families.models.omnigen2 import CONFIG as OMNIGEN2_CONFIG
from zdoctor.doctor.families.models.prx import CONFIG as PRX_CONFIG
from zdoctor.doctor.families.models.sd3 import LARGE as SD3_LARGE
from zdoctor.doctor.families.models.sd3 import MEDIUM as SD35_MEDIUM
from zdoctor.doctor.families.models.stable_diffusion import SD15_CONFIG, SDXL_CONFIG
from zdoctor.doctor.families.models.wan import CONFIG_5B as WAN_5B
from zdoctor.doctor.families.models.wan import CONFIG_SEEING as WAN_SEEING
from zdoctor.doctor.families.models.wan import WAN_14B, WAN_22, WAN_SEEING_22
from zdoctor.doctor.families.models.wan import WAN_SEEING as WAN_SEEING_OF_MUSUBI

ANIMA: dict[str, Any] = {"num_attention_heads": 16, "extra_pos_embed_type": None}
# architecture -> what of its config makes it small, and as it is published
MODELS: Mapping[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "zimage": ({"n_layers": 3}, {}),
    "flux": ({"num_layers": 2, "num_single_layers": 2, "guidance_embeds": True}, {"guidance_embeds": True}),
    "flux_kontext": ({"num_layers": 2, "num_single_layers": 2, "guidance_embeds": True}, {"guidance_embeds": True}),
    "qwen_image": ({"num_layers": 3}, {}),
    "qwen_image_edit_plus": ({"num_layers": 3}, {}),
    "flux2": ({"depth": 2, "depth_single_blocks": 4}, {}),
    "flux2_klein_4b": ({**KLEIN_4B_CONFIG, "depth": 2, "depth_single_blocks": 4}, dict(KLEIN_4B_CONFIG)),
    "flux2_klein_9b": ({**KLEIN_9B_CONFIG, "depth": 4, "depth_single_blocks": 2}, dict(KLEIN_9B_CONFIG)),
    "flux2 in diffusers": ({"num_layers": 2, "num_single_layers": 4}, {}),
    "flux2_klein_4b in diffusers": ({**CONFIG_4B, "num_layers": 2, "num_single_layers": 4}, dict(CONFIG_4B)),
    "flux2_klein_9b in diffusers": ({**CONFIG_9B, "num_layers": 4, "num_single_layers": 2}, dict(CONFIG_9B)),
    "chroma in diffusers": ({"num_layers": 2, "num_single_layers": 4}, {}),
    "krea2": ({**KREA2_CONFIG, "layers": 5}, dict(KREA2_CONFIG)),
    "chroma": ({"depth": 2, "depth_single_blocks": 4}, {}),
    "sdxl": (dict(SDXL_CONFIG), dict(SDXL_CONFIG)),
    "sd15": (dict(SD15_CONFIG), dict(SD15_CONFIG)),
    "wan21": ({"num_layers": 4}, {}),
    "wan21_i2v": ({**WAN_SEEING, "num_layers": 4}, dict(WAN_SEEING)),
    "wan22_5b": ({**WAN_5B, "num_layers": 4}, dict(WAN_5B)),
    "lumina2": ({"cap_feat_dim": 2304, "num_layers": 5}, {"cap_feat_dim": 2304}),
    "hidream": (
        {**HIDREAM_CONFIG, "num_layers": 2, "num_single_layers": 4, "llama_layers": [0] * 6},
        dict(HIDREAM_CONFIG),
    ),
    "ltx2": ({"num_layers": 4}, {}),
    "ideogram4": ({"num_layers": 4}, {}),
    "omnigen2": ({**OMNIGEN2_CONFIG, "num_layers": 4}, dict(OMNIGEN2_CONFIG)),
    "anima": ({**ANIMA, "num_layers": 4}, ANIMA),
    "boogu_image": ({"num_layers": 5, "num_double_stream_layers": 2}, {}),
    "ernie_image": ({"num_layers": 4}, {}),
    "prx_pixel": ({**PRX_CONFIG, "depth": 4}, dict(PRX_CONFIG)),
    "zeta_chroma": ({"in_channels": 3072, "n_layers": 4}, {"in_channels": 3072}),
}
OURS = tuple(MODELS)[:5]  # in many settings
# (pixels, batch, rank, checkpointing) of a family that only ai-toolkit trains
FEWER = (
    *((1024, 1, 16, True), (512, 2, 96, True), (1536, 1, 32, True)),
    *((768, 1, 128, True), (1024, 1, 16, False), (512, 2, 64, False)),
)
HUNYUAN_OF_FEW: dict[str, Any] = {**HUNYUAN_VIDEO, "mm_double_blocks_depth": 2, "mm_single_blocks_depth": 4}
# architecture in which a class of kohya's trainers is tried, with a config that has few blocks
OF_KOHYA: Mapping[str, tuple[str, dict[str, Any]]] = {
    "sd-scripts/Flux": ("flux", {"num_layers": 2, "num_single_layers": 4, "guidance_embeds": True}),
    "sd-scripts/Chroma": ("chroma", {"depth": 2, "depth_single_blocks": 4}),
    "musubi-tuner/Flux": ("flux_kontext", {"num_layers": 4, "num_single_layers": 2, "guidance_embeds": True}),
    "musubi-tuner/ZImageTransformer2DModel": ("zimage", {"n_layers": 4}),
    "musubi-tuner/QwenImageTransformer2DModel": ("qwen_image", {"num_layers": 4}),
    "SimpleTuner/ZImageTransformer2DModel": ("zimage", {"n_layers": 4}),
    "SimpleTuner/QwenImageTransformer2DModel": ("qwen_image", {"num_layers": 4}),
    "SimpleTuner/Lumina2Transformer2DModel": ("lumina2", {"cap_feat_dim": 2304, "num_layers": 5}),
    "SimpleTuner/ChromaTransformer2DModel": ("chroma in diffusers", {"num_layers": 2, "num_single_layers": 4}),
    "SimpleTuner/SD3Transformer2DModel": (
        "sd3",
        {**SD35_MEDIUM, "num_layers": 4, "dual_attention_layers": [0, 1]},
    ),
    "SimpleTuner/Krea2Transformer2DModel": ("krea2 in diffusers", {"num_layers": 4}),
    "SimpleTuner/HiDreamImageTransformer2DModel": (
        "hidream",
        {**HIDREAM_CONFIG, "num_layers": 2, "num_single_layers": 4, "llama_layers": [0] * 6},
    ),
    "SimpleTuner/WanTransformer3DModel": ("wan21", {"num_layers": 4}),
    "SimpleTuner/LTX2VideoTransformer3DModel": ("ltx2", {"num_layers": 4}),
    "SimpleTuner/ErnieImageTransformer2DModel": ("ernie_image", {"num_layers": 4}),
    "SimpleTuner/FluxTransformer2DModel": (
        "flux",
        {"num_layers": 2, "num_single_layers": 4, "guidance_embeds": True},
    ),
    "musubi-tuner/SingleStreamDiT": ("krea2", {**KREA2_CONFIG, "layers": 4}),
    "musubi-tuner/WanModel": ("wan21", {**WAN_14B, "num_layers": 4}),
    "musubi-tuner/WanModelI2V": ("wan21_i2v", {**WAN_SEEING_OF_MUSUBI, "num_layers": 4}),
    "musubi-tuner/WanModel2.2": ("wan22_14b", {**WAN_22, "num_layers": 4}),
    "musubi-tuner/WanModel2.2I2V": ("wan22_14b_i2v", {**WAN_SEEING_22, "num_layers": 4}),
    "musubi-tuner/HYVideoDiffusionTransformer": ("hunyuan_video", HUNYUAN_OF_FEW),
    "musubi-tuner/HYVideoDiffusionTransformerSplit": ("hunyuan_video", HUNYUAN_OF_FEW),
    "musubi-tuner/HunyuanVideoTransformer3DModelPacked": (
        "framepack",
        {**FRAMEPACK, "num_layers": 2, "num_single_layers": 4},
    ),
    "sd-scripts/UNet2DConditionModel": ("sd15", dict(SD15_CONFIG)),
    "sd-scripts/SdxlUNet2DConditionModel": ("sdxl", dict(SDXL_CONFIG)),
    "sd-scripts/MMDiT": ("sd3", {**SD3_LARGE, "num_layers": 4}),
    "sd-scripts/NextDiT": ("lumina2", {**NEXT_DIT, "n_layers": 4}),
    "sd-scripts/Anima": ("anima", {**ANIMA_OF_SD_SCRIPTS, "num_blocks": 4}),
    "musubi-tuner/Flux2": ("flux2_klein_9b", {**KLEIN_9B_CONFIG, "depth": 2, "depth_single_blocks": 4}),
}
# (pixels, batch, rank, checkpointing, in 8 bits, other options) of sd-scripts' families
OF_SD_SCRIPTS = (
    *((512, 1, 16, True, False, ""), (512, 2, 96, True, False, ""), (1024, 1, 16, True, False, "")),
    *((1024, 1, 96, True, True, ""), (1024, 2, 16, True, False, ""), (768, 2, 32, True, True, "")),
    *((512, 1, 16, False, False, ""), (512, 2, 64, False, False, ""), (1024, 1, 32, False, False, "")),
    *((512, 1, 96, False, True, ""), (1024, 1, 64, True, False, "--full_bf16")),
    (512, 1, 64, False, False, "--full_bf16"),
)
OF_UNET = (
    *(
        (1024, 1, 32, True, False, "--network_args conv_dim=32"),
        (512, 1, 32, False, False, "--network_args conv_dim=32"),
    ),
    (512, 1, 16, False, False, "in full"),
    *((1024, 1, 16, True, False, "--mixed_precision no"), (512, 2, 64, False, False, "--mixed_precision no")),
)
