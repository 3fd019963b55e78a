"""Datasets as kohya's trainers read them: numbered folders, captions by their ending, caches made beforehand."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

from ...doctor.families.part_files import kohya_of
from ...doctor.model import Config, Dataset, DatasetFolder, Files, Finding, Run, Severity, found
from ...doctor.model.facts import MOST_CHILDREN
from ...doctor.model.run import repeats_of
from ...doctor.rules import NotApplicable, Unestablished, prevents, rule
from . import TRAINERS, on, trains

VIDEOS = (".mp4", ".webm", ".avi", ".mkv", ".mov", ".flv", ".wmv", ".m4v", ".mpg", ".mpeg")
PICTURES = (".jpg", ".jpeg", ".png", ".webp", ".bmp")
_WITHOUT = "These pictures are left out without a word; with none left, No training items are found."
_BY_CLASS = "They are trained with the class tokens of the folder as their caption."
_EMPTY = "They are trained with an empty caption, after a warning among hundreds of lines."


@rule("KOH004", "error", "no-training-pictures", trainers=TRAINERS)
@prevents("ValueError", r"No training items found in the dataset")
def no_training_pictures(run: Run, datasets: tuple[DatasetFolder, ...], files: Files) -> Iterator[Finding]:
    """Folders in which the trainer finds no picture.

    What: --train_data_dir names the folder above folders such as 10_cat, where 10 is how often their pictures are
    repeated; it holds none of these, or pictures themselves. Or an image_dir, an image_directory or a numbered folder
    holds no picture, or a video_directory no video; folders inside are not looked into.
    Why: sd-scripts passes over a folder without a number, prints "No data found" and ends with exit code 0, so that
    a script goes on as if it had trained.
    Repair: Put the pictures into a folder such as 10_name below train_data_dir, or name the folder above it.
    Upstream: sd-scripts library/config_util.py, train_network.py (48d368fa); musubi-tuner dataset/datasources.py
    Signature: No data found. Please verify arguments (train_data_dir must be the parent of folders with images)
    """
    yield from _outside_numbered(run, files)
    for folder in datasets:
        kind = "picture" if run.setting(f"{folder.key}/video_directory") is None else "video"
        if folder.more or folder.unlisted:
            continue
        if folder.images if kind == "picture" else any(folder.others.get(ending) for ending in VIDEOS):
            continue
        reason = next(iter(folder.unreadable.values()), "")
        yield found(
            run.where(f"{folder.key}/folder_path"),
            "None of the pictures in {folder} can be opened; the first {reason}."
            if reason and kind == "picture"
            else "{folder} holds no {kind}; folders inside it are not looked into.",
            otherwise="The trainer passes over the folder; when no other has pictures it ends without an error, exit "
            "code 0."
            if run.trainer == "sd-scripts"
            else "Nothing is cached, and the training ends with ValueError: No training items found in the dataset.",
            evidence={"others": dict(folder.others)},
            severity=None if len(datasets) == 1 or run.trainer != "sd-scripts" else "warning",
            folder=folder.path,
            kind=kind,
            reason=reason,
        )


def _outside_numbered(run: Run, files: Files) -> Iterator[Finding]:
    """A folder without numbered folders, or with pictures beside them; a list of pictures needs none."""
    if run.setting("in_json"):
        return
    for dataset in run.recipe.datasets:
        entry = files.at(dataset.folder) if dataset.key.endswith("_data_dir") else None
        if entry is None or entry.kind != "folder":
            continue
        numbered = any(repeats_of(name) > 0 for name in entry.children)
        pictures = [name for name in entry.children if name.lower().endswith(PICTURES)]
        severity: Severity | None = None
        if not numbered and dataset.key == "train_data_dir":
            message = (
                "{folder} holds pictures itself; {trainer} looks for folders such as 10_cat in it."
                if pictures
                else "{folder} holds no folder whose name begins with a number, such as 10_cat."
            )
            otherwise = "The trainer prints 'No data found' and ends without an error, exit code 0."
        elif pictures:
            message = (
                "{folder} holds {pictures} pictures beside its numbered folders, such as {example}."
                if len(pictures) > 1
                else "{folder} holds a picture beside its numbered folders, {example}."
            )
            otherwise, severity = "The trainer passes over them without a word.", "warning"
        else:
            continue
        yield found(
            run.where(dataset.key),
            message,
            otherwise=otherwise,
            evidence={"pictures": len(pictures)},
            severity=severity,
            folder=dataset.folder,
            trainer=run.trainer,
            example=next(iter(pictures), ""),
        )


@rule("KOH005", "warning", "captions-not-found", trainers=TRAINERS)
@prevents("FileNotFoundError", r"No such file or directory: ''")
def captions_not_found(run: Run, datasets: tuple[DatasetFolder, ...]) -> Iterator[Finding]:
    """Pictures whose captions the trainer does not find.

    What: caption_extension is looked for beside each picture. sd-scripts looks for .caption unless it is told
    otherwise, while most captions end in .txt. musubi-tuner has no default at all, and leaves out pictures without a
    caption; an ending without a dot it puts behind the name as it is, where sd-scripts adds the dot.
    Why: sd-scripts trains such pictures with the class tokens of the folder (the words behind the number) or with an
    empty caption, after one warning among hundreds of lines. musubi-tuner opens a file without a name, or caches
    nothing and says that it succeeded.
    Repair: caption_extension = ".txt", where the captions end so.
    Upstream: sd-scripts library/train_util.py read_caption (48d368fa); musubi-tuner dataset/datasources.py,
    https://github.com/kohya-ss/musubi-tuner/issues/412, https://github.com/kohya-ss/musubi-tuner/issues/875
    Signature: No caption file found for … images; FileNotFoundError: [Errno 2] No such file or directory: ''
    """
    for folder in datasets:
        yield from _captions_in(run, folder)


def _captions_in(run: Run, folder: DatasetFolder) -> Iterator[Finding]:
    dataset = run.recipe.dataset(folder.key)
    if dataset is None:
        return
    extension, musubi = dataset.caption_extension, run.trainer == "musubi-tuner"
    missing = sum(not image.caption for image in folder.images)
    all_of_them = missing == len(folder.images)
    new, instead = None, ""
    severity: Severity | None = "error" if musubi else None
    if musubi and not extension:
        if run.setting(f"{folder.key}/image_jsonl_file") is not None:
            return
        message = "No caption_extension is given for {folder}, and {trainer} has no default."
        otherwise = "Caching the text encoder outputs ends with FileNotFoundError: No such file or directory: ''."
    elif not extension.startswith("."):
        message = "caption_extension is {extension!r}, without a dot: the caption of cat.png is looked for in "
        message += "cat{extension}."
        otherwise = (
            "Caching ends with FileNotFoundError: No such file or directory." if musubi else "No caption is found."
        )
        new = f".{extension}" if musubi else None
    else:
        instead = _other_ending(folder, extension)
        named = bool(dataset.default_caption) or _class_of(folder) != ""
        if not missing or (named and all_of_them and not instead):
            return  # a folder of pictures with one caption for all of them is a way to train
        message = ("None of the {total}" if all_of_them else "{count} of the {total}") + " pictures in {folder} "
        message += ("has" if all_of_them or missing == 1 else "have") + " a caption that ends in {extension}"
        message += ", but there are captions in {instead}." if instead else "."
        otherwise = _WITHOUT if musubi else _BY_CLASS if named else _EMPTY
        severity = "error" if musubi and all_of_them else "note" if named and not instead else None
        new = instead if all_of_them else None
    key = f"{folder.key}/caption_extension"
    yield found(
        run.where(key),
        message,
        otherwise=otherwise,
        evidence={"key": key, "new": new, "pointer": run.pointer(key)},
        severity=severity,
        folder=folder.path,
        trainer=run.trainer,
        extension=extension,
        instead=instead,
        count=missing,
        total=len(folder.images),
    )


def _other_ending(folder: DatasetFolder, extension: str) -> str:
    """The ending that captions of these pictures have instead, "" when there are none."""
    return next((other for other in (".txt", ".caption") if other != extension and folder.captions.get(other)), "")


def _class_of(folder: DatasetFolder) -> str:
    """The words behind the number of a folder such as 10_cat."""
    name = folder.path.replace("\\", "/").rpartition("/")[2]
    return name.partition("_")[2] if folder.key.endswith("_data_dir") else ""


# What stands in the names of the caches of a model without a record, by its script (30c658c4).
_CACHES = {
    "fpack": "fp",
    "hidream_o1": "ho1",
    "hv": "hv",
    "hv_1_5": "hv15",
    "ideogram4": "i4",
    "kandinsky5": "k5",
    "krea2": "kr2",
    "wan": "wan",
}
_CACHED = {"hidream_o1": "pixel"}  # this model has no latents


def _cache_of(run: Run, family: str) -> str:
    """The word that the names of a run's caches end in. Raises Unestablished where it is not known."""
    of_trainer = kohya_of(run)
    version = str(run.setting("model_version", ""))
    if of_trainer is not None and of_trainer.cache:
        return of_trainer.cache
    if family == "flux_2":
        return "f2k4b" if "4b" in version else "f2k9b" if "9b" in version else "f2d"
    if family == "qwen_image":
        edits = version.startswith("edit") or (not version and (on(run, "edit") or on(run, "edit_plus")))
        return "qil" if version == "layered" else "qie" if edits else "qi"
    if family not in _CACHES:
        raise Unestablished(f"which caches {family or 'this script'} trains from is not known")
    return _CACHES[family]


