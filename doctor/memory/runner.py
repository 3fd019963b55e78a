"""What is held in each phase of a run by zdoctor's own runner (doctor/train/training_run.py).

It encodes the captions, then the pictures, and drops the encoders before it loads the transformer, which is quantized
tensor by tensor on its way. What of the encoding does not fit on the card is done on the processor.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from ..families import family_of
from ..families.network import offloaded_share
from ..model import Phase
from ..model.record import replace
from .bytes import KINDS
from .case import CONTEXT_RANGE, HOST_BASE, TEXT_ENCODER_WORK, Case
from .trained_text import trained_text, trained_text_step

# Bytes per pixel of the VAE in float32 whose first block is 128 wide, whole and in strips: benchmarks/vae_strips.py.
ENCODE, ENCODE_STRIPS, DECODE, DECODE_STRIPS = (mib * 2**20 / 256**2 for mib in (161, 73, 242, 140))
IN_STRIPS = ("AutoencoderKL", "AutoencoderKLFlux2")  # the others are called as they are: train/components/vae.py
LARGE = 1_100_000  # pixels of a picture that goes through the VAE in strips: doctor/train/components/vae_strips.py
# float32 copies of what is quantized at a time, or merged with an adapter's part, and how many numbers that are:
# doctor/train/weights/materialize.py.
COPIES, PIECE = {"nf4": 4.5}, 1 << 24
MOST_COPIES = 3
# Bytes a weight of the formats of the runner: four bits have a scale for 64 weights, eight an outlier for 256.
_BYTES = {"int8": 1 + 4 / 256, "float8": 1 + 4 / 256, "nf4": 0.5 + 2 / 64}


def phases_of_runner(case: Case) -> Iterator[Phase]:
    """The phases in their order; those of the encoders that the card may have no room for are left out."""
    recipe, sizes, card, base = case.recipe, case.sizes, case.card, case.base
    width = width_of(case)
    weights = runner_weights(case)
    transformer = case.here(weights)
    held = {"transformer": transformer, **case.network, **trained_text(case, width, _of_linears(case))}
    if recipe.adapter and case.samples:
        held["adapter kept for previews"] = width * recipe.network.rank * sizes.lora_sides
    vae = {"VAE": 4 * sizes.vae}
    pixels = max(map(prod, case.pictures))
    in_full = case.on_mps and not card  # attention scores

    by_strips, scale = _vae_class(case) in IN_STRIPS, sizes.vae_width / 128
    whole = (scale * ENCODE, scale * DECODE) if by_strips else (2 * sizes.encode, 2 * sizes.decode)  # in float32
    encode = int((scale * ENCODE_STRIPS if by_strips and pixels > LARGE else whole[0]) * pixels)
    adapter = {"training adapter": _adapter(case)} if recipe.adapter and not card else {}
    pictures = Phase("encoding the pictures", {**base, **adapter, **vae, "encoding": encode})
    yield from (phase for phase in (_captions(case), pictures) if _fits(phase, case))
    mapped = weights if not card and not case.on_mps and _kind(recipe.precision.quantization) else 0
    last = {"a tensor on its way": _arriving(case) if card else case.sizes.largest_linear * sizes.stored}
    lora = {"LoRA weights": case.network["LoRA weights"]}
    if card and sum(lora.values()) > sum(last.values()):  # made once all tensors are there
        last = lora
    yield Phase("loading the transformer", {**base, "transformer": transformer, **adapter, **last}, mapped)
    step = {**held, **case.step(), **trained_text_step(case, width)}
    if in_full:
        step["attention scores"] = case.scores(sum(case.tokens), recipe.batch_size)
    if mapped and _keeps_matrices(case):
        step["matrices of a block"] = width * sizes.block
    yield Phase("training step", {**base, **step}, mapped)
    if not case.samples:
        return
    # what takes no guidance itself draws two pictures
    twice = not family_of(recipe.architecture).guided and any(s.guidance > 1 for s in case.samples)
    guided = min(2 if twice else 1, sizes.figures.drawn)
    drawing = case.drawing(guided) + (case.drawing_scores(guided) if in_full else 0)
    yield Phase("drawing previews", {**base, **held, "drawing": drawing}, mapped)
    painted = prod(case.largest_sample)
    decode = int((scale * DECODE_STRIPS if by_strips and (card or painted > LARGE) else whole[1]) * painted)
    decoding = {**base, **held, **vae, "decoding": decode}
    yield from (phase for phase in [Phase("decoding previews", decoding, mapped)] if _fits(phase, case))


def phases_without_bfloat16(case: Case) -> Iterator[Phase]:
    """The same of a bfloat16 run on a processor that lacks it: float32, and a text encoder kept in 16 bits."""
    half, whole = (
        case.with_recipe(precision=replace(case.recipe.precision, dtype=dtype)) for dtype in ("fp16", "fp32")
    )
    captions = _captions(half)
    for phase in phases_of_runner(whole):
        yield captions if phase.name == captions.name else phase


def _keeps_matrices(case: Case) -> bool:
    """Whether the Linears of a block keep what they multiplied by for its backward (transformer_blocks.py)."""
    offload = case.recipe.offload
    return offload.every_block_again and not offload.compile and case.dtype != "float16"


def runner_weights(case: Case) -> int:
    """Bytes of the transformer as the runner keeps it."""
    return runner_blocks(case) + width_of(case) * case.sizes.rest


def runner_blocks(case: Case) -> int:
    """Bytes of its blocks; with one float32 scale a row, but for four bits."""
    sizes, kind = case.sizes, _kind(case.recipe.precision.quantization)
    if kind is not None:
        return int(_BYTES[kind] * sizes.blocks) + 4 * sizes.block_rows * (kind != "nf4")
    if case.is_half:
        return 2 * sizes.blocks + 4 * sizes.block_rows
    return width_of(case) * sizes.blocks


def width_of(case: Case) -> int:
    """Bytes of a number outside the quantized weights."""
    return 4 if case.is_half else case.width


def _text_encoder(case: Case) -> int:
    sizes, width = case.sizes, width_of(case)
    numbers = sizes.text_encoder - _head(case)
    if not _is_streamed(case):
        return width * numbers
    linears = _of_linears(case) * sizes.text_linears
    return int(linears) + width * (numbers - sizes.text_linears)


def _head(case: Case) -> int:
    """Numbers of the text encoder that the runner does not load."""
    encoders = case.sizes.encoders.values() if case.sizes.figures.headless else ()
    return sum(prod(shape) for shapes in encoders for name, shape in shapes.items() if name.startswith("lm_head."))


def _vae_class(case: Case) -> str:
    published = family_of(case.recipe.architecture).published
    return published["vae"][0] if "vae" in published else ""


def _of_linears(case: Case) -> float:
    """Bytes of a number in the Linears of the largest text encoder, with its share of the scales."""
    kind = _kind(case.recipe.precision.text_encoder_quantization)
    return (2 if kind is None else _BYTES[kind]) * 1.002 if _is_streamed(case) else width_of(case)


def _is_streamed(case: Case) -> bool:
    """Whether the Linears of the text encoder are quantized, or float16, as they arrive."""
    return _kind(case.recipe.precision.text_encoder_quantization) is not None or case.is_half


def host_peak(case: Case) -> int:
    """Host bytes that cannot be given back while a run for a card loads.

    A tensor goes to the card as it is read, with what an adapter adds to it. Blocks that wait in host memory
    (layer_offloading) are made there. A text encoder that the card has no room for is held in host memory; another
    one too, while it is converted.
    """
    waiting = runner_weights(case) if offloaded_share(case.run) else case.sizes.largest_linear * case.sizes.stored
    is_converted = not _is_streamed(case) and case.sizes.text_stored != width_of(case)
    is_here = is_converted or not _fits(_captions(case), case)
    return HOST_BASE + _adapter(case) + max(waiting, _text_encoder(case) if is_here else 0)


def _adapter(case: Case) -> int:
    """Bytes of a training adapter of the LoRA's rank, in host memory until it is merged."""
    return 4 * case.recipe.network.rank * case.sizes.lora_sides if case.recipe.adapter else 0


