"""What kohya's trainers write beside the pictures of a dataset."""

from __future__ import annotations

from collections.abc import Iterator

from ...model import Dataset, Run


def dataset_writes(run: Run, dataset: Dataset) -> Iterator[tuple[str, str]]:
    """What it writes into the dataset's folder, and when; musubi-tuner's caches have a folder of their own."""
    if run.trainer == "sd-scripts" and dataset.cache_latents_to_disk:
        yield "the latents (.npz)", "when it caches latents"
    if run.written("cache_text_encoder_outputs_to_disk") is not None:
        yield "the text embeddings (.npz)", "when it caches text embeddings"
