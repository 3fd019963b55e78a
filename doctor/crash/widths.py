"""Which models two sizes belong to that meet: of text embeddings, latents or LoRAs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import prod

from ..model.crashes import Failure, Frame, Known
from .file_sizes import by_file, sizes

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
_WIDEST_RANK = 256
_FEW_FRAMES = 2  # of fewer, other sizes stand in the same relation
_LEAST_PIXELS = 256
_ROTARY = re.compile(r"rotary|\brope|freqs_cis|pos_embed", re.I)
_CLIP = (77, 154, 231, 75, 225, 227)
_PRODUCT = re.compile(
    r"mat1 and mat2 shapes cannot be multiplied \(\d+x(\d+) and (\d+)x(\d+)\)"
    r"|must have same reduction dim, but got \[\d+, (\d+)\] X \[(\d+), (\d+)\]"
)
_NORM = re.compile(r"shape \[\*, (\d+)\], but got input of size ?\[[\d, ]*?(\d+)\]")
_CHANNELS = re.compile(r"expected input\[?.* to have (\d+) channels, but got (\d+) channels instead")
_LENGTHS = re.compile(
    r"size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\) at non-singleton dimension (\d)"
)
_JOINED = re.compile(r"except in dimension \d\.? ?(?:Expected size|Got) (\d+) (?:but got size|and) (\d+)")
_RESHAPED = re.compile(r"shape '\[([\d, ]+)\]' is invalid for input of size (\d+)")
MOST_FLAT = 5
SOURCE = "https://github.com/pytorch/pytorch/blob/v2.13.0/torch/nn/modules/module.py"


def by_widths(failure: Failure) -> Known | None:
    """What the sizes in a failure's words tell, where two models can be told by them."""
    message = " ".join(failure.message.split())
    told = next((told for read in (_products, _lengths, _grid, by_file) if (told := read(message)) is not None), None)
    told = _positions(message, failure.frames) or told
    if told is None:
        return None
    cause, do = told
    return Known(cause, do, error=failure.name, source=SOURCE)


def _products(message: str) -> tuple[str, str] | None:
    """A layer that gets what is not as wide as it takes."""
    product, norm, channels = (pattern.search(message) for pattern in (_PRODUCT, _NORM, _CHANNELS))
    if channels is not None:
        want, got = map(int, channels.groups())
        return _latents(want, LATENTS.get(want), got, LATENTS.get(got))
    if product is not None:
        got, want, out = map(int, filter(None, product.groups()))
        if (takes := TEXT_LAYERS.get((want, out))) is not None:
            return _text(want, takes, got, TEXT.get(got))
        if want in PACKED and got in PACKED:
            return _latents(want, PACKED[want], got, PACKED[got])
        if out <= _WIDEST_RANK < min(got, want):
            return (
                f"A LoRA whose layers take {want} numbers meets a model whose layers have {got}: it was made for "
                "another model, or for another size of this one.",
                "Take a LoRA that was trained on this model; zdoctor check LORA --base MODEL says which model one "
                "is of.",
            )
    elif norm is not None:
        want, got = map(int, norm.groups())
        if want in TEXT and got in TEXT:
            return _text(want, TEXT[want], got, TEXT[got])
    return None


def _text(want: int, takes: str, got: int, gives: str | None) -> tuple[str, str]:
    handed = f"{got} (as {gives} has)" if gives is not None else f"{got}"
    return (
        f"A layer for the text takes {want} numbers a token ({takes}), and is handed {handed}: the text encoder, or "
        "cached text embeddings, are another model's than the transformer.",
        "Name the text encoder that belongs to this transformer, and remove caches of text embeddings that "
        "another one made. In ComfyUI the type in the CLIP loader has to be this model's; a new model takes a new "
        "ComfyUI.",
    )


def _latents(want: int, takes: str | None, got: int, gives: str | None) -> tuple[str, str] | None:
    if takes is None or gives is None:
        return None
    return (
        f"What comes has {got} channels, as latents of {gives} have, and this part takes {want}, as of {takes}: "
        "VAE, cached latents and model are of different families, or the model is another kind of its family "
        "(inpainting, Fill, image-to-video).",
        "Name the VAE of this model, remove caches of latents that another one made, and choose the task or type "
        "that the model's file is for.",
    )


