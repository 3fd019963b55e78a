"""What is held in each phase of a run by ai-toolkit and SimpleTuner."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from ..families import family_of
from ..families.network import offloaded_share, trained_weights
from ..model import DatasetFolder, Gpu, Phase, Run
from ..model.buckets import bucket_size
from ..model.record import replace
from ..trainers import trainer_of
from .bytes import QUANTIZED, WIDTHS, state_bytes
from .sizes import Sizes

GIB = 1 << 30
CONTEXT = int(0.45 * GIB)
CONTEXT_RANGE = int(0.2 * GIB)
HOST_BASE = int(0.6 * GIB)
# Weights alone, and the quantized ones take no more than they leave: ai-toolkit's own example for Flux on 24 GB cards
# goes through this phase.
QUANTIZING = "quantizing the transformer"
# The LoRA branch computes in 32 bits; how much of its copies is alive at the peak is not known.
LORA_COPIES = 35.0
# Bytes per pixel of a 16-bit VAE whose first block is 128 wide.
VAE_ENCODE = 1.26 * GIB / 2**20
VAE_DECODE = 1.50 * GIB / 2**20
# Encoding 512 tokens with the hidden states of all layers kept, for the 4.02 billion parameters of Qwen3-4B.
TEXT_ENCODER_WORK = 0.12 * GIB / 4.02e9


def weights_of(sizes: Sizes, run: Run) -> int:
    return blocks_of(sizes, run) + WIDTHS[run.recipe.precision.dtype] * sizes.rest


def blocks_of(sizes: Sizes, run: Run) -> int:
    recipe = run.recipe
    if recipe.precision.quantization is None:
        return WIDTHS[recipe.precision.dtype] * sizes.blocks
    return int(QUANTIZED[recipe.precision.quantization.partition("|")[0]] * sizes.blocks + 2 * sizes.block_rows)


def on_card(sizes: Sizes, run: Run, weights: int) -> int:
    """The weights on the card: of the blocks that wait in host memory, only the one that runs and the next."""
    away = int(offloaded_share(run) * blocks_of(sizes, run))
    return weights - away + min(away, 2 * blocks_of(sizes, run) * sizes.block // max(1, sizes.blocks))


def _text_encoder(sizes: Sizes, run: Run) -> int:
    recipe = run.recipe
    if recipe.precision.text_encoder_quantization is None:
        return WIDTHS[recipe.precision.dtype] * sizes.text_encoder
    return int(QUANTIZED[recipe.precision.text_encoder_quantization.partition("|")[0]] * sizes.text_encoder * 1.03)


def tokens_of(sizes: Sizes, width: int, height: int) -> int:
    return _up(max(1, width // 16) * max(1, height // 16), sizes.figures.padding)


def _up(tokens: int, padding: int) -> int:
    return -(-tokens // padding) * padding


def sequence_of(run: Run, sizes: Sizes, pictures: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """(image, text) tokens of the largest of `pictures`; a control image has as many as its picture."""
    image = max(tokens_of(sizes, *picture) for picture in pictures)
    edits = family_of(run.recipe.architecture).edits and any(
        dataset.control_folders for dataset in run.recipe.datasets
    )
    return image * (2 if edits else 1), _up(sizes.figures.text, sizes.figures.padding)


def buckets(run: Run, datasets: Sequence[DatasetFolder]) -> list[tuple[int, int]]:
    """(width, height) in pixels of the largest training picture of each dataset and resolution.

    ai-toolkit shrinks a picture to the area of the resolution and never enlarges one; kohya's trainers do.
    """
    found: list[tuple[int, int]] = []
    read = {folder.key: folder for folder in datasets}
    for dataset in run.recipe.datasets:
        folder = read.get(dataset.key)
        read_whole = folder.images if folder and not folder.more else ()
        pictures = [(image.width, image.height) for image in read_whole if dataset.takes(image.width, image.height)]
        for how in (dataset.buckets_at(resolution) for resolution in dataset.resolutions or (512,)):
            sizes = [bucket_size(how, *size) for size in pictures]
            found.append(max(sizes, key=prod, default=(how.width, how.height)))
    return found or [(512, 512)]


def activations_of(run: Run, sizes: Sizes, image: int, text: int, *, half: bool = False) -> int:
    """Bytes that forward and backward keep for `image` and `text` tokens per sample, at their highest.

    `half`: as zdoctor's runner computes in float16.
    """
    recipe = run.recipe
    wide = 1.0 if WIDTHS[recipe.precision.dtype] <= 2 else 1.6
    of_block, moment = sizes.figures.kept * wide, sizes.figures.moment * wide
    if half:
        of_block, moment = sizes.figures.half_kept, sizes.figures.half_moment
    together = image + text
    through = sizes.layers * together + sizes.refiners * image + sizes.refiners * text
    if recipe.offload.gradient_checkpointing:
        kept = (4 if half else max(2, WIDTHS[recipe.precision.dtype])) * through + together * (of_block + moment)
        kept += of_block * together * (sizes.layers - -(-sizes.layers // max(1, recipe.offload.interval)))
    else:
        kept = of_block * through
    return int(recipe.batch_size * sizes.width * kept)


def on_mps(run: Run) -> bool:
    return run.device.startswith("mps")


def scores_of(run: Run, sizes: Sizes, tokens: int, card: Gpu | None) -> int:
    """Attention scores in full: neither MPS nor, for bf16, cards before Ampere have a fused kernel to train with."""
    old = card is not None and card.capability is not None and card.capability < (8, 0)
    if not (old and run.recipe.precision.dtype in ("bf16", "bfloat16")) and (card or not on_mps(run)):
        return 0
    return sizes.heads * tokens * tokens * 4 * run.recipe.batch_size


def phases_of_trainer(run: Run, sizes: Sizes, datasets: Sequence[DatasetFolder], card: Gpu | None) -> Iterator[Phase]:
    recipe = run.recipe
    width = WIDTHS[recipe.precision.dtype]
    base = {"CUDA context (assumed)": CONTEXT} if card else {"Python and its libraries": HOST_BASE}
    transformer = on_card(sizes, run, weights_of(sizes, run)) if card else weights_of(sizes, run)
    encoder = _text_encoder(sizes, run)
    vae = width * sizes.vae
    trained = trained_weights(recipe.network, sizes.linears)
    lora = {
        "LoRA weights": 4 * trained * (2 if recipe.ema.use else 1),
        "optimizer": int(state_bytes(recipe.optimizer.name) * trained),
    }
    adapter = {"adapter kept for sampling": 2 * recipe.network.rank * sizes.lora_sides} if recipe.adapter else {}
    text_gone = recipe.cache_text_embeddings or recipe.unload_text_encoder
    resident_text = {} if text_gone else {"text encoder": encoder}
    cached = bool(recipe.datasets) and all(d.cache_latents or d.cache_latents_to_disk for d in recipe.datasets)
    resident_vae = {} if cached else {"VAE": vae}
    pictures = buckets(run, datasets)
    pixels = max(prod(picture) for picture in pictures)
    image, text = sequence_of(run, sizes, pictures)
    vae_scale = (width / 2) * (sizes.vae_width / 128)

    whole = width * sizes.text_encoder
    trainer = trainer_of(run.trainer)
    alone = trainer.encodes_first
    beside = {} if card or alone else {"transformer": transformer}
    crowded = sizes.figures.beside and trainer.encodes_beside
    crowd = {"transformer": transformer} if crowded else beside
    if card and crowded and recipe.precision.quantization and not recipe.offload.low_vram:
        unquantized = width * (sizes.blocks + sizes.rest)
        yield Phase(QUANTIZING, {**base, "transformer before quantizing": unquantized})
    yield Phase("loading the text encoder", {**base, **crowd, "text encoder before quantizing": whole})
    if card and not alone and not recipe.offload.low_vram:
        together = {"transformer": transformer, "text encoder": encoder, "VAE": vae}
        yield Phase("loading the models side by side", {**base, **together})
    if recipe.cache_text_embeddings:
        work = {"text encoder": encoder, "encoding": int(TEXT_ENCODER_WORK * sizes.text_encoder)}
        yield Phase("caching the text embeddings", {**base, **beside, **work})
    encode = int(VAE_ENCODE * pixels * vae_scale)
    if cached:
        yield Phase("caching the latents", {**base, **beside, "VAE": vae, "encoding": encode})
    else:
        held = {"transformer": transformer, **lora, **resident_text, "VAE": vae}
        yield Phase("encoding a batch", {**base, **held, "encoding": encode * recipe.batch_size})
    step = {"transformer": transformer, **lora, "gradients": 4 * trained, **resident_text, **resident_vae}
    step["activations"] = activations_of(run, sizes, image, text)
    scores = scores_of(run, sizes, image + text, card)
    if scores:
        step["attention scores"] = scores
    yield Phase("training step", {**base, **step})
    if recipe.validation.prompts and not recipe.validation.disabled:
        wide, high = max(((max(16, s.width), max(16, s.height)) for s in recipe.validation.prompts), key=prod)
        area = wide * high
        tokens = tokens_of(sizes, wide, high) + text
        drawing = int(2 * sizes.figures.moment * width / 2 * sizes.width * tokens) + scores_of(
            replace(run, recipe=replace(recipe, batch_size=1)), sizes, tokens, card
        )
        decode = int(VAE_DECODE * area * vae_scale)
        held = {"transformer": transformer, **lora, **adapter, **resident_text, "VAE": vae}
        yield Phase("drawing samples", {**base, **held, "drawing or decoding": max(drawing, decode)})
