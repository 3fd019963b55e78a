"""What is held in each phase of a run by zdoctor's own runner (doctor/train/training_run.py).

It encodes the captions, then the pictures, and drops the encoders before it loads the transformer, which is quantized
tensor by tensor on its way. What of the encoding does not fit on the card is done on the processor.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from ..families import family_of
from ..families.network import offloaded_share, trained_weights
from ..model import DatasetFolder, Gpu, Phase, Run
from ..model.record import replace
from .bytes import WIDTHS, state_bytes
from .phases import (
    CONTEXT,
    CONTEXT_RANGE,
    HOST_BASE,
    TEXT_ENCODER_WORK,
    activations_of,
    buckets,
    on_card,
    on_mps,
    scores_of,
    sequence_of,
    tokens_of,
)
from .sizes import Sizes

# Bytes per pixel of the VAE in float32 whose first block is 128 wide, whole and in strips: benchmarks/vae_strips.py.
ENCODE, ENCODE_STRIPS, DECODE, DECODE_STRIPS = (mib * 2**20 / 256**2 for mib in (161, 73, 242, 140))
LARGE = 1_100_000  # pixels of a picture that goes through the VAE in strips: doctor/train/components/vae_strips.py
# float32 copies of what is quantized at a time, with an adapter's part: doctor/train/weights/materialize.py.
COPIES, PIECE = 3, 1 << 26
_HALF = ("fp16", "half", "float16")
_BRAIN = ("bf16", "bfloat16")
_FOUR_BITS = ("nf4", "uint4", "qint4")
# Bytes a weight of the formats of the runner (doctor/train/settings/names.py); four bits have a scale for 64 weights.
_BYTES = {
    **dict.fromkeys(("int8", "qint8", "float8", "qfloat8", "qfloat8_e4m3fn"), 1.0),
    **dict.fromkeys(_FOUR_BITS, 0.5 + 2 / 64),
}


def phases_of_runner(run: Run, sizes: Sizes, datasets: Sequence[DatasetFolder], card: Gpu | None) -> Iterator[Phase]:
    """The phases in their order; those of the encoders that the card may have no room for are left out."""
    recipe = run.recipe
    base = _base(card)
    width = width_of(run, card)
    weights = runner_weights(run, sizes, card)
    transformer = on_card(sizes, run, weights) if card else weights
    trained = trained_weights(run.recipe.network, sizes.linears)
    held = {
        "transformer": transformer,
        "LoRA weights": 4 * trained * (2 if recipe.ema.use else 1),
        "optimizer": int(state_bytes(recipe.optimizer.name) * trained),
    }
    paints = bool(recipe.validation.prompts) and not recipe.validation.disabled
    if recipe.adapter and paints:
        held["adapter kept for previews"] = width * recipe.network.rank * sizes.lora_sides
    vae = {"VAE": 4 * sizes.vae}
    vae_scale = sizes.vae_width / 128
    sides = buckets(run, datasets)
    pixels = max(prod(picture) for picture in sides)
    image, text = sequence_of(run, sizes, sides)

    encode = int((ENCODE_STRIPS if pixels > LARGE else ENCODE) * vae_scale * pixels)
    adapter = {"adapter": _adapter(run, sizes)} if recipe.adapter and not card else {}
    pictures = Phase("encoding the pictures", {**base, **adapter, **vae, "encoding": encode})
    yield from (phase for phase in (_captions(run, sizes, card), pictures) if _fits(phase, card))
    arriving = min(_largest(sizes), PIECE) * 4 * COPIES if card else _largest(sizes) * sizes.stored
    loaded = transformer if not offloaded_share(run) else 0
    mapped = weights if not card and not on_mps(run) and _kind(recipe.precision.quantization) else 0
    yield Phase(
        "loading the transformer", {**base, "transformer": loaded, **adapter, "a tensor on its way": arriving}, mapped
    )
    activations = activations_of(run, sizes, image, text, half=is_half(run, card))
    step = {**held, "gradients": 4 * trained, "activations": activations}
    if on_mps(run) and not card:
        step["attention scores"] = scores_of(run, sizes, image + text, card)
    if mapped and _keeps_matrices(run):
        step["matrices of a block"] = width * sizes.block
    yield Phase("training step", {**base, **step}, mapped)
    if not paints:
        return
    wide, high = max(((max(16, s.width), max(16, s.height)) for s in recipe.validation.prompts), key=prod)
    # what takes no guidance itself draws two pictures
    twice = not family_of(recipe.architecture).guided and any(s.guidance > 1 for s in recipe.validation.prompts)
    guided = 2 if twice else 1
    tokens = guided * (tokens_of(sizes, wide, high) + text)
    drawing = int(sizes.figures.moment * width * sizes.width * tokens)
    if on_mps(run) and not card:
        drawing += scores_of(replace(run, recipe=replace(recipe, batch_size=guided)), sizes, tokens // guided, card)
    yield Phase("drawing previews", {**base, **held, "drawing": drawing}, mapped)
    strips = DECODE_STRIPS if card or wide * high > LARGE else DECODE
    painted = {"decoding": int(strips * vae_scale * wide * high)}
    decoding = Phase("decoding previews", {**base, **held, **vae, **painted}, mapped)
    if _fits(decoding, card):
        yield decoding


def phases_without_bfloat16(run: Run, sizes: Sizes, datasets: Sequence[DatasetFolder]) -> Iterator[Phase]:
    """The same of a bfloat16 run on a processor that lacks it: float32, and a text encoder kept in 16 bits."""
    recipe = run.recipe
    whole = _captions(
        replace(run, recipe=replace(recipe, precision=replace(recipe.precision, dtype="fp16"))), sizes, None
    )
    for phase in phases_of_runner(
        replace(run, recipe=replace(recipe, precision=replace(recipe.precision, dtype="fp32"))),
        sizes,
        datasets,
        None,
    ):
        yield whole if phase.name == whole.name else phase


def _keeps_matrices(run: Run) -> bool:
    """Whether the Linears of a block keep what they multiplied by for its backward (transformer_blocks.py)."""
    offload = run.recipe.offload
    return (
        offload.gradient_checkpointing
        and offload.interval == 1
        and not offload.compile
        and run.recipe.precision.dtype not in _HALF
    )


def runner_weights(run: Run, sizes: Sizes, card: Gpu | None) -> int:
    """Bytes of the transformer as the runner keeps it."""
    return runner_blocks(run, sizes, card) + width_of(run, card) * sizes.rest


def runner_blocks(run: Run, sizes: Sizes, card: Gpu | None) -> int:
    kind = _kind(run.recipe.precision.quantization)
    if kind is not None:
        return int(_BYTES[kind] * sizes.blocks) + 4 * sizes.block_rows * (kind not in _FOUR_BITS)
    if is_half(run, card):  # float16, with a float32 scale a row
        return 2 * sizes.blocks + 4 * sizes.block_rows
    return width_of(run, card) * sizes.blocks


def width_of(run: Run, card: Gpu | None) -> int:
    """Bytes of a number outside the quantized weights."""
    return 4 if is_half(run, card) else WIDTHS[run.recipe.precision.dtype]


def is_half(run: Run, card: Gpu | None) -> bool:
    """Whether the Linears multiply in float16 and the rest is float32 (doctor/train/runtime/precision.py)."""
    old = card is not None and card.capability is not None and card.capability < (8, 0)
    return run.recipe.precision.dtype in _HALF or (run.recipe.precision.dtype in _BRAIN and old)


def text_encoder(run: Run, sizes: Sizes, card: Gpu | None) -> int:
    width, kind = width_of(run, card), _kind(run.recipe.precision.text_encoder_quantization)
    if not _is_streamed(run, card):
        return width * sizes.text_encoder
    linears = (2 if kind is None else _BYTES[kind]) * 1.002 * sizes.text_linears
    return int(linears) + width * (sizes.text_encoder - sizes.text_linears)


def _is_streamed(run: Run, card: Gpu | None) -> bool:
    """Whether the Linears of the text encoder are quantized, or float16, as they arrive."""
    return _kind(run.recipe.precision.text_encoder_quantization) is not None or is_half(run, card)


def host_peak(run: Run, sizes: Sizes, card: Gpu) -> int:
    """Host bytes that cannot be given back while a run for a card loads.

    A tensor goes to the card as it is read, with what an adapter adds to it. Blocks that wait in host memory
    (layer_offloading) are made there. A text encoder that the card has no room for is held in host memory; another
    one too, while it is converted.
    """
    waiting = runner_weights(run, sizes, card) if offloaded_share(run) else _largest(sizes) * sizes.stored
    encoder = text_encoder(run, sizes, card)
    is_converted = not _is_streamed(run, card) and sizes.text_stored != width_of(run, card)
    is_here = is_converted or not _fits(_captions(run, sizes, card), card)
    return HOST_BASE + _adapter(run, sizes) + max(waiting, encoder if is_here else 0)


def _adapter(run: Run, sizes: Sizes) -> int:
    """Bytes of a training adapter of the LoRA's rank, in host memory until it is merged."""
    return 4 * run.recipe.network.rank * sizes.lora_sides if run.recipe.adapter else 0


