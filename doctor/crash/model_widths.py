"""How wide what models hand on to each other is: text embeddings, layers for them, latents."""

from __future__ import annotations

from collections.abc import Mapping

# What a text encoder hands over for each token.
TEXT: Mapping[int, str] = {
    768: "CLIP-L",
    1024: "OpenCLIP-H/Qwen3-0.6B",
    1152: "SigLIP so400m",
    1280: "OpenCLIP-bigG",
    1472: "ByT5 small",
    2048: "CLIP-L+bigG/Qwen2.5-VL-3B/Qwen3-1.7B",
    2304: "Gemma 2 2B",
    2560: "Qwen3-4B/Qwen3-VL-4B/Gemma-3-4B",
    3584: "Qwen2.5-VL 7B",
    3840: "Gemma 3 12B",
    4096: "T5-XXL/UMT5-XXL/Llama-3.1-8B/Qwen3-8B",
    5120: "Mistral-Small-24B",
    7680: "3×Qwen3-4B",
    12288: "3×Qwen3-8B",
    15360: "3×Mistral-Small-24B",
    30720: "12×Qwen3-VL-4B",
    53248: "13×Qwen3-VL-8B",
}
# (what goes into a layer for the text, what comes out of it): whose it is.
TEXT_LAYERS: Mapping[tuple[int, int], str] = {
    (768, 320): "SD 1.5",
    (768, 640): "SD 1.5",
    (768, 1280): "SD 1.5",
    (1024, 320): "SD 2",
    (1024, 640): "SD 2",
    (1024, 1280): "SD 2",
    (2048, 640): "SDXL",
    (2048, 1280): "SDXL",
    (2816, 1280): "SDXL",
    (768, 3072): "FLUX.1/HunyuanVideo",
    (4096, 3072): "FLUX.1/Chroma/HunyuanVideo/Wan2.2-5B",
    (4096, 1536): "SD3/Wan2.1-1.3B",
    (4096, 2432): "SD 3.5 Large",
    (2048, 1536): "SD 3",
    (2048, 2432): "SD 3.5 Large",
    (3584, 3072): "Qwen-Image",
    (3584, 3584): "HunyuanImage",
    (2560, 3840): "Z-Image",
    (7680, 3072): "FLUX.2 Klein 4B",
    (12288, 4096): "FLUX.2 Klein 9B",
    (15360, 6144): "FLUX.2 dev",
    (2304, 2304): "Lumina 2",
    (4096, 5120): "Wan 14B",
    (3840, 4096): "LTX-2",
    (4096, 2048): "LTX-Video",
    (2560, 3072): "ERNIE-Image",
    (2560, 6144): "Krea 2",
    (2048, 3584): "PRX",
    (2304, 1792): "PRX",
}
# The channels of latents as a VAE makes them, and as they are packed.
LATENTS: Mapping[int, str] = {
    4: "SD1.5/SDXL",
    9: "SD inpainting",
    16: "FLUX.1/SD3/Z-Image/Qwen-Image/Wan-14B/HunyuanVideo",
    32: "FLUX.2/Sana",
    36: "Wan-I2V",
    48: "Wan 2.2 5B",
}
PACKED: Mapping[int, str] = {
    64: "FLUX.1/Qwen-Image/Z-Image",
    128: "FLUX.2/LTX/FLUX.1-Depth",
    196: "Flex.2",
    384: "FLUX.1 Fill",
}
