"""What a dataset folder holds: images by their headers, which have a caption beside them, and what is no image."""

from __future__ import annotations

import codecs
from collections import Counter
from collections.abc import Container, Mapping
from itertools import pairwise

from ..model import DatasetFolder, Image, Run, Unknown
from ..model.datasets import FORBIDDEN, Garbled
from ..model.run import repeats_of
from ..trainers import trainer_of
from .components import listed
from .image import IMAGES, beginning, damage, dimensions
from .world import Stat, World

MOST_IMAGES = 2000
MOST_FOLDERS = 1000
_CAPTIONS = (".txt", ".caption", ".json", ".npz")
_CAPTION_LIMIT = 1 << 16
# what the system says of a file that the trainer will not get either
_REFUSED = {"EACCES": FORBIDDEN, "EIO": "cannot be read: the disk reports an error"}


def probe_datasets(world: World, run: Run) -> tuple[DatasetFolder, ...] | Unknown:
    """The datasets of a run whose folder exists; a dataset given as a JSON list of pictures is left out.

    The headers of at most 2000 images a folder are read; `more` counts the others.
    """
    found: list[DatasetFolder] = []
    trainer = trainer_of(run.trainer)
    for dataset in run.recipe.datasets:
        if not dataset.folder or "\0" in dataset.folder:
            continue
        root = world.absolute(dataset.folder)
        names = listed(world, root)
        if isinstance(names, Unknown):
            if "EACCES" in names.reason and trainer.datasets_are_folders:
                found.append(DatasetFolder(dataset.key, root, (), denied=True))
                continue
            return names if root in names.reason else Unknown(f"{root}: {names.reason}")
        if names is None:
            if trainer.datasets_are_folders and _is_no_list(world, root):
                found.append(DatasetFolder(dataset.key, root, (), is_file=True))
            continue
        caption = f".{dataset.caption_extension.lstrip('.')}"
        if not trainer.top_suffixes:
            deep = dataset.recursive
            found.append(_read(world, dataset.key, root, caption, dataset.suffixes, deep=deep))
            continue
        numbered = dataset.key.endswith("_data_dir")
        inside = [world.join(root, name) for name in names if repeats_of(name) > 0] if numbered else [root]
        walk = [folder for folder in inside if isinstance(listed(world, folder), tuple)]
        found += [_read(world, dataset.key, folder, caption, trainer.top_suffixes, deep=False) for folder in walk]
    return tuple(found)


def _is_no_list(world: World, path: str) -> bool:
    """Whether a file is certainly no JSON list of pictures, which the trainer takes in place of a folder.

    A few bytes tell; more would be words of captions.
    """
    stat = world.resolve(path)[1]
    if not isinstance(stat, Stat) or stat.kind != "file":
        return False
    start = world.read(path, 0, 16)
    return not isinstance(start, Unknown) and (not stat.size or start.strip()[:1] not in (b"{", b""))


def folders_in(world: World, folder: str) -> tuple[str, ...] | None:
    """The names of the folders in a dataset's folder; None where it is not there or cannot be listed."""
    root = world.absolute(folder)
    names = listed(world, root)
    if not isinstance(names, tuple):
        return None
    stats = ((name, world.resolve(world.join(root, name))[1]) for name in names)
    return tuple(name for name, stat in stats if isinstance(stat, Stat) and stat.kind == "folder")


class _Seen:
    """What a walk has come across so far; the fields are those of DatasetFolder."""

    def __init__(self) -> None:
        self.images: list[Image] = []
        self.unreadable: dict[str, str] = {}
        self.more = 0
        self.others: Counter[str] = Counter()
        self.unlisted = 0
        self.captions: Counter[str] = Counter()
        self.blank = 0
        self.garbled: list[Garbled] = []


