"""How many bytes a run will surely write, and into which folder. Pure; every figure is a lower bound.

What ai-toolkit writes when: its base trainer and cache mixins (27a03a91). zdoctor's runner downloads nothing and has
its caches in the run folder (doctor/train/encode/encoding_cache.py). Samples, logs and whatever cannot be computed
count as nothing, and so does everything that an earlier run has written already.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..families import family_of
from ..families.network import TITLES, lokr_rank
from ..model import Dataset, DatasetFolder, Hub, ModelFolder, Run, Unknown
from ..model.buckets import bucket_size
from ..model.record import dataclass
from ..trainers import trainer_of
from .bytes import WIDTHS, state_bytes
from .sizes import sizes_of, trained_on

LATENT_CHANNELS, LATENT_SCALE = 16, 8
TEMPLATE_TOKENS = 8  # what the chat template of Qwen3 puts around a caption


@dataclass(frozen=True)
class Need:
    """`size` bytes of `what` in `folder`, by the config key that asks for them."""

    what: str
    folder: str
    size: int
    key: str


def needs(
    run: Run,
    model: ModelFolder | Unknown,
    datasets: tuple[DatasetFolder, ...] | Unknown,
    hub: Hub | Unknown,
    output: str | None,
) -> Iterator[Need]:
    """What is known to be written before the first save, in the order it happens. `output` is the run's folder."""
    if not isinstance(hub, Unknown) and not hub.offline and not run.by_runner:
        yield from _downloads(hub)
    # of the others, the size or the place of the caches is not known
    figures = family_of(run.recipe.architecture).memory
    own = figures is not None and figures.caches and trainer_of(run.trainer).caches_known
    if not isinstance(datasets, Unknown) and own:
        for folder in datasets:
            yield from _caches(run, folder, model)
    if run.by_runner and output is not None and not isinstance(datasets, Unknown):
        yield from _latents(run, datasets, output)


def _downloads(hub: Hub) -> Iterator[Need]:
    for repo in hub.repos:
        missing = [f for f in repo.files if f.needed and f.state in ("missing", "dangling") and f.good_copy is None]
        size = sum(max(0, (f.size or 0) - (f.prefix[1] if f.prefix else 0)) for f in missing)
        if repo.used_by and size:
            yield Need(f"the missing files of {repo.repo}", repo.folder, size, repo.used_by[0])


def _caches(run: Run, folder: DatasetFolder, model: ModelFolder | Unknown) -> Iterator[Need]:
    """Latents per picture and size, text embeddings per caption. Caches that are there already are used again."""
    recipe = run.recipe
    dataset = recipe.dataset(folder.key)
    if dataset is None or ".safetensors" in folder.others:
        return
    key = f"{folder.key}/folder_path"
    width = min(2, WIDTHS.get(recipe.precision.dtype, 0))
    if dataset.cache_latents_to_disk:
        # a picture that is smaller than two resolutions is cached once
        pixels = _pixels(dataset, folder)
        size = pixels // LATENT_SCALE**2 * LATENT_CHANNELS * width
        yield Need("the latents of the pictures", folder.path, size, key)
    encoder = model.components.get("text_encoder") if isinstance(model, ModelFolder) else None
    hidden = encoder.config.get("hidden_size") if encoder is not None and encoder.config is not None else None
    if recipe.cache_text_embeddings and isinstance(hidden, int):
        size = len(folder.images) * TEMPLATE_TOKENS * hidden * width
        yield Need("the text embeddings of the captions", folder.path, size, key)


def _latents(run: Run, datasets: tuple[DatasetFolder, ...], output: str) -> Iterator[Need]:
    """Those of zdoctor's runner, in 32 bits: one per picture, resolution and mirroring."""
    pixels = 0
    for folder in datasets:
        dataset = run.recipe.dataset(folder.key)
        if dataset is not None:
            pixels += _pixels(dataset, folder)
    size = pixels // LATENT_SCALE**2 * LATENT_CHANNELS * 4
    yield Need("the latents of the pictures", output, size, "output_folder")


def _pixels(dataset: Dataset, folder: DatasetFolder) -> int:
    """Of every picture at its sizes, mirrored or not; the trainer may round one side up where that fits."""
    hows = [dataset.buckets_at(resolution) for resolution in dataset.resolutions]
    of_one = [{bucket_size(how, image.width, image.height) for how in hows} for image in folder.images]
    turns: int = 2 ** (dataset.flip_x + dataset.flip_y)
    return turns * sum(w * h for sizes in of_one for w, h in sizes)


def saves(run: Run, model: ModelFolder | Unknown, output: str, *, goes_on: bool) -> Iterator[Need]:
    """The LoRA at the saved steps that are kept and at the end, and the optimizer's state beside it; nothing where
    their size is not known.

    `output` is a run folder without old saves or, where the run `goes_on`, without the last one.
    """
    if isinstance(model, Unknown) or run.unknown("steps", "save_every", "rank"):
        return
    recipe = run.recipe
    sizes = sizes_of(run, model)
    network = recipe.network
    kinds = tuple(TITLES) if run.by_runner else ("lora",)
    if isinstance(sizes, Unknown) or run.kind != "lora" or network.type not in kinds or network.narrowed:
        return
    if trainer_of(run.trainer).checkpoint_folders:
        return
    parameters = max(0, trained_on(sizes, network))
    during = max(0, recipe.steps - 1) // recipe.checkpoints.every if recipe.checkpoints.every > 0 else 0
    kept = min(during, recipe.checkpoints.keep) if recipe.checkpoints.keep > 0 else during
    kept = 0 if goes_on else kept
    width = WIDTHS.get(recipe.checkpoints.dtype, 0)
    rank = lokr_rank(network) if network.type == "lokr" else network.rank
    of_rank = "" if rank is None or network.type == "oft" else f" of rank {rank}"
    kind = TITLES[network.type]
    what = f"{kept + 1} {kind} files{of_rank}" if kept else f"the {kind}{of_rank}"
    yield Need(what, output, (kept + 1) * parameters * width, "output_folder")
    moments = int(state_bytes(recipe.optimizer.name)) if recipe.optimizer.name.startswith("adam") else 0
    if run.by_runner:  # with the weights in 32 bits; a new one is there as a whole before the old one goes
        what = "the old and the new state of the run" if during else "the state of the run"
        size = (4 + 4 * recipe.ema.use + moments) * parameters
        yield Need(what, output, 2 * size if during else size, "output_folder")
    elif moments and not goes_on:
        yield Need("the state of the optimizer", output, moments * parameters, "output_folder")
