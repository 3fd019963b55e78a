"""What ai-toolkit writes beside the pictures of a dataset."""

from __future__ import annotations

from collections.abc import Iterator

from ...model import Dataset, Run


def dataset_writes(run: Run, dataset: Dataset) -> Iterator[tuple[str, str]]:
    """What it writes into the dataset's folder, and when."""
    yield ".aitk_size.json", "when it reads the dataset"
    if run.recipe.cache_text_embeddings:
        yield "_t_e_cache", "when it caches text embeddings"
    if dataset.cache_latents_to_disk:
        yield "_latent_cache", "when it caches latents"
    if dataset.controls:
        yield "_controls", "when it makes control images"