@rule("KOH006", "error", "caches-not-made", trainers=("musubi-tuner",))
@prevents("ValueError", r"No training items found in the dataset")
def caches_not_made(config: Config, run: Run, files: Files) -> Iterator[Finding]:
    """The caches that musubi-tuner trains from are not there.

    What: musubi-tuner trains from files that two other scripts write: the latents (zimage_cache_latents.py) and the
    text encoder outputs (zimage_cache_text_encoder_outputs.py). The cache folder of a dataset (cache_directory, else
    the folder of the pictures) lacks one kind, and the script that is checked does not make them first.
    Why: The training script reads nothing else: pictures and captions are not looked at again.
    Repair: Run both scripts with the same dataset file.
    Upstream: https://github.com/kohya-ss/musubi-tuner/issues/481, https://github.com/kohya-ss/musubi-tuner/issues/747
    Signature: ValueError: No training items found in the dataset
    """
    recipe = run.recipe
    if not trains(run) or not recipe.datasets:
        raise NotApplicable
    family = run.process_type.partition("_train")[0]
    short = _cache_of(run, family)
    prefix = "" if family == "hv" else f"{family}_"
    wanted = {
        f"{prefix}cache_{_CACHED.get(family, 'latents')}": (f"_{short}.safetensors", "latents"),
        f"{prefix}cache_text_encoder_outputs": (f"_{short}_te.safetensors", "text encoder outputs"),
    }
    entries = {folder: files.at(folder) for folder in _caches(run)}
    for script, (ending, what) in wanted.items():
        if config.format == "shell" and script in config.text:
            continue
        empty = []
        for folder, entry in entries.items():
            if entry is None:
                continue
            if entry.kind == "denied":
                raise Unestablished(f"{entry.path} could not be looked at")
            if len(entry.children) < MOST_CHILDREN and not any(name.endswith(ending) for name in entry.children):
                empty.append(folder)
        if len(empty) == len(entries):
            yield found(
                run.where("datasets/0/cache_directory"),
                "{folder} holds no cached {what} (*{ending}); {script}.py makes them.",
                otherwise="The training ends with ValueError: No training items found in the dataset.",
                evidence={"script": script, "folders": empty},
                folder=empty[0],
                what=what,
                ending=ending,
            )