def _base(card: Gpu | None) -> dict[str, int]:
    return {"CUDA context (assumed)": CONTEXT} if card else {"Python and its libraries": HOST_BASE}


def _captions(run: Run, sizes: Sizes, card: Gpu | None) -> Phase:
    work = int(TEXT_ENCODER_WORK * width_of(run, card) / 2 * sizes.text_encoder)
    items = {"text encoder": text_encoder(run, sizes, card), "encoding": work}
    if run.recipe.adapter and not card:
        items["adapter"] = _adapter(run, sizes)
    is_mapped = (
        not card and not on_mps(run) and not _is_streamed(run, card) and sizes.text_stored == width_of(run, card)
    )
    if not card:  # that of the text encoder and the one that waits for it
        items["the other process"] = HOST_BASE
    return Phase("encoding the captions", {**_base(card), **items}, items["text encoder"] if is_mapped else 0)


def _fits(phase: Phase, card: Gpu | None) -> bool:
    return card is None or 1.03 * phase.total + CONTEXT_RANGE <= card.memory_free


def _kind(quantization: str | None) -> str | None:
    """The format without what follows "|"; None for what the runner leaves unquantized."""
    name = (quantization or "none").partition("|")[0]
    return name if name in _BYTES else None


def _largest(sizes: Sizes) -> int:
    """Numbers in the largest weight of a block."""
    return max(map(prod, sizes.linears.values()), default=0)
