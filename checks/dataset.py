"""The dataset: pictures that are not there, and pictures that are none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..doctor.model import DatasetFolder, Finding, Run, found
from ..doctor.model.record import replace
from ..doctor.model.trainer import RUNNER
from ..doctor.rules import Unestablished, prevents, rule
from .keys.values import ends

SUFFIXES = ".jpg, .jpeg, .png, .webp"
CONVERTIBLE = (".heic", ".heif", ".avif", ".bmp", ".gif", ".tif", ".tiff", ".jxl", ".jfif", ".cr2", ".nef", ".dng")
LARGEST = 178_956_970  # pixels: twice PIL.Image.MAX_IMAGE_PIXELS
VIDEOS = (".mp4", ".avi", ".mov", ".webm", ".mkv", ".wmv", ".m4v", ".flv")  # ai-toolkit's video_extensions
ARCHIVES = (".zip", ".rar", ".7z", ".tar", ".gz", ".tgz")

_AS_JSON = "The trainer opens it as JSON: JSONDecodeError or UnicodeDecodeError, after the model was loaded."


@rule("DAT001", "error", "no-images", trainers=("ai-toolkit", RUNNER))
@prevents("AssertionError", r"no images found in")
def no_images(run: Run, datasets: tuple[DatasetFolder, ...]) -> Iterator[Finding]:
    """A dataset folder without a picture that the trainer can open.

    What: ai-toolkit takes files that end in .jpg, .jpeg, .png or .webp, in upper or lower case, from the folder and
    the folders inside it; hidden files and folders, linked folders and `_controls` are passed over. Nothing of that
    kind is there, or no decoder opens what is there, or this user may not read the folder, or all of it is smaller
    than SimpleTuner's minimum_image_size allows. In place of a folder ai-toolkit takes a JSON file, an object whose
    keys are the paths of the pictures, and no other file.
    Why: The dataset is read after the model was downloaded, loaded and quantized.
    Repair: Put the pictures there, or name the folder they are in. HEIC, AVIF, GIF, BMP and TIFF pictures have to be
    converted, archives unpacked. For a folder that may not be read the command is shown that its owner can type.
    Upstream: ai-toolkit toolkit/data_loader.py (27a03a91).
    Signature: AssertionError: no images found in …; json.decoder.JSONDecodeError or UnicodeDecodeError
    """
    unsure = ""
    for folder in _of_pictures(run, datasets):
        where = run.where(f"{folder.key}/folder_path")
        if folder.images and not folder.more and not folder.unlisted and not _taken(run, folder):
            yield _all_too_small(run, folder)
        if folder.images or folder.more:
            continue
        if folder.is_file:
            yield found(
                where,
                "{file} is a file and no JSON list of pictures; folder_path names the folder that the pictures are "
                "in.",
                otherwise=ends(run, _AS_JSON),
                evidence={"file": folder.path},
                folder=folder.path,
            )
        elif folder.denied:
            message, evidence = "{folder} may not be read by this user: permission denied.", {"folder": folder.path}
            yield found(where, message, otherwise=_ends(run), evidence=evidence, folder=folder.path)
        elif folder.unlisted:
            unsure = unsure or f"{folder.path} holds folders that could not be listed"
        else:
            count = len(folder.unreadable)
            first, why = next(iter(folder.unreadable.items()), ("", ""))
            # by number, then by name: the same folder gives the same words
            kind, number = min(folder.others.items(), key=lambda item: (-item[1], item[0]), default=("", 0))
            yield found(
                where,
                _message(count, kind, number, run.trainer),
                otherwise=_ends(run),
                evidence={"unreadable": dict(folder.unreadable), "others": dict(folder.others)},
                folder=folder.path,
                suffixes=SUFFIXES,
                count=count,
                first=first,
                why=why,
                kind=kind,
                number=number,
            )
    if unsure:
        raise Unestablished(unsure)


@rule("DAT002", "warning", "unreadable-images", trainers=("ai-toolkit", RUNNER))
@prevents("OSError", r"image file is truncated")
@prevents("UnidentifiedImageError", r"cannot identify image file")
def unreadable_images(run: Run, datasets: tuple[DatasetFolder, ...]) -> Iterator[Finding]:
    """Pictures that cannot be opened or that are cut off.

    What: Files with the name of a picture that are empty, zeros, a web page, a Git LFS pointer, a HEIC picture or a
    video, that are shorter than they say, or that this user may not read; links to pictures that are gone; pictures
    of so many pixels that Pillow takes them for an attack. Headers and ends are looked at, the pixels in between are
    not.
    Why: ai-toolkit leaves out a picture that it cannot open, with a traceback that scrolls away and without a count:
    the LoRA is trained on fewer pictures than were meant. With fast_image_size, or a size noted in an earlier run,
    the picture is opened later, and caching its latents ends the run.
    Repair: Fetch or convert these pictures again, or take them out.
    Upstream: ai-toolkit toolkit/data_loader.py, toolkit/dataloader_mixins.py (27a03a91).
    Signature: Error processing image: …; OSError: image file is truncated; DecompressionBombError
    """
    own = "The run ends before anything is loaded; with --skip-unreadable they are left out."
    otherwise = ends(run, "The trainer leaves out what it cannot open, and the LoRA is trained on the others.", own)
    yield from some_unreadable(run, _of_pictures(run, datasets), otherwise)


def some_unreadable(run: Run, folders: Iterable[DatasetFolder], otherwise: str) -> Iterator[Finding]:
    """The folders of which some pictures can be opened and others not; where none can, another rule speaks."""
    for folder in folders:
        if not folder.unreadable or not (folder.images or folder.more):
            continue
        first, why = next(iter(folder.unreadable.items()))
        yield found(
            run.where(f"{folder.key}/folder_path"),
            "{first} {why}."
            if len(folder.unreadable) == 1
            else "{count} of {total} pictures in {folder} cannot be read; the first of them, {first}, {why}.",
            otherwise=otherwise,
            evidence={"unreadable": dict(folder.unreadable)},
            first=first,
            why=why,
            count=len(folder.unreadable),
            total=len(folder.images) + len(folder.unreadable) + folder.more,
            folder=folder.path,
        )


def _of_pictures(run: Run, datasets: tuple[DatasetFolder, ...]) -> Iterator[DatasetFolder]:
    """The folders that pictures are read from: video datasets and audio models look for other files."""
    if (run.recipe.architecture or "").startswith("ace_step"):
        return
    for folder in datasets:
        several = run.setting(f"{folder.key}/num_frames") not in (0, 1, None)
        if not several and not run.setting(f"{folder.key}/auto_frame_count"):
            yield _openable(folder)


def _openable(folder: DatasetFolder) -> DatasetFolder:
    """With pictures that Pillow takes for a bomb among those that cannot be read."""
    huge = {
        image.path: f"has {image.width * image.height:,} pixels, and Pillow opens {LARGEST:,} at most"
        for image in folder.images
        if image.width * image.height > LARGEST
    }
    if not huge:
        return folder
    images = tuple(image for image in folder.images if image.path not in huge)
    return replace(folder, images=images, unreadable={**folder.unreadable, **huge})


def _taken(run: Run, folder: DatasetFolder) -> bool:
    """Whether a picture is large enough for its dataset, or may be: a size of 0 was not read."""
    dataset = run.recipe.dataset(folder.key)
    return dataset is None or any(dataset.takes(i.width, i.height) or not i.width for i in folder.images)


def _all_too_small(run: Run, folder: DatasetFolder) -> Finding:
    largest = max(folder.images, key=lambda image: image.width * image.height)
    return found(
        run.where(f"{folder.key}/minimum_image_size"),
        "None of the {count} pictures in {folder} is as large as minimum_image_size asks; the largest is {width} x "
        "{height} pixels."
        if len(folder.images) > 1
        else "The only picture in {folder} is smaller than minimum_image_size asks: {width} x {height} pixels.",
        otherwise=_ends(run),
        evidence={"count": len(folder.images)},
        folder=folder.path,
        width=largest.width,
        height=largest.height,
    )


def _ends(run: Run) -> str:
    return ends(run, "The run ends with AssertionError: no images found in {folder}, after the model was loaded.")


def _message(unreadable: int, kind: str, number: int, trainer: str | None) -> str:
    """The template of DAT001: what the folder holds in place of pictures says what to do."""
    if unreadable == 1:
        return "The only picture in {folder} cannot be opened: {first} {why}."
    if unreadable:
        return "None of the {count} pictures in {folder} can be opened. {first} {why}."
    if not number:
        return "{folder} holds no picture: the trainer takes {suffixes} files."
    if kind in ARCHIVES:
        return "{folder} holds no picture, but {kind} archives: unpack them."
    if kind in CONVERTIBLE:
        return "{folder} holds no picture that the trainer takes, but {number} {kind}: convert to {suffixes}."
    if kind in VIDEOS and trainer == "ai-toolkit":
        return "{folder} holds no picture, but {number} {kind}: videos are looked for where num_frames is above 1."
    return "{folder} holds no picture: the trainer takes {suffixes} files, and there are {number} {kind}."