def _caches(run: Run) -> dict[str, Dataset]:
    """The datasets by their cache folders: the pictures' own where none is named."""
    return {str(run.setting(f"{d.key}/cache_directory") or d.folder or ""): d for d in run.recipe.datasets}


@rule("KOH018", "error", "cache-folder-read-as-a-pattern", trainers=("musubi-tuner",))
@prevents("ValueError", r"No training items found in the dataset")
def cache_folder_read_as_a_pattern(run: Run) -> Iterator[Finding]:
    """Brackets in the path of a cache folder, which is searched as a pattern.

    What: The path of a dataset's caches (cache_directory, else the folder of the pictures) holds [ and ].
    Why: musubi-tuner puts the path into glob as it is, and [abc] stands for one of these letters there. The scripts
    that make the caches write them into the folder itself, so that only the training misses them.
    Repair: A folder without brackets in its path: set cache_directory.
    Upstream: musubi-tuner dataset/image_video_dataset.py prepare_for_training (30c658c4)
    Signature: ValueError: No training items found in the dataset; beside other datasets, none
    """
    caches = _caches(run) if trains(run) else {}
    for folder, dataset in caches.items():
        if all(fnmatchcase(part, part) for part in re.split(r"[/\\]", folder)):
            continue
        key = f"{dataset.key}/cache_directory"
        yield found(
            run.where(key if run.setting(key) else f"{dataset.key}/folder_path"),
            "{folder} holds brackets, which {trainer} reads as a pattern: it finds no cache there.",
            otherwise="The training ends with ValueError: No training items found in the dataset."
            if len(caches) == 1
            else "The dataset is left out without a word.",
            evidence={"key": key},
            folder=folder,
            trainer=run.trainer,
        )
