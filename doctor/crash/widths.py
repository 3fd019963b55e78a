"""Which models two sizes belong to that meet: of text embeddings, latents or LoRAs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod

from ..model.crashes import Failure, Frame, Known
from .file_sizes import by_file, sizes
from .model_widths import LATENTS, PACKED, TEXT, TEXT_LAYERS

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
_EDITED = re.compile(r"edit|kontext|control|reference|redux", re.I)
_LEAST_TOKENS = 256
_PATCH = (2, 2)
_RESHAPED = re.compile(r"shape '\[([\d, ]+)\]' is invalid for input of size (\d+)")
MOST_FLAT = 5
SOURCE = "https://github.com/pytorch/pytorch/blob/v2.13.0/torch/nn/modules/module.py"


def by_widths(failure: Failure) -> Known | None:
    """What the sizes in a failure's words tell, where two models can be told by them."""
    message = " ".join(failure.message.split())
    told = next((told for read in (_products, _lengths, _grid, by_file) if (told := read(message)) is not None), None)
    told = _positions(message, failure.frames) or _edited(message, failure.frames) or told
    if told is None:
        return None
    cause, do = told
    return Known(cause, do, error=failure.name, source=SOURCE)


def _products(message: str) -> tuple[str, str] | None:
    """A layer that gets what is not as wide as it takes."""
    product, norm, channels = (pattern.search(message) for pattern in (_PRODUCT, _NORM, _CHANNELS))
    if channels is not None:
        want, got = map(int, channels.groups())
        return _masked(want, got) or _latents(want, LATENTS.get(want), got, LATENTS.get(got))
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


def _masked(want: int, got: int) -> tuple[str, str] | None:
    """A model that takes a mask and a picture beside the latents, and is handed these alone."""
    if got in LATENTS and want == 2 * got + 1:
        return (
            f"The model takes {want} channels: the {got} of latents, a mask, and the {got} of a masked picture; here "
            f"come the {got} of latents alone. It is one for inpainting (InP, Fill), trained or run as a plain one.",
            "Choose the task of such a model (train_mode inpaint, an inpainting pipeline), or take the plain model "
            f"of its family, whose first layer takes {got}.",
        )
    if got in LATENTS and want == 2 * got + 4:
        return (
            f"The model takes {want} channels: the {got} of latents, four of a mask, and the {got} of a first frame; "
            f"here come the {got} of latents alone. It is one for image-to-video, trained or run without a picture.",
            "Choose the task image-to-video (i2v) and make the caches for it, with the first frame; or take the "
            "text-to-video model.",
        )
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


def _edited(message: str, frames: Sequence[Frame]) -> tuple[str, str] | None:
    """As many tokens again as a picture has, in the code for models that edit one."""
    met = _LENGTHS.search(message)
    if met is None or met[3] != "1":
        return None
    few, many = sorted((int(met[1]), int(met[2])))
    if few >= _LEAST_TOKENS and many in (2 * few, 3 * few) and any(_EDITED.search(one.file) for one in frames):
        return (
            f"There are {few} tokens of a picture in one place and {many} in another, {many // few} times as many: "
            "the picture to edit (control, reference) is counted with in one place only, or it has another size than "
            "the code assumes.",
            "Install the diffusers that the program was written for (pip install -r requirements.txt in its folder), "
            "and scale the pictures to edit to the resolution that is set.",
        )
    return None


def _unpacked(shape: Sequence[int], whole: int, size: int) -> tuple[str, str] | None:
    """Packed latents that are laid out again (FLUX's _unpack_latents) with sides that are not theirs."""
    if tuple(shape[4:]) != _PATCH or shape[3] not in LATENTS:
        return None
    times = next((n for n in (2, 4, 8, 16) if size in (whole * n * n, whole / (n * n))), 0)
    if not times:
        return None
    return (
        f"Packed latents are laid out with a height and width that are {times} times too "
        f"{'small' if size > whole else 'large'}: the script hands over other units (latents, pixels, or a VAE's "
        "factor of 8 or 16) than this diffusers counts in. It changed that in 0.32; most often script "
        "and diffusers are of different releases.",
        "Take the script of the release that is installed (git checkout v0.35.1 and the like in a checkout of "
        "diffusers), or for a script of the main branch pip install git+https://github.com/huggingface/diffusers",
    )


def _grid(message: str) -> tuple[str, str] | None:
    """A tensor that is cut into a grid which a whole number of times as many numbers would fill, or as many less."""
    found = _RESHAPED.search(message)
    if found is None:
        return None
    shape, size = sizes(found[1]), int(found[2])
    whole = prod(shape)
    if (told := _unpacked(shape, whole, size)) is not None:
        return told
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