def _captions(case: Case) -> Phase:
    recipe, sizes, card, width = case.recipe, case.sizes, case.card, width_of(case)
    work = {"encoding": int(TEXT_ENCODER_WORK * width / 2 * sizes.text_encoder)}
    if card and _is_streamed(case):
        kind = _kind(recipe.precision.text_encoder_quantization)
        arriving = quantizing(case.sizes.largest_text_linear, kind)
        work = max(work, {"a tensor on its way": arriving}, key=lambda item: sum(item.values()))
    items = {"text encoder": _text_encoder(case), **work}
    if recipe.adapter and not card:
        items["training adapter"] = _adapter(case)
    is_mapped = not card and not case.on_mps and not _is_streamed(case) and sizes.text_stored == width
    if not card:  # that of the text encoder and the one that waits for it
        items["the other process"] = HOST_BASE
    return Phase("encoding the captions", {**case.base, **items}, items["text encoder"] if is_mapped else 0)


def _fits(phase: Phase, case: Case) -> bool:
    return case.card is None or 1.03 * phase.total + CONTEXT_RANGE <= case.card.memory_free


def _kind(quantization: str | None) -> str | None:
    """The runner's format by its name without what follows "|"; None for what the runner leaves unquantized."""
    kind = KINDS.get((quantization or "none").partition("|")[0])
    return kind if kind in _BYTES else None


def _arriving(case: Case) -> int:
    """What a weight of the transformer takes on a card beside what stays of it."""
    kind = _kind(case.recipe.precision.quantization)
    if offloaded_share(case.run):
        return 0
    if kind is not None or case.is_half:
        return quantizing(case.sizes.largest_linear, kind)
    return 4 * MOST_COPIES * case.sizes.largest_linear if case.recipe.adapter else 0


def quantizing(largest: int, kind: str | None) -> int:
    """The most bytes that a card takes while weights of up to so many numbers are quantized."""
    return int(4 * COPIES.get(kind or "", MOST_COPIES) * min(largest, PIECE))