def _read(
    world: World, key: str, root: str, caption: str, kinds: tuple[str, ...] = IMAGES, *, deep: bool = True
) -> DatasetFolder:
    """The trainer's own walk: every folder inside, but hidden ones and linked ones; no hidden files (`._a.jpg`).

    sd-scripts and musubi-tuner look into no folder inside (`deep` is false).
    """
    seen = _Seen()
    waiting, visited = [root], 0
    while waiting and visited < MOST_FOLDERS:
        folder = waiting.pop(0)
        visited += 1
        names = world.names(folder)
        if isinstance(names, Unknown):
            seen.unlisted += 1
            continue
        present = {_found_as(world, name): name for name in names}
        pictures = {_stem(name) for name in names if name.lower().endswith(kinds)}
        for name in names:
            path = world.join(folder, name)
            if name.startswith("."):
                continue
            if name.lower().endswith(kinds):
                is_folder = _picture(world, path, f"{_stem(name)}{caption}", present, seen)
            else:
                is_folder = _other(world, path, name, pictures, seen)
            if is_folder and deep:
                waiting.append(path)
    return DatasetFolder(
        key,
        root,
        tuple(seen.images),
        seen.unreadable,
        seen.more,
        seen.others,
        seen.unlisted + len(waiting),
        seen.captions,
        seen.blank,
        tuple(seen.garbled),
    )


def _stem(name: str) -> str:
    return name.rpartition(".")[0]


def _found_as(world: World, name: str) -> str:
    """What the names of a file have in common under which the system finds it: not the case on Windows and macOS."""
    return name.lower() if world.system.os in ("windows", "darwin") else name


def _other(world: World, path: str, name: str, pictures: Container[str], seen: _Seen) -> bool:
    """Count what does not end like a picture; whether it is a folder to walk."""
    if name == "_controls":
        return False
    ending = name.rpartition(".")[2].lower()
    if _stem(name) in pictures and name.lower().endswith(_CAPTIONS):
        seen.captions[f".{ending}"] += 1
        return False
    stat = world.stat(path)
    if isinstance(stat, Stat) and stat.kind == "folder":
        return True
    if stat is not None and not name.lower().endswith(_CAPTIONS):
        seen.others[f".{ending}" if "." in name else name] += 1
    return False


def _picture(world: World, path: str, caption: str, present: Mapping[str, str], seen: _Seen) -> bool:
    """Look at what ends like a picture, and at its caption of that name; whether it is a folder to walk."""
    if len(seen.images) + len(seen.unreadable) >= MOST_IMAGES:
        seen.more += 1
        return False
    final, stat = world.resolve(path)
    if isinstance(stat, Stat) and stat.kind == "folder":
        return final == path
    if stat is None:
        seen.unreadable[path] = "is a link to something that is gone"
        return False
    start = beginning(world, path) if isinstance(stat, Stat) else stat
    harm = size = None
    if isinstance(start, Unknown):
        harm = next((said for error, said in _REFUSED.items() if error in start.reason), None)
    elif isinstance(stat, Stat):
        harm, size = damage(world, path, stat.size, start), dimensions(world, path, start)
    if harm is not None:
        seen.unreadable[path] = harm
    elif size is None:
        seen.more += 1
    else:
        name = present.get(_found_as(world, caption))
        seen.images.append(Image(path, *size, caption=name is not None))
        beside = world.join(world.parent(path), name or caption)
        words = world.read(beside, 0, _CAPTION_LIMIT) if name is not None else b"-"
        if isinstance(words, bytes):
            seen.blank += not words.strip()
            seen.garbled.extend(_garbled(beside, words))
    return False


def _garbled(path: str, words: bytes) -> tuple[Garbled, ...]:
    """What is wrong with a caption that the trainer cannot decode; nothing where it can."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(words, final=len(words) < _CAPTION_LIMIT)
        return ()
    except UnicodeDecodeError as error:
        at = error.start
    found = Garbled(path, words[at], at, words[:at].count(b"\n") + 1)
    if len(words) == _CAPTION_LIMIT:
        return (found,)
    marked = words.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    encoding = "utf-16" if marked else "cp1252"
    # Where bytes beyond ASCII stand in pairs, it is rather one of the encodings of East Asia.
    if not marked and any(one > 127 < other for one, other in pairwise(words)):
        return (found,)
    try:
        return (Garbled(path, found.byte, at, found.line, encoding, words.decode(encoding)),)
    except UnicodeDecodeError:
        return (found,)
