"""How many pictures there are of each shape, of which a step takes several; and the captions that they need."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import ceil

from ...doctor.model import Dataset, DatasetFolder, Finding, Run, found
from ...doctor.model.buckets import Buckets, bucket_size
from ...doctor.model.datasets import Image
from ...doctor.rules import Unestablished, prevents, rule
from ...doctor.trainers.simpletuner.datasets import buckets_of
from ...doctor.trainers.simpletuner.options import options_of
from ..dataset import CONVERTIBLE
from .datasets import LATE
from .options import TRAINER, arriving, number, on


@rule("SIM007", "error", "too-few-images", trainers=TRAINER)
@prevents("ValueError", r"Dataset configuration will produce zero usable batches")
@prevents("Exception", r"No images were discovered by the bucket manager")
@prevents("ValueError", r"Dataset produced no usable samples")
@prevents("Exception", r"^(Dataset '[^']*' produced no usable samples|No images found in the dataset)")
@prevents("Exception", r"Cannot train using a dataset that has a single bucket with fewer than")
def too_few_images(run: Run, datasets: tuple[DatasetFolder, ...]) -> Iterator[Finding]:
    """A dataset with fewer pictures than one step takes.

    What: Pictures times (repeats + 1) are fewer than train_batch_size times gradient_accumulation_steps, counted for
    one card. repeats: 0 uses each picture once, and those below minimum_image_size are left out. The trainer asks the
    same of every aspect bucket by itself, so a folder of mixed shapes needs more than is said here.
    Why: train_batch_size is 4 where it is not written. The pictures are counted after the models were loaded.
    Repair: As many repeats as one step needs, or a smaller batch. allow_dataset_oversubscription: true helps only
    where repeats is not written.
    Upstream: https://github.com/bghira/SimpleTuner/issues/836, helpers/metadata/backends/base.py
    Signature: ValueError: Dataset configuration will produce zero usable batches.
    """
    unsure = ""
    each = number(run, "train_batch_size", 4) * number(run, "gradient_accumulation_steps", 1)
    for dataset, folder in _of_pictures(run, datasets):
        if folder.more or folder.unlisted:
            unsure = f"{folder.path} was not read as a whole"
            continue
        if any(folder.others.get(suffix) for suffix in CONVERTIBLE):  # the trainer takes all that Pillow opens
            unsure = f"{folder.path} holds pictures of kinds that were not counted"
            continue
        count = len(_large(dataset, folder)) + len(folder.unreadable)
        key = f"{dataset.key}/repeats"
        if not count:
            yield found(
                run.where(f"{dataset.key}/{'minimum_image_size' if folder.images else 'folder_path'}"),
                "No picture in {folder} is as large as minimum_image_size asks."
                if folder.images
                else "{folder} holds no picture.",
                otherwise="The trainer stops {when}.",
                folder=folder.path,
                when=LATE,
            )
        elif count * dataset.repeats < each and (run.setting(key) or not on(run, "allow_dataset_oversubscription")):
            likely = ceil(each / count) - 1
            yield found(
                run.where(key),
                _TOO_FEW if count > 1 else _TOO_FEW_OF_ONE,
                otherwise="The trainer stops {when}: zero usable batches.",
                evidence={"key": key, "pointer": run.pointer(key), "likely": likely, "images": count},
                repeats=dataset.repeats - 1,
                samples=count * dataset.repeats,
                each=each,
                when=LATE,
            )
    if unsure:
        raise Unestablished(unsure)


_TOO_FEW = (
    "{images} pictures with repeats: {repeats} make {samples}, but one step takes {each:g} (train_batch_size x "
    "gradient_accumulation_steps). Set repeats: {likely}."
)
_TOO_FEW_OF_ONE = (
    "One picture with repeats: {repeats} makes {samples}, but one step takes {each:g} (train_batch_size x "
    "gradient_accumulation_steps). Set repeats: {likely}."
)


def _of_pictures(run: Run, folders: tuple[DatasetFolder, ...]) -> Iterator[tuple[Dataset, DatasetFolder]]:
    """The datasets that are no videos and whose folder was looked at."""
    by_key = {folder.key: folder for folder in folders}
    for dataset in run.recipe.datasets:
        if dataset.key in by_key and run.setting(f"{dataset.key}/dataset_type") != "video":
            yield dataset, by_key[dataset.key]


def _large(dataset: Dataset, folder: DatasetFolder) -> list[Image]:
    return [image for image in folder.images if dataset.takes(image.width, image.height)]


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
    options, alignment = options_of(run), min(max(1, int(number(run, "aspect_bucket_alignment", 64))), 4096)
    for dataset, folder in _of_pictures(run, datasets):
        cropped = run.setting(f"{dataset.key}/crop") and run.setting(f"{dataset.key}/crop_aspect") != "preserve"
        large = _large(dataset, folder)
        if folder.more or cropped or len(large) * dataset.repeats < each:  # too few at all is another rule's
            continue
        how = buckets_of(dataset.key, options, alignment)
        shapes = Counter(_shape(how, image) for image in large if image.width and image.height)
        small = {shape: count for shape, count in shapes.items() if count * dataset.repeats < each}
        if not small or (on(run, "allow_dataset_oversubscription") and not run.setting(f"{dataset.key}/repeats")):
            continue
        stops = any(count * dataset.repeats >= batch for count in small.values())
        needed = ceil(each / min(small.values())) - 1
        yield found(
            run.where(f"{dataset.key}/repeats"),
            "{count} of {all} pictures in {folder} fall into shapes of which there are too few for one step, which "
            "takes {each:g} (aspect ratios {ratios}). With repeats: {needed} all are used."
            if sum(small.values()) > 1
            else "One of {all} pictures in {folder} has a shape of which there are too few for one step, which takes "
            "{each:g} (aspect ratio {ratios}). With repeats: {needed} all are used.",
            otherwise="The trainer stops {when}: zero usable batches."
            if stops
            else "They are left out of the training.",
            evidence={"shapes": {str(shape): count for shape, count in small.items()}, "needed": needed},
            count=sum(small.values()),
            all=len(large),
            folder=folder.path,
            each=each,
            ratios=", ".join(f"{shape:g}" for shape in sorted(small)[:6]),
            when=LATE,
        )


def _shape(how: Buckets, image: Image) -> float:
    """The aspect ratio that the trainer resizes a picture to."""
    wide, high = bucket_size(how, image.width, image.height)
    return round(wide / high, how.digits)


@rule("SIM010", "error", "caption-file-missing", trainers=TRAINER)
@prevents("FileNotFoundError", r"Caption file .+ not found")
def caption_file_missing(run: Run, datasets: tuple[DatasetFolder, ...]) -> Iterator[Finding]:
    """A picture without the text file that the trainer asks for.

    What: caption_strategy is textfile, and a picture has no .txt file of its name beside it.
    Why: The captions are collected after the text encoder was loaded, and the first that is absent ends the run;
    one picture among a thousand is enough. An empty file is taken.
    Repair: Write the file, take the picture out, or take another caption_strategy.
    Upstream: helpers/prompts.py prepare_instance_prompt_from_textfile (bc8e6ab7)
    Signature: FileNotFoundError: Caption file … not found.
    """
    for folder in datasets:
        dataset = run.recipe.dataset(folder.key)
        unasked = run.setting(f"{folder.key}/only_instance_prompt") or on(run, "only_instance_prompt")
        skipped = run.setting(f"{folder.key}/skip_file_discovery") or arriving(run, "skip_file_discovery")
        if dataset is None or dataset.captions != "files" or unasked or skipped:
            continue
        missing = [image.path for image in folder.images if not image.caption]
        if not missing:
            continue
        yield found(
            run.where(f"{folder.key}/caption_strategy"),
            "caption_strategy is textfile, and {first} has no .txt file beside it."
            if len(missing) == 1
            else "caption_strategy is textfile, and {count} of {total} pictures in {folder} have no .txt file beside "
            "them, {first} among them.",
            otherwise="The trainer stops {when}, at the first of them.",
            evidence={"missing": len(missing)},
            first=missing[0],
            count=len(missing),
            total=len(folder.images),
            folder=folder.path,
            when=LATE,
        )
