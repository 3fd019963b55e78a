"""Pictures in a dataset folder that were not meant to be trained, and sizes that are never reached."""

from __future__ import annotations

import ntpath
from collections.abc import Iterator
from itertools import pairwise

from ..doctor.model import DatasetFolder, Finding, Run, System, found
from ..doctor.rules import rule

_AIDS = (
    *("mask_path", "inpaint_path", "unconditional_path", "clip_image_path"),
    *("control_path", "control_path_1", "control_path_2", "control_path_3"),
)


@rule("DAT005", "error", "aids-trained-as-pictures", trainers=("ai-toolkit",))
def aids_trained_as_pictures(run: Run, datasets: tuple[DatasetFolder, ...], system: System) -> Iterator[Finding]:
    """Masks, control images, samples or another dataset inside a dataset folder.

    What: A folder that mask_path, control_path and the like name, the folder that the samples are written to, or the
    folder of another dataset lies inside folder_path and holds pictures, or will.
    Why: ai-toolkit trains every picture in folder_path and in the folders inside it, except hidden ones and
    `_controls`: black-and-white masks are learned as pictures, without a message.
    Repair: Move the folder beside folder_path. Samples of an interrupted run are trained when it is started again.
    Upstream: toolkit/data_loader.py (os.walk), 27a03a91
    Signature: None; the LoRA draws masks, or what the samples showed.
    """
    recipe = run.recipe
    samples = not recipe.validation.disabled and recipe.validation.prompts
    for folder in datasets:
        yield from _aids_in(folder, run, system)
        for other in recipe.datasets:
            count = _pictures_in(folder, other.folder, system)
            if count and other.key != folder.key:
                yield found(
                    run.where(f"{other.key}/folder_path"),
                    "The dataset {path} lies inside the dataset {folder}, which trains its pictures as well.",
                    otherwise="These pictures are trained twice, once with the settings of the other dataset.",
                    evidence={"count": count},
                    severity="warning",
                    path=other.folder,
                    folder=folder.path,
                )
        if samples and _inside(folder, run.output_folder, system):
            yield found(
                run.where("output_folder"),
                "The run writes to {path}, inside the dataset folder {folder}.",
                otherwise="When the run is started again, it trains its own samples.",
                severity="warning",
                path=run.output_folder,
                folder=folder.path,
            )


def _aids_in(folder: DatasetFolder, run: Run, system: System) -> Iterator[Finding]:
    for key, written in run.settings.items():
        parent, _, name = key.rpartition("/")
        if not parent.startswith("datasets/") or name not in _AIDS:
            continue
        for path in written.value if isinstance(written.value, list) else [written.value]:
            if count := _pictures_in(folder, path, system):
                message = "{name} is {path}, inside the dataset folder {folder}: "
                message += "its {count} pictures are trained, too." if count > 1 else "its picture is trained, too."
                yield found(
                    written.where,
                    message,
                    otherwise="They are learned as if they were pictures of the dataset, without a message.",
                    evidence={"key": key, "count": count},
                    name=name,
                    path=path,
                    folder=folder.path,
                )


def _inside(folder: DatasetFolder, path: object, system: System) -> str | None:
    """The absolute path where it lies below the dataset folder and the trainer's walk goes there."""
    if not isinstance(path, str) or not path or "\0" in path:
        return None
    place = system.absolute(path)
    root, separator = folder.path, "\\" if system.os == "windows" else "/"
    if system.os == "windows":
        root, place = ntpath.normcase(root), ntpath.normcase(place)
    below = place.removeprefix(root.rstrip(separator) + separator)
    hidden = any(part.startswith(".") for part in below.split(separator))
    return None if below == place or hidden else place + separator


def _pictures_in(folder: DatasetFolder, path: object, system: System) -> int:
    place = _inside(folder, path, system)
    if place is None:
        return 0
    paths = (image.path for image in folder.images)
    return sum((ntpath.normcase(one) if system.os == "windows" else one).startswith(place) for one in paths)


@rule("DAT006", "note", "resolution-never-reached", trainers=("ai-toolkit",))
def resolution_never_reached(run: Run, datasets: tuple[DatasetFolder, ...]) -> Iterator[Finding]:
    """A resolution that is above every picture of the dataset.

    What: The list of resolutions holds a size above every picture: none has more pixels than the size before it.
    Why: ai-toolkit never enlarges a picture: its buckets stop at the picture's own pixels. The larger size repeats
    the smaller one, so each picture is taken as many times as there are sizes, always in about its own size.
    Repair: Take the size out of the list, or fetch larger pictures. It changes how often each picture is seen.
    Upstream: toolkit/buckets.py, toolkit/config_modules.py (preprocess_dataset_raw_config), 27a03a91
    Signature: Bucket sizes for …: the same lines for every resolution
    """
    for folder in datasets:
        dataset = run.recipe.dataset(folder.key)
        other_ways = ("square_crop", "scale", "buckets", "random_scale")
        special = any(run.written(f"{folder.key}/{key}") for key in other_ways)
        if dataset is None or special or folder.more or not folder.images:
            continue
        sizes = sorted(set(dataset.resolutions))
        largest = max(image.width * image.height for image in folder.images)
        above = [size for before, size in pairwise(sizes) if largest <= before * before]
        if above:
            before = sizes[-len(above) - 1]
            message = "No picture in {folder} has more than {before}×{before} pixels: {sizes} "
            yield found(
                run.where(f"{folder.key}/resolution"),
                message + ("makes" if len(above) == 1 else "make") + " none larger than {before}.",
                otherwise="Each picture is taken once for every size in the list, always in about its own size.",
                evidence={"largest": largest, "resolutions": sizes},
                folder=folder.path,
                sizes=" and ".join(map(str, above)),
                before=before,
            )
