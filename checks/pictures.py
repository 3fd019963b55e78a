"""Pictures that were not meant to be trained or are never reached in size; masks and control images not there."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from ntpath import basename, normcase, splitext

from ..doctor.families import family_of
from ..doctor.model import DatasetFolder, Entry, Files, Finding, Run, System, found
from ..doctor.model.facts import MOST_CHILDREN
from ..doctor.model.said import listed
from ..doctor.model.trainer import RUNNER
from ..doctor.rules import Unestablished, rule
from .keys.values import ends

_AIDS = (
    *("mask_path", "inpaint_path", "unconditional_path", "clip_image_path"),
    *("control_path", "control_path_1", "control_path_2", "control_path_3"),
)
_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")  # in lower case only
_ENDS = "The run ends before the model is loaded."
_UNPAIRED = "They are trained without a control image, without a message."
_UNMASKED = "Its pictures are trained as a whole, without a message."
_NO_ALPHA = "The run ends with a ValueError (could not broadcast input array) when it loads such a picture."


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
        if recipe.validation.painted and _inside(folder, run.output_folder, system):
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
        root, place = normcase(root), normcase(place)
    below = place.removeprefix(root.rstrip(separator) + separator)
    hidden = any(part.startswith(".") for part in below.split(separator))
    return None if below == place or hidden else place + separator


def _pictures_in(folder: DatasetFolder, path: object, system: System) -> int:
    place = _inside(folder, path, system)
    if place is None:
        return 0
    paths = (image.path for image in folder.images)
    return sum((normcase(one) if system.os == "windows" else one).startswith(place) for one in paths)


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
            yield found(
                run.where(f"{folder.key}/resolution"),
                "No picture in {folder} has more than {before}×{before} pixels, so none gets larger than that with "
                "{sizes}.",
                otherwise="Each picture is taken once for every size in the list, always in about its own size.",
                evidence={"largest": largest, "resolutions": sizes},
                folder=folder.path,
                sizes=listed(map(str, above)),
                before=before,
            )


@rule("DAT008", "error", "control-images-missing", trainers=("ai-toolkit", RUNNER))
def control_images_missing(run: Run, datasets: tuple[DatasetFolder, ...], files: Files) -> Iterator[Finding]:
    """Control images or masks that are not there.

    What: The folder of control_path (of Flux Kontext) or mask_path does not exist, a picture has no control image of
    its name there that ends in .jpg, .jpeg, .png or .webp, or a sample edits an image that is not there. A picture
    without a mask is fine: all of it counts. With alpha_mask a JPEG has none, as it has no alpha channel.
    Why: A picture without the image that was edited into it says nothing of how to edit. ai-toolkit trains such a
    picture all the same, without a message, and ends at a sample whose image is not there, and at a JPEG's mask;
    `zdoctor train` does not start.
    Repair: Put the image there under the picture's own name, or move the picture to a dataset without control_path.
    Upstream: ai-toolkit toolkit/dataloader_mixins.py (27a03a91)
    Signature: FileNotFoundError: [Errno 2] No such file or directory: '…', at a sample; ValueError: could not
    broadcast input array from shape (…,0) into shape (…,3), at a mask; else none.
    """
    if run.kind != "lora":
        return
    edits = family_of(run.recipe.architecture).edits
    by_key = {folder.key: folder for folder in datasets}
    for dataset in run.recipe.datasets:
        folder = by_key.get(dataset.key)
        for path in dataset.control_folders if edits else ():
            key = f"{dataset.key}/control_folders"
            entry = files.at(path)
            yield from _no_folder(run, key, path, entry, _UNPAIRED)
            if folder is not None and entry is not None and entry.kind == "folder":
                yield from _unpaired(run, key, entry, folder, dataset.numbered_controls)
        if dataset.alpha_mask:
            yield from _without_alpha(run, f"{dataset.key}/alpha_mask", folder)
        elif dataset.mask_folder:
            entry = files.at(dataset.mask_folder)
            yield from _no_folder(run, f"{dataset.key}/mask_folder", dataset.mask_folder, entry, _UNMASKED)
    edited = [path for sample in run.recipe.validation.painted if edits for path in sample.controls]
    gone = [path for path in edited if (entry := files.at(path)) and (entry.is_gone or entry.kind == "folder")]
    if gone:
        yield found(
            run.where("samples"),
            "{path}, the control image of a sample, does not exist or is a folder."
            if len(gone) == 1
            else "The control images of {count} samples do not exist; the first is {path}.",
            otherwise=ends(run, "The run ends when it paints this sample: FileNotFoundError.", _ENDS),
            evidence={"images": gone},
            path=gone[0],
            count=len(gone),
        )


def _no_folder(run: Run, key: str, path: str, entry: Entry | None, otherwise: str) -> Iterator[Finding]:
    if entry is not None and entry.kind == "denied":
        raise Unestablished(f"{entry.path} could not be looked at")
    if entry is not None and entry.kind != "folder":
        yield found(
            run.where(key),
            "{path}, the folder of {key}, " + ("does not exist." if entry.is_gone else "is no folder."),
            otherwise=ends(run, otherwise, _ENDS),
            evidence={"looked_at": entry.path},
            severity=None if run.by_runner else "warning",
            path=path,
            key=run.keys.get(key, key).rpartition("/")[2],
        )


def _unpaired(run: Run, key: str, entry: Entry, folder: DatasetFolder, numbered: bool) -> Iterator[Finding]:
    if not 0 < len(entry.children) < MOST_CHILDREN:
        return  # not listed, or not all of it
    stems = {name.rpartition(".")[0] for name in entry.children if name.endswith(_SUFFIXES)}
    if numbered:  # "cat_1.png" is one of "cat.png"
        stems |= {stem.rpartition("_")[0] for stem in stems}
    alone = [image.path for image in folder.images if splitext(basename(image.path))[0] not in stems]
    if alone:
        yield found(
            run.where(key),
            "{count} of {total} pictures in {folder} have no control image in {path}; the first is {first}."
            if len(alone) > 1
            else "{first} has no control image in {path}.",
            otherwise=ends(run, _UNPAIRED, _ENDS),
            evidence={"pictures": alone},
            severity=None if run.by_runner else "warning",
            count=len(alone),
            total=len(folder.images) + folder.more,
            folder=folder.path,
            path=entry.path,
            first=alone[0],
        )


def _without_alpha(run: Run, key: str, folder: DatasetFolder | None) -> Iterator[Finding]:
    if folder is None or not run.recipe.loss.balanced_masks:
        return  # as in sd-scripts, where a picture without one counts whole
    jpegs = [image.path for image in folder.images if image.path.lower().endswith((".jpg", ".jpeg"))]
    if jpegs:
        yield found(
            run.where(key),
            "alpha_mask is on, and {path} is a JPEG, which has no alpha channel. Save it as PNG or WebP with one."
            if len(jpegs) == 1
            else "alpha_mask is on, and {count} pictures are JPEGs, without an alpha channel; the first is {path}.",
            otherwise=ends(run, _NO_ALPHA, _ENDS),
            evidence={"pictures": jpegs},
            path=jpegs[0],
            count=len(jpegs),
        )
