"""A case is a run on a card with a model and datasets of known sizes; here is what all phases ask of it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import dropwhile
from math import prod
from typing import Any

from ..families import family_of
from ..families.network import offloaded_share
from ..families.record.blocks import block_of
from ..families.record.steps import ADAPTED, EIGHT_BITS, FEW, HALF_NORMS, LOKR, OFFLOADED, SCALED, Tokens
from ..model import DatasetFolder, Gpu, Run, SamplePrompt
from ..model.buckets import bucket_size
from ..model.recipe import Recipe
from ..model.record import dataclass, replace
from ..trainers import trainer_of
from .bytes import DTYPES, QUANTIZED, WIDTHS, state_bytes
from .sizes import Sizes, trained_on

GIB = 1 << 30
CONTEXT = int(0.45 * GIB)
CONTEXT_RANGE = int(0.2 * GIB)
HOST_BASE = int(0.6 * GIB)
# Encoding 512 tokens with the hidden states of all layers kept, for the 4.02 billion parameters of Qwen3-4B.
TEXT_ENCODER_WORK = 0.12 * GIB / 4.02e9
FEWEST = 32  # rows that SDNQ multiplies in 8 bits: linear_int8.py of sdnq 0.2.8
# A scale of 16 bits for 64 weights in 8: modules/fp8_optimization_utils.py of musubi-tuner (30c658c4).
SCALES = 2 / 64


@dataclass(frozen=True)
class Case:
    """A run on a `card`; None: on the processor, or on MPS. Sizes are in bytes."""

    run: Run
    sizes: Sizes
    datasets: Sequence[DatasetFolder]
    card: Gpu | None

    def with_recipe(self, **changes: Any) -> Case:
        return replace(self, run=replace(self.run, recipe=replace(self.recipe, **changes)))

    @property
    def recipe(self) -> Recipe:
        return self.run.recipe

    @property
    def on_mps(self) -> bool:
        return self.run.device.startswith("mps")

    @property
    def is_old(self) -> bool:
        """Whether the card has no bfloat16 arithmetic."""
        return self.card is not None and self.card.capability is not None and self.card.capability < (8, 0)

    @property
    def dtype(self) -> str | None:
        """PyTorch's name of the type that the config names."""
        return DTYPES.get(self.recipe.precision.dtype)

    @property
    def width(self) -> int:
        """Of a number in the dtype that the config names."""
        return WIDTHS[self.recipe.precision.dtype]

    @property
    def base(self) -> dict[str, int]:
        return {"CUDA context (assumed)": CONTEXT} if self.card else {"Python and its libraries": HOST_BASE}

    @cached_property
    def trained(self) -> int:
        return self.networks * trained_on(self.sizes, self.recipe.network)

    @property
    def experts(self) -> int:
        """How many transformers are trained."""
        if self.sizes.of_kohya is None:
            return self.sizes.figures.experts
        return 1 + ("transformer_2" in self.recipe.sources)

    @property
    def networks(self) -> int:
        """How many LoRAs there are: kohya's trainers have one for all experts."""
        return self.experts if self.sizes.of_kohya is None else 1

    @property
    def of_lora(self) -> int:
        """Bytes of a trained number, and of its gradient."""
        if self.recipe.precision.network:
            return WIDTHS.get(self.recipe.precision.network, 4)
        return self.width if trainer_of(self.run.trainer).lora_as_model else 4

    @property
    def of_state(self) -> float:
        """Bytes of the optimizer's state for a trained number, in the LoRA's type where it has none of its own."""
        state = state_bytes(self.recipe.optimizer.name)
        return state / 2 if self.recipe.precision.network and self.of_lora == 2 and state >= 4 else state

    @property
    def network(self) -> dict[str, int]:
        """What is held for the network beside its gradients."""
        return {
            "LoRA weights": self.of_lora * self.trained * (2 if self.recipe.ema.use else 1),
            "optimizer state": int(self.of_state * self.trained),
        }

    @property
    def largest_batch(self) -> Tokens:
        """What the largest step is made with.

        A LoRA on more layers than those with which steps were mined counts as one of a higher rank; one in 16 bits is
        not copied for its products, and its gradients are half as large.
        """
        rank, mined = self.recipe.network.rank, self.sizes.mined_sides
        if self.recipe.network.conv_rank and mined:
            rank = round(self.trained / mined)
        return Tokens(self.recipe.batch_size, *self.tokens, rank, 0.5 if self.recipe.precision.network else 1.0)

    @cached_property
    def more_outputs(self) -> int:
        """At most what zdoctor's DoRA, LoKr and OFT keep beside what a LoRA does: once more what each Linear gives.

        Of one block where blocks are computed again; as if each Linear saw all tokens, which not every one does.
        """
        if not self.run.by_runner or self.recipe.network.type in ("lora", "loha"):
            return 0
        of_block: dict[str, int] = {}
        lists = family_of(self.recipe.architecture).blocks
        for name, (out, *_) in self.sizes.linears.items():
            block = block_of(name, lists)
            of_block[block] = of_block.get(block, 0) + out
        together = max if self.recipe.offload.every_block_again else sum
        return self.width * self.recipe.batch_size * sum(self.tokens) * together(of_block.values() or [0])

    @cached_property
    def pictures(self) -> list[tuple[int, int]]:
        """(width, height) in pixels of the largest picture of each dataset and resolution."""
        return buckets(self.run, self.datasets)

    @cached_property
    def tokens(self) -> tuple[int, int]:
        """(image, text) tokens of the largest picture or film; a control image has as many as its picture."""
        figures, image = self.sizes.figures, self.cells(*self.largest)
        of = self.sizes.of_kohya or figures
        cut = any(d.control_buckets is not None and not d.control_buckets.width for d in self.recipe.datasets)
        own = of.control_pixels if not (cut or self.recipe.controls_match) else 0
        control = own // figures.pixels**2 or image
        text = _up(self.caption + self.controls * figures.control_text, figures.padding)
        image += self.controls * control
        return image, _up(image + text, figures.together) - image

    @cached_property
    def largest(self) -> tuple[int, int, int]:
        """(width, height, frames) of what most tokens are made of."""
        return max(films(self.run, self.datasets), key=lambda film: self.cells(*film))

    def cells(self, width: int, height: int, frames: int) -> int:
        """Tokens of a film, or of a picture."""
        if windows := self.sizes.figures.windows:
            return int(windows[frames > 1] * self.tokens_of(width, height))
        return self.tokens_of(width, height) * self.frames(frames)

    @property
    def caption(self) -> int:
        """Tokens of the longest caption: where all are written in the config no more than it has bytes."""
        figures, sets, kohya = self.sizes.figures, self.recipe.datasets, self.sizes.of_kohya
        if kohya is not None and kohya.text:
            return kohya.text
        if not figures.template or not sets or any(one.captions != "default" for one in sets):
            return figures.text
        return min(figures.text, figures.template + max(len(one.default_caption.encode()) for one in sets))

    def frames(self, pictures: int) -> int:
        """How many times a picture's tokens a film of so many pictures has."""
        each = self.sizes.figures.frames
        return 1 + max(0, pictures - 1) // each if each else 1

    @property
    def controls(self) -> int:
        """How many control images a picture has."""
        most = max((len(one.control_folders or one.controls) for one in self.recipe.datasets), default=0)
        edits = family_of(self.recipe.architecture).edits
        return most if self.sizes.figures.several_controls else min(edits.most if edits else 0, most)

    def tokens_of(self, width: int, height: int) -> int:
        side = self.sizes.figures.pixels
        return _up(max(1, width // side) * max(1, height // side), self.sizes.figures.padding)

    @property
    def samples(self) -> Sequence[SamplePrompt]:
        return self.recipe.validation.painted

    @property
    def largest_sample(self) -> tuple[int, int]:
        """Its sides in pixels, where there are samples."""
        return max(((max(16, s.width), max(16, s.height)) for s in self.samples), key=prod)

    @property
    def decoded(self) -> int:
        """Pixels that the VAE decodes at a time."""
        tile = self.sizes.figures.tile if self.recipe.offload.low_vram else 0
        return min(prod(self.largest_sample), tile * tile or prod(self.largest_sample))

    @property
    def blocks(self) -> int:
        """The transformer's blocks as other trainers than zdoctor's keep them."""
        if self.recipe.precision.quantization is None:
            return self.width * self.sizes.blocks
        if self.sizes.of_kohya:
            return int((1 + SCALES * self.recipe.precision.scaled) * self.sizes.blocks)
        kind = self.recipe.precision.quantization.partition("|")[0]
        scales = (
            4 * self.sizes.blocks // group if (group := self.recipe.precision.group) else 2 * self.sizes.block_rows
        )
        return int(QUANTIZED[kind] * self.sizes.blocks + scales)

    def here(self, weights: int) -> int:
        """The weights on the card: of the blocks that wait in host memory, only the one that runs and the next."""
        if not self.card:
            return weights
        if self.sizes.of_kohya:
            return weights - self.swapped
        away = int(offloaded_share(self.run) * self.blocks)
        return weights - away + min(away, 2 * self.blocks * self.sizes.block // max(1, self.sizes.blocks))

    @cached_property
    def swapped(self) -> int:
        """What waits in host memory of blocks that change places with those on the card: their Linears."""
        of, asked = self.sizes.of_kohya, self.recipe.offload.swapped
        if of is None or asked < 1 or not self.card:
            return 0
        byte = self.width if self.recipe.precision.quantization is None else 1
        each = of.swaps(asked, [count for count, *_ in self.sizes.swapped])
        return sum(
            min(most, count) * (byte * eight + self.width * others)
            for count, (most, eight, others) in zip(each, self.sizes.swapped, strict=True)
        )

    @property
    def way(self) -> str:
        """How the blocks and their LoRA compute, as `Steps` has it."""
        if self.sizes.of_kohya:
            way = "autocast" if self.recipe.precision.quantization is None else "autocast float8"
            way = "float32" if self.width > 2 else way
            in_full = self.sizes.figures.whole and self.recipe.precision.full_attention
            return f"{way} full" if in_full else way
        if self.sizes.of_trainer and self.width == 2:
            return self._own_way
        if self.run.by_runner and self.is_half:
            return "float16"
        copied = trainer_of(self.run.trainer).lora_copies and self.recipe.network.type != "lokr"
        way = "float32" if self.width > 2 else "copied" if copied else "bfloat16"
        quantized = self.run.by_runner and self.card and self.recipe.precision.quantization is not None
        return EIGHT_BITS if quantized and way == "bfloat16" and EIGHT_BITS in self.sizes.steps.ways else way

    @property
    def _own_way(self) -> str:
        """How a trainer's own class computes."""
        precision, ways = self.recipe.precision, self.sizes.steps.ways
        way = "autocast" if precision.quantization is None else precision.keeps
        if way == SCALED and self.recipe.adapter:
            way += ADAPTED
        if self.recipe.batch_size * self.tokens[1] < FEWEST and way + FEW in ways:
            way += FEW
        if self.recipe.offload.attention:
            way += OFFLOADED
        # whose products are the larger part of what a UNet's blocks hold
        way += LOKR * (self.sizes.figures.whole and self.recipe.network.type == "lokr")
        return way + HALF_NORMS * (precision.half_norms is True and way + HALF_NORMS in ways)

    @property
    def is_half(self) -> bool:
        """Whether zdoctor's runner multiplies in float16, all else in float32 (doctor/train/runtime/precision.py)."""
        return self.dtype == "float16" or (self.dtype == "bfloat16" and self.is_old)

    @property
    def is_known(self) -> bool:
        """Whether what a step holds was measured for this way of computing."""
        return self.sizes.steps.knows(self.way, again=self.recipe.offload.gradient_checkpointing)

    def step(self) -> dict[str, int]:
        """Activations and gradients of the largest pictures, at the highest of forward and backward."""
        recipe, sizes = self.recipe, self.sizes
        again = recipe.offload.gradient_checkpointing
        activations, gradients = sizes.steps.held(
            self.way,
            self.largest_batch,
            sizes.lists if again else tuple(dropwhile(lambda one: not one.share, sizes.lists)),
            again=again,
            interval=max(1, recipe.offload.interval),
            segment=max(1, recipe.offload.segment),
            grown=self.of_lora * self.trained // self.networks,
            moved=recipe.offload.activations and sizes.of_kohya is not None and sizes.of_kohya.offloads,
        )
        # those of the pictures before, or zeros
        if recipe.gradient_accumulation > 1 or trainer_of(self.run.trainer).keeps_gradients:
            gradients = self.of_lora * self.trained
        return {"gradients": gradients, "activations": activations}

    def drawing(self, pictures: int) -> int:
        """What the transformer takes to draw so many of the largest samples at a time, but for attention scores."""
        tokens = self.tokens_of(*self.largest_sample) * self.frames(max(sample.frames for sample in self.samples))
        return self.sizes.steps.drawing(self.way, Tokens(pictures, tokens, self.tokens[1], self.recipe.network.rank))

    def drawing_scores(self, pictures: int) -> int:
        return self.scores(self.tokens_of(*self.largest_sample) + self.tokens[1], pictures)

    def scores(self, tokens: int, count: int) -> int:
        """Attention scores in full of `count` pictures.

        Neither MPS nor, for bf16, cards before Ampere have a fused kernel to train with.
        """
        if not (self.is_old and self.dtype == "bfloat16") and (self.card or not self.on_mps):
            return 0
        return self.sizes.heads * tokens * tokens * 4 * count


def buckets(run: Run, datasets: Sequence[DatasetFolder]) -> list[tuple[int, int]]:
    """(width, height) in pixels of the largest training picture of each dataset and resolution.

    ai-toolkit enlarges no picture by more than a part of a step; kohya's trainers do.
    """
    return [(width, height) for width, height, _ in films(run, datasets)]


def films(run: Run, datasets: Sequence[DatasetFolder]) -> list[tuple[int, int, int]]:
    """As `buckets`, with the frames of each."""
    found: list[tuple[int, int, int]] = []
    read = {folder.key: folder for folder in datasets}
    for dataset in run.recipe.datasets:
        folder = read.get(dataset.key)
        read_whole = folder.images if folder and not folder.more else ()
        pictures = [(image.width, image.height) for image in read_whole if dataset.takes(image.width, image.height)]
        for how in (dataset.buckets_at(resolution) for resolution in dataset.resolutions or (512,)):
            sizes = [bucket_size(how, *size) for size in pictures]
            found.append((*max(sizes, key=prod, default=(how.width, how.height)), dataset.frames))
    return found or [(512, 512, 1)]


def _up(tokens: int, padding: int) -> int:
    return -(-tokens // padding) * padding
