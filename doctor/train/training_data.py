"""The training data of a run is read, split and encoded."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import torch

from ..files import fingerprints
from .base_model import BaseModel
from .dataset.batch_sampler import BatchSampler
from .dataset.dataset_changes import dataset_changes, dataset_fingerprint
from .dataset.training_items import TrainingItem, hold_out, read_training_items, uncaptioned
from .device_placement import DevicePlacement
from .encode.encoding_cache import EncodingCache
from .encode.latents import Latents
from .encode.loss_masks import LossMasks
from .encode.text_embeddings import TextEmbeddings
from .job import Job
from .runtime.allocator import keep_freed_memory, return_freed_memory
from .runtime.atomic_files import write_atomic
from .sampling.preview_samples import controls_of, edited_samples, prompts_to_encode
from .settings.names import CACHE, KINDS
from .step.trainer import TrainingState

# On the CPU the text encoder works beside the VAE and the loading where this many of it would fit in what is free.
BESIDE = 4


@dataclass(frozen=True)
class TrainingData:
    """The `items` to train on, those `held` out for validation, and what each preview sample is to become of its
    control images.
    """

    items: list[TrainingItem]
    held: list[TrainingItem]
    edited: Sequence[TrainingItem | None]


@dataclass(frozen=True)
class EncodedData:
    """The training data as the model takes it, from the cache of the output folder."""

    latents: Latents
    texts: TextEmbeddings
    masks: LossMasks


def read_training_data(job: Job, divisor: int, state: TrainingState | None) -> TrainingData:
    """Returns the images of the job, in sizes divisible by `divisor`. Raises TrainError."""
    sizes = job.output / CACHE / "pictures.json"
    sized = _known_sizes(sizes)
    known = dict(sized)
    skip = job.progress.note if job.skip_unreadable else None
    items = read_training_items(job.recipe, job.datasets, divisor, known, skip, job.progress.note)
    if note := uncaptioned(items):
        job.progress.note(note)
    if known != sized:
        write_atomic(sizes, json.dumps(known).encode(), durable=False)
    count = state.held_out if state else job.held_out or 0
    if job.held_out not in (None, count):
        job.progress.note(
            f"The run goes on with {count} held-out pictures; --eval {job.held_out} starts with a new run."
        )
    before = state.held if state else []
    items, held = hold_out(items, count, before)
    if len(held) < len(before):
        job.progress.note(
            f"{len(before) - len(held)} of the {len(before)} held-out pictures are no longer in the datasets; the "
            "evaluation loss is of the others and cannot be compared with the earlier one."
        )
    if state and state.captions:
        now = dataset_fingerprint([*items, *held])
        if note := dataset_changes(state.captions, now, state.step):
            job.progress.note(note)
    return TrainingData(items, held, edited_samples(job.recipe, divisor))


def _known_sizes(file: Path) -> dict[str, tuple[int, int]]:
    """The pixel sizes of images that decoded without error, by the sha256 of their bytes; {} without such a file."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        return {str(digest): (int(width), int(height)) for digest, (width, height) in content.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def encode_training_data(
    job: Job, place: DevicePlacement, base: BaseModel, examples: TrainingData, batches: BatchSampler, step: int
) -> EncodedData:
    """Encodes what the cache lacks. A process of its own may go on with the prompts: `texts.finish` waits for it.

    Captions that are drawn anew are those of the `batches` from `step` on. Raises TrainError.
    """
    cache, run, progress = EncodingCache(job.output / CACHE), job.run, job.progress
    kind: Any = KINDS.get(run.recipe.precision.text_encoder_quantization, "none")
    latents = Latents(cache, base.vae, middle=run.recipe.latent_mean)
    texts = TextEmbeddings(
        cache,
        base.family,
        base.components,
        place.precision.text_encoder_dtype,
        kind,
        job.text_process,
        masked=run.recipe.mask_padding,
    )
    masks = LossMasks(cache, base.vae.shrink)
    room = BESIDE * texts.size() < psutil.virtual_memory().available
    beside = job.text_process is not None and place.device.type == "cpu" and job.ranks.size == 1 and room
    used = [*examples.items, *examples.held]
    job.ranks.check_same({"dataset": _listing(examples.items)})
    for turn in (True, False):  # what the first process of a machine has encoded the others find in the cache
        if (job.ranks.local == 0) == turn:
            masks.prepare(used, progress.note)
            cores = torch.get_num_threads()
            half = max(1, cores // 2) if beside else cores
            prompts = prompts_to_encode(run.recipe, used, drawn_captions(batches, step), examples.edited)
            begun = texts.begin(prompts, place.device, progress, half)
            if not beside:
                texts.finish(progress)
            pictures = [*used, *(control for item in examples.edited for control in controls_of(item))]
            with _encoding(half if begun else cores):
                latents.prepare(pictures, place.device, progress)
        job.ranks.all_gather(None)
    return EncodedData(latents, texts, masks)


def drawn_captions(batches: BatchSampler, step: int) -> list[tuple[TrainingItem, str]]:
    """Returns the items whose caption is drawn anew, with each one that they will have from `step` to the end."""
    recipe = batches.recipe
    if all(item.drawn is None for turns in (batches.plain, batches.regular) if turns for item in turns.items):
        return []
    count = recipe.gradient_accumulation
    return [
        (item, item.caption_at(batches.seed, index, place))
        for index in range(step * count, recipe.steps * count)
        for place, item in enumerate(batches.batch(index))
        if item.drawn is not None
    ]


@contextmanager
def _encoding(threads: int) -> Iterator[None]:
    """With so many threads, and freed memory kept for the next picture."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    keep_freed_memory()
    try:
        yield
    finally:
        return_freed_memory()
        torch.set_num_threads(before)


def _listing(items: Sequence[TrainingItem]) -> str:
    """Identifies what is trained on: pictures, captions, crops, and their order."""
    shown = (" ".join(one.digest for one in (item.picture, *item.picture.controls)) for item in items)
    told = "\n".join(f"{digests} {item.crop} {item.written}" for digests, item in zip(shown, items, strict=True))
    return fingerprints.of_texts(told)
