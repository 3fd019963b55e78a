"""Masks and control images that the config names and that are not there."""

from __future__ import annotations

from collections.abc import Iterator
from ntpath import basename, splitext

from ..doctor.families import family_of
from ..doctor.model import DatasetFolder, Entry, Files, Finding, Run, found
from ..doctor.model.trainer import RUNNER
from ..doctor.rules import Unestablished, rule

_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")  # in lower case only
_MOST = 2000  # names that are listed of a folder
_GONE = ("missing", "dangling")
_ENDS = "The run ends before the model is loaded."
_UNPAIRED = "They are trained without a control image, without a message."
_UNMASKED = "Its pictures are trained as a whole, without a message."


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
        if edits and dataset.control_folders:
            key, path = f"{dataset.key}/control_folders", dataset.control_folders[0]
            entry = files.at(path)
            yield from _no_folder(run, key, path, entry, _UNPAIRED)
            if folder is not None and entry is not None and entry.kind == "folder":
                yield from _unpaired(run, key, entry, folder)
        if dataset.alpha_mask:
            yield from _without_alpha(run, f"{dataset.key}/alpha_mask", folder)
        elif dataset.mask_folder:
            entry = files.at(dataset.mask_folder)
            yield from _no_folder(run, f"{dataset.key}/mask_folder", dataset.mask_folder, entry, _UNMASKED)
    edited = [sample.control for sample in run.recipe.validation.painted if edits]
    gone = [path for path in edited if (entry := files.at(path)) is not None and entry.kind in (*_GONE, "folder")]
    if gone:
        yield found(
            run.where("samples"),
            "{path}, the control image of a sample, does not exist or is a folder."
            if len(gone) == 1
            else "The control images of {count} samples do not exist; the first is {path}.",
            otherwise=_ENDS if run.by_runner else "The run ends when it paints this sample: FileNotFoundError.",
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
            "{path}, the folder of {key}, " + ("does not exist." if entry.kind in _GONE else "is no folder."),
            otherwise=_ENDS if run.by_runner else otherwise,
            evidence={"looked_at": entry.path},
            severity=None if run.by_runner else "warning",
            path=path,
            key=run.keys.get(key, key).rpartition("/")[2],
        )


def _unpaired(run: Run, key: str, entry: Entry, folder: DatasetFolder) -> Iterator[Finding]:
    if not 0 < len(entry.children) < _MOST:
        return  # not listed, or not all of it
    stems = {name.rpartition(".")[0] for name in entry.children if name.endswith(_SUFFIXES)}
    alone = [image.path for image in folder.images if splitext(basename(image.path))[0] not in stems]
    if alone:
        yield found(
            run.where(key),
            "{count} of {total} pictures in {folder} have no control image in {path}; the first is {first}."
            if len(alone) > 1
            else "{first} has no control image in {path}.",
            otherwise=_ENDS if run.by_runner else _UNPAIRED,
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
            otherwise=_ENDS
            if run.by_runner
            else "The run ends with a ValueError (could not broadcast input array) when it loads such a picture.",
            evidence={"pictures": jpegs},
            path=jpegs[0],
            count=len(jpegs),
        )