def _lengths(message: str) -> tuple[str, str] | None:
    """Two tensors that should be of one length."""
    met, joined = _LENGTHS.search(message), _JOINED.search(message)
    found = met or joined
    if found is None:
        return None
    one, other = int(found[1]), int(found[2])
    if (counted := _frames_or_pixels(*sorted((one, other)), side=met is not None and met[3] in "234")) is not None:
        return counted
    if met is not None and met[3] == "1" and one in LATENTS and other in LATENTS:
        return _latents(one, LATENTS[one], other, LATENTS[other])
    if met is not None and met[3] != "0" and one in PACKED and other in PACKED:
        return _latents(one, PACKED[one], other, PACKED[other])
    if abs(one - other) == 1 and min(one, other) > 8:
        return (
            f"Two sizes differ by one ({one} and {other}): the width or height of a picture or video (or its "
            "number of frames) is no multiple of what the model needs, and is rounded up in one place and down "
            "in another.",
            "Take sizes that are multiples of 64 (or of 32 at the least), and frames as the model counts them (4n "
            "+ 1 for Wan and HunyuanVideo, 8n + 1 for LTX); remove caches of latents of other sizes.",
        )
    if one != other and 77 in (one, other) and (met is None or met[3] != "0"):
        return (
            f"A caption is longer than CLIP's 77 tokens in one place, and not in the other ({one} and {other}).",
            "Shorten captions and prompts to 75 tokens, or set the same limit everywhere (max_token_length), and "
            "remove caches of text embeddings that were made with another.",
        )
    return None


def _frames_or_pixels(small: int, large: int, *, side: bool) -> tuple[str, str] | None:
    """Two sizes of which one is counted before the VAE, and the other behind it.

    `side`: they are of a dimension that a picture's side may be."""
    times = next((n for n in (4, 8) if small > _FEW_FRAMES and large - 1 == n * (small - 1)), 0)
    if times:
        return (
            f"One of two tensors counts frames ({large}), and the other latent frames ({small}, one for each "
            f"{times}): the VAE that made one of them does not compress time as this model's does, or this "
            "version of the program mixes them up.",
            "Take the VAE of this very model; where it is that, update the program and diffusers, or take their "
            "releases before.",
        )
    times = next((n for n in (8, 16, 32) if side and large >= _LEAST_PIXELS and large == n * small), 0)
    if times:
        return (
            f"One of two tensors is counted in pixels ({large}), and the other in latents ({small}, one for each "
            f"{times}): a picture, mask or control stands where its latents belong, or the other way round.",
            "Look whether control pictures and masks go through the VAE as this model wants it, and make the "
            "caches of latents anew; where all is named rightly, update the program.",
        )
    return None


def _positions(message: str, frames: Sequence[Frame]) -> tuple[str, str] | None:
    """Positions (rotary embeddings) that are not as many as the tokens."""
    met = _LENGTHS.search(message)
    if met is None or met[3] == "0" or not any(_ROTARY.search(f"{one.function} {one.code}") for one in frames[-2:]):
        return None
    return (
        f"There are {met[1]} tokens, and positions for {met[2]}: the sizes of pictures (height, width, frames, "
        "img_shapes, ids) that the model is told are not those of the latents that it gets, as where a picture "
        "to edit or a control was resized in one place only.",
        "Take sizes that are multiples of 32 for all of them, and make caches that hold sizes or latents anew; "
        "try without control or edit pictures. Where it stays, the program computes the sizes wrongly: update it.",
    )


def _grid(message: str) -> tuple[str, str] | None:
    """A tensor that is cut into a grid which a whole number of times as many numbers would fill, or as many less."""
    found = _RESHAPED.search(message)
    if found is None:
        return None
    shape, size = sizes(found[1]), int(found[2])
    whole = prod(shape)
    if (
        len(shape) >= MOST_FLAT
        and whole > 0
        and size
        and whole % size == 0
        and whole // size in shape[1:3]
        and size != whole
    ):
        channels = whole // size
        return (
            f"A tensor with one channel, as a mask has, is cut into a grid as if it had {channels}: the program "
            "handles a mask or another picture of one channel like latents.",
            "Train without masks (mask_path, masked training, alpha masks) to see; where it runs then, the fault "
            "is the program's: update it, or look for mask in its issues.",
        )
    if len(shape) < MOST_FLAT or whole <= 0 or size % whole or not 1 < (times := size // whole) <= max(LATENTS):
        return None
    return (
        f"A tensor holds {times} times as many numbers as the code cuts it into: latents with {times} times the "
        "channels, as of another family or another kind of model (Fill, Control, inpainting), or as many more "
        "pictures or frames.",
        "Name the model that this pipeline or task is for (a Control or Fill pipeline takes a model of that "
        "kind), and try batch size 1; remove caches of latents that another model made.",
    )
