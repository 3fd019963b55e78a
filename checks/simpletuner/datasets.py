"""The file of datasets: the trainer reads it after the VAE and the text encoder were loaded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from math import ceil, sqrt
from typing import Any

from ...doctor.model import Config, DatasetFolder, Finding, Run, found
from ...doctor.rules import Unestablished, rule
from ..config.near import meant
from ..config.values import bad, value_of
from ..dataset import CONVERTIBLE
from .options import TRAINER, number, on, text

LATE = "after the VAE and the text encoder were loaded"
_TYPES = (
    "image",
    "video",
    "audio",
    "conditioning",
    "eval",
    "text_embeds",
    "image_embeds",
    "conditioning_image_embeds",
    "distillation_cache",
    "caption",
    "grounding",
)
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "dataset_type": _TYPES,
    "resolution_type": ("pixel", "area", "pixel_area"),
    "caption_strategy": ("filename", "textfile", "parquet", "instanceprompt", "csv", "huggingface", "webshart"),
    "crop_aspect": ("square", "preserve", "random", "closest"),
    "crop_style": ("random", "corner", "center", "centre", "face"),
}
_PICTURES = ("image", "video", "conditioning", "eval")


@rule(
    "SIM006",
    "error",
    "refused-datasets",
    prevents=(
        ("FileNotFoundError", r"Data backend config file .* not found"),
        ("ValueError", r"Only one text embed backend can be marked as default"),
        ("ValueError", r"A local backend requires instance_data_dir"),
        ("ValueError", r"Unsupported caption strategy"),
    ),
    trainers=TRAINER,
)
def refused_datasets(config: Config, run: Run) -> Iterator[Finding]:
    """A file of datasets that the trainer refuses.

    What: The file that data_backend_config names does not parse or holds nothing to train on; an entry lacks what its
    kind needs, has a word that the trainer does not know, or shares its id or cache folder with another one.
    Why: The file is read after the VAE and the text encoder were fetched and loaded, some of it only after the
    captions were encoded. A slip in it costs those minutes each time.
    Repair: A word that is one slip away from a known one is put right; the rest is said.
    Upstream: SimpleTuner simpletuner/helpers/data_backend/factory.py, data_backend/config/base.py, helpers/prompts.py
    Signature: ValueError or FileNotFoundError with the same words.
    """
    if "datasets" not in run.homes:
        yield from _absent(run)
        return
    backend = config.file(run.homes["datasets"][0])
    if backend.problem is not None:
        yield found(
            backend.problem.where,
            "The file of datasets cannot be read: {problem}",
            otherwise="The trainer stops {when}.",
            problem=backend.problem.message,
            when=LATE,
        )
        return
    entries = [key for key in run.settings if key.startswith("datasets/") and key.count("/") == 1]
    active = [key for key in entries if isinstance(value_of(run, key), dict) and not _off(run, key)]
    for key in entries:
        if not isinstance(value_of(run, key), dict):
            yield bad(run, key, "{key} is {value!r}, which is no dataset.", LATE)
    for key in active:
        yield from _entry(run, key)
    yield from _together(run, active)
    if not any(_kind(run, key) in ("image", "video", "audio", "caption") for key in active):
        yield found(
            run.where("datasets"),
            "{file} holds no dataset to train on.",
            otherwise="The trainer stops {when}.",
            file=backend.path,
            when=LATE,
        )


def _absent(run: Run) -> Iterator[Finding]:
    """The file was looked for in the working directory and in every folder above the config."""
    name = text(run, "data_backend_config")
    if name.startswith("config/examples/"):  # it comes with the trainer
        return
    yield found(
        run.where("datasets"),
        "data_backend_config names {name}, which is neither here nor in a folder above the config."
        if name
        else "data_backend_config is missing, and there is no multidatabackend.json beside the config.",
        otherwise="The trainer stops {when}, unless it is started in a folder where the file is.",
        evidence={"file": name},
        severity="warning",
        name=name,
        when=LATE,
    )


def _off(run: Run, key: str) -> bool:
    return bool(value_of(run, f"{key}/disabled") or value_of(run, f"{key}/disable"))


def _kind(run: Run, key: str) -> str:
    return str(value_of(run, f"{key}/dataset_type") or "image").lower()


def _entry(run: Run, key: str) -> Iterator[Finding]:
    def of(name: str) -> Any:
        return value_of(run, f"{key}/{name}")

    kind = _kind(run, key)
    for name in ("id", "type"):
        if of(name) in (None, ""):
            yield bad(run, f"{key}/{name}", "{key} is missing: every dataset needs it.", LATE)
    for name, known in _CHOICES.items():
        value = of(name)
        if value is None or str(value) in known or (name == "dataset_type" and str(value).lower() in known):
            continue
        certain, likely = meant(value, known)
        why = "{key} is {value!r}, which the trainer does not know. It knows {known}."
        yield bad(run, f"{key}/{name}", why, LATE, new=certain, likely=likely, known=", ".join(known))
    if of("disable_vae_cache") is not None:
        yield bad(run, f"{key}/disable_vae_cache", "{key} was removed; vae_cache_disable took its place.", LATE)
    if kind not in _PICTURES:
        return
    folder = of("instance_data_dir") or of("instance_data_root")
    if of("type") in (None, "local") and not folder and kind != "conditioning":  # those may be made from another one
        yield bad(run, f"{key}/instance_data_dir", "{key} is missing: a local dataset needs a folder.", LATE)
    yield from _captions(run, key, kind)
    yield from _sizes(run, key)


def _captions(run: Run, key: str, kind: str) -> Iterator[Finding]:
    strategy = str(value_of(run, f"{key}/caption_strategy") or text(run, "caption_strategy", "filename"))
    source, at = value_of(run, f"{key}/type"), f"{key}/caption_strategy"
    prompt = value_of(run, f"{key}/instance_prompt")
    if kind in ("image", "video") and strategy == "instanceprompt" and not prompt:
        yield bad(run, at, "{key} is instanceprompt, but the dataset has no instance_prompt.", "after the captions")
    if kind in ("image", "video") and value_of(run, f"{key}/prepend_instance_prompt") is True and prompt is None:
        why = "{key} is on, but the dataset has no instance_prompt."
        yield bad(run, f"{key}/prepend_instance_prompt", why, "after the captions")
    for name in ("huggingface", "webshart"):
        if strategy == name and source not in (None, name):
            yield bad(run, at, "{key} is {value}, which is for datasets of that type only.", LATE)
    if strategy == "parquet" and value_of(run, f"{key}/metadata_backend") in ("json", "discovery"):
        yield bad(run, at, "{key} is parquet, which needs metadata_backend: parquet.", LATE)
    if source == "csv" and strategy != "csv":
        yield bad(run, at, "A dataset of the type csv needs caption_strategy: csv.", LATE, new="csv")


def _sizes(run: Run, key: str) -> Iterator[Finding]:
    kind = str(value_of(run, f"{key}/resolution_type") or text(run, "resolution_type", "pixel_area"))
    if value_of(run, f"{key}/maximum_image_size") and not value_of(run, f"{key}/target_downsample_size"):
        why = "{key} is {value}, but target_downsample_size does not say to which size a larger picture is shrunk."
        yield bad(run, f"{key}/maximum_image_size", why, LATE)
    for name in ("maximum_image_size", "target_downsample_size"):
        size = value_of(run, f"{key}/{name}")
        if not isinstance(size, int | float) or isinstance(size, bool) or not size:
            continue
        if kind == "area" and size >= 20:
            yield bad(
                run, f"{key}/{name}", "{key} is {value}, but with resolution_type: area it counts megapixels.", LATE
            )
        elif kind == "pixel" and size < 512:
            why = "{key} is {value}, but with resolution_type: pixel it counts pixels, 512 or more."
            yield bad(run, f"{key}/{name}", why, LATE)
    size = value_of(run, f"{key}/resolution")
    if kind == "pixel_area" and size is not None and not (type(size) is int or str(size).isdigit()):
        why = "{key} is {value!r}, but with resolution_type: pixel_area it is a whole number of pixels."
        whole = int(size) if isinstance(size, float) and size == size // 1 and size < 1e6 else None
        yield bad(run, f"{key}/resolution", why, LATE, new=whole)
    shapes = isinstance(value_of(run, f"{key}/crop_aspect_buckets"), list)
    if value_of(run, f"{key}/crop_aspect") in ("random", "closest") and not shapes:
        why = "{key} is {value}, but crop_aspect_buckets does not list the shapes to crop to."
        yield bad(run, f"{key}/crop_aspect", why, LATE)


def _together(run: Run, active: list[str]) -> Iterator[Finding]:
    ids = {key: str(value_of(run, f"{key}/id")) for key in active if value_of(run, f"{key}/id") not in (None, "")}
    for name, count in Counter(ids.values()).items():
        if count > 1:
            key = [key for key, id in ids.items() if id == name][-1]
            yield bad(run, f"{key}/id", "{count} datasets have the id {name}.", LATE, count=count, name=name)
    texts = [key for key in active if _kind(run, key) == "text_embeds"]
    defaults = [key for key in texts if value_of(run, f"{key}/default") is True]
    if len(defaults) > 1:
        why = "{count} datasets of text embeddings are marked as default; there can be one."
        yield bad(run, f"{defaults[-1]}/default", why, LATE, count=len(defaults))
    caches = {str(value_of(run, f"{key}/cache_dir")): key for key in texts if value_of(run, f"{key}/cache_dir")}
    named = {ids[key] for key in texts if key in ids}
    seen: dict[str, str] = {}
    for key in active:
        wanted = value_of(run, f"{key}/text_embeds")
        if isinstance(wanted, str) and named and wanted not in named:
            why = "{key} is {value!r}, but no dataset of text embeddings has that id."
            yield bad(run, f"{key}/text_embeds", why, LATE, likely=meant(wanted, named)[1])
        cache = value_of(run, f"{key}/cache_dir_vae")
        if not isinstance(cache, str) or not cache or _kind(run, key) not in ("image", "video"):
            continue
        cache = cache.replace("{id}", ids.get(key, ""))
        if cache in seen or cache in caches:
            other = seen.get(cache) or caches[cache]
            why = "{key} is {value!r}, the same folder as that of {other}."
            yield bad(run, f"{key}/cache_dir_vae", why, LATE, other=ids.get(other, other))
        seen[cache] = key


@rule(
    "SIM007",
    "error",
    "too-few-images",
    prevents=(
        ("ValueError", r"Dataset configuration will produce zero usable batches"),
        ("Exception", r"No images were discovered by the bucket manager"),
        ("ValueError", r"Dataset produced no usable samples"),
    ),
    trainers=TRAINER,
)
def too_few_images(run: Run, datasets: tuple[DatasetFolder, ...]) -> Iterator[Finding]:
    """A dataset with fewer pictures than one step takes.

    What: Pictures times (repeats + 1) are fewer than train_batch_size times gradient_accumulation_steps, counted for
    one card. repeats: 0 uses each picture once. The trainer asks the same of every aspect bucket by itself, so a
    folder of mixed shapes needs more than is said here.
    Why: train_batch_size is 4 where it is not written. The pictures are counted after the models were loaded.
    Repair: As many repeats as one step needs, or a smaller batch. allow_dataset_oversubscription: true helps only
    where repeats is not written.
    Upstream: https://github.com/bghira/SimpleTuner/issues/836, helpers/metadata/backends/base.py
    Signature: ValueError: Dataset configuration will produce zero usable batches.
    """
    unsure = ""
    for dataset in run.datasets:
        folder = next((folder for folder in datasets if folder.key == dataset.key), None)
        if folder is None or value_of(run, f"{dataset.key}/dataset_type") == "video":
            continue
        if folder.more or folder.unlisted:
            unsure = f"{folder.path} was not read as a whole"
            continue
        count = len(folder.images) + len(folder.unreadable)
        if any(folder.others.get(suffix) for suffix in CONVERTIBLE):  # the trainer takes all that Pillow opens
            unsure = f"{folder.path} holds pictures of kinds that were not counted"
            continue
        each = number(run, "train_batch_size", 4) * number(run, "gradient_accumulation_steps", 1)
        key = f"{dataset.key}/repeats"
        if not count:
            yield found(
                run.where(f"{dataset.key}/folder_path"),
                "{folder} holds no picture.",
                otherwise="The trainer stops {when}.",
                folder=folder.path,
                when=LATE,
            )
        elif count * dataset.repeats < each and (value_of(run, key) or not on(run, "allow_dataset_oversubscription")):
            needed = ceil(each / count) - 1
            yield found(
                run.where(key),
                "{count} pictures with repeats: {repeats} make {samples}, but one step takes {each:g} "
                "(train_batch_size x gradient_accumulation_steps). Set repeats: {needed}."
                if count > 1
                else "One picture with repeats: {repeats} makes {samples}, but one step takes {each:g} "
                "(train_batch_size x gradient_accumulation_steps). Set repeats: {needed}.",
                otherwise="The trainer stops {when}: zero usable batches.",
                evidence={"key": key, "pointer": run.pointer(key), "likely": needed, "images": count},
                count=count,
                repeats=dataset.repeats - 1,
                samples=count * dataset.repeats,
                each=each,
                needed=needed,
                when=LATE,
            )
    if unsure:
        raise Unestablished(unsure)


@rule("SIM009", "warning", "buckets-left-out", trainers=TRAINER)
def buckets_left_out(run: Run, datasets: tuple[DatasetFolder, ...]) -> Iterator[Finding]:
    """Pictures of a shape that too few others have.

    What: Pictures are sorted into buckets by the shape that they are resized to. A bucket whose pictures times
    (repeats + 1) are fewer than one step takes cannot be used. The shapes are computed from the headers of the
    pictures as the trainer does; a photo that is turned by its EXIF note only is taken as it lies in the file.
    Why: The trainer removes buckets smaller than train_batch_size with a line of its log, so those pictures are never
    trained; for a bucket between that and train_batch_size x gradient_accumulation_steps it stops.
    Repair: More repeats, a smaller batch, or crop: true with crop_aspect: square, which makes one bucket.
    Upstream: SimpleTuner simpletuner/helpers/multiaspect/image.py, helpers/metadata/backends/base.py
    Signature: Removing bucket … due to insufficient samples
    """
    batch = number(run, "train_batch_size", 4)
    each = batch * number(run, "gradient_accumulation_steps", 1)
    for dataset in run.datasets:
        folder = next((folder for folder in datasets if folder.key == dataset.key), None)
        cropped = value_of(run, f"{dataset.key}/crop") and value_of(run, f"{dataset.key}/crop_aspect") != "preserve"
        if folder is None or folder.more or cropped or value_of(run, f"{dataset.key}/dataset_type") == "video":
            continue
        if len(folder.images) * dataset.repeats < each:  # too few at all is another rule's
            continue
        kind = str(value_of(run, f"{dataset.key}/resolution_type") or text(run, "resolution_type", "pixel_area"))
        alignment = min(max(1, int(number(run, "aspect_bucket_alignment", 64))), 4096)
        rounding = min(max(0, int(number(run, "aspect_bucket_rounding", 2))), 9)
        shapes = Counter(
            _shape(image.width, image.height, dataset.resolutions[0], kind, alignment, rounding)
            for image in folder.images
            if image.width and image.height
        )
        small = {shape: count for shape, count in shapes.items() if count * dataset.repeats < each}
        if not small or (on(run, "allow_dataset_oversubscription") and not value_of(run, f"{dataset.key}/repeats")):
            continue
        stops = any(count * dataset.repeats >= batch for count in small.values())
        needed = ceil(each / min(small.values())) - 1
        yield found(
            run.where(f"{dataset.key}/repeats"),
            "{count} of {all} pictures in {folder} fall into shapes of which there are too few for one step, which "
            "takes {each:g} (aspect ratios {shapes}). With repeats: {needed} all are used."
            if sum(small.values()) > 1
            else "One of {all} pictures in {folder} has a shape of which there are too few for one step, which takes "
            "{each:g} (aspect ratio {shapes}). With repeats: {needed} all are used.",
            otherwise="The trainer stops {when}: zero usable batches."
            if stops
            else "They are left out of the training.",
            evidence={"shapes": {str(shape): count for shape, count in small.items()}, "needed": needed},
            count=sum(small.values()),
            all=len(folder.images),
            folder=folder.path,
            each=each,
            shapes=", ".join(f"{shape:g}" for shape in sorted(small)[:6]),
            needed=needed,
            when=LATE,
        )


def _shape(width: int, height: int, edge: int, kind: str, alignment: int, rounding: int) -> float:
    """The aspect ratio that the trainer resizes a picture to: sides are multiples of `alignment` pixels."""

    def aligned(side: float) -> int:
        return max(alignment, round(side / alignment) * alignment)

    aspect = round(width / height, rounding) or 10.0**-rounding
    if kind == "pixel":
        wide, high = (edge, int(edge / aspect)) if width < height else (int(edge * aspect), edge)
    elif width == height:
        return 1.0
    else:
        square = aligned(edge)
        wide, high = int(aligned(square * sqrt(aspect))), int(aligned(square / sqrt(aspect)))
    return round(aligned(wide) / aligned(high), rounding)
