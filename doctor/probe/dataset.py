"""What a dataset folder holds: images by their headers, which have a caption beside them, and what is no image."""

from __future__ import annotations

import codecs
from collections import Counter
from itertools import pairwise

from ..model import DatasetFolder, Image, Run, Unknown
from ..model.datasets import Garbled
from ..model.families import BY_FILES
from ..model.run import repeats_of
from .components import listed
from .image import IMAGES, beginning, damage, dimensions
from .world import Paths, Stat, World, resolve

MOST_IMAGES = 2000
MOST_FOLDERS = 1000
_CAPTIONS = (".txt", ".caption", ".json", ".npz")
_CAPTION_LIMIT = 1 << 16


def probe_datasets(world: World, run: Run) -> tuple[DatasetFolder, ...] | Unknown:
    """The datasets of a run whose folder exists; a dataset given as a JSON file is left out.

    The headers of at most 2000 images a folder are read; `more` counts the others.
    """
    found: list[DatasetFolder] = []
    paths = Paths(world.system)
    for dataset in run.datasets:
        if not dataset.folder or "\0" in dataset.folder:
            continue
        root = paths.absolute(dataset.folder)
        names = listed(world, root)
        if isinstance(names, Unknown):
            return Unknown(f"{dataset.folder}: {names.reason}")
        if names is None:
            continue
        caption = f".{dataset.caption_extension.lstrip('.')}"
        if run.trainer not in BY_FILES:
            deep = dataset.recursive
            found.append(_read(world, paths, dataset.key, root, caption, dataset.suffixes, deep=deep))
            continue
        numbered = dataset.key.endswith("_data_dir")
        inside = [paths.join(root, name) for name in names if repeats_of(name) > 0] if numbered else [root]
        kinds = (*IMAGES, ".bmp", ".avif") if run.trainer == "musubi-tuner" else (*IMAGES, ".bmp")
        walk = [folder for folder in inside if isinstance(listed(world, folder), tuple)]
        found += [_read(world, paths, dataset.key, folder, caption, kinds, deep=False) for folder in walk]
    return tuple(found)


def folders_in(world: World, folder: str) -> tuple[str, ...] | None:
    """The names of the folders in a dataset's folder; None where it is not there or cannot be listed."""
    paths = Paths(world.system)
    root = paths.absolute(folder)
    names = listed(world, root)
    if not isinstance(names, tuple):
        return None
    stats = ((name, resolve(world, paths, paths.join(root, name))[1]) for name in names)
    return tuple(name for name, stat in stats if isinstance(stat, Stat) and stat.kind == "folder")


def _read(
    world: World,
    paths: Paths,
    key: str,
    root: str,
    caption: str,
    kinds: tuple[str, ...] = IMAGES,
    *,
    deep: bool = True,
) -> DatasetFolder:
    """The trainer's own walk: every folder inside, but hidden ones and linked ones; no hidden files (`._a.jpg`).

    sd-scripts and musubi-tuner look into no folder inside (`deep` is false).
    """
    images: list[Image] = []
    unreadable: dict[str, str] = {}
    others: Counter[str] = Counter()
    captions: Counter[str] = Counter()
    garbled: list[Garbled] = []
    blank = 0
    more = unlisted = visited = 0
    waiting = [root]
    while waiting and visited < MOST_FOLDERS:
        folder = waiting.pop(0)
        visited += 1
        names = world.names(folder)
        if isinstance(names, Unknown):
            unlisted += 1
            continue
        present = set(names)
        pictures = {name.rpartition(".")[0] for name in names if name.lower().endswith(kinds)}
        for name in names:
            if name.startswith("."):
                continue
            path = paths.join(folder, name)
            stem, dot, extension = name.rpartition(".")
            if not name.lower().endswith(kinds):
                if name == "_controls" or (stem in pictures and name.lower().endswith(_CAPTIONS)):
                    captions[f".{extension.lower()}"] += 1
                    continue
                stat = world.stat(path)
                if isinstance(stat, Stat) and stat.kind == "folder":
                    waiting.extend([path] if deep else [])
                elif stat is not None and not name.lower().endswith(_CAPTIONS):
                    others[f".{extension.lower()}" if dot else name] += 1
                continue
            if len(images) + len(unreadable) >= MOST_IMAGES:
                more += 1
                continue
            final, stat = resolve(world, paths, path)
            if isinstance(stat, Stat) and stat.kind == "folder":
                waiting.extend([path] if final == path and deep else [])
                continue
            start = beginning(world, path) if isinstance(stat, Stat) else None
            size = dimensions(world, path, start) if start is not None else None
            harm = damage(world, path, stat.size, start) if isinstance(stat, Stat) and start is not None else None
            if stat is None:
                unreadable[path] = "is a link to something that is gone"
            elif harm is not None:
                unreadable[path] = harm
            elif size is None:
                more += 1
            else:
                images.append(Image(path, *size, caption=f"{stem}{caption}" in present))
                words = (
                    world.read(paths.join(folder, stem + caption), 0, _CAPTION_LIMIT) if images[-1].caption else b"-"
                )
                if isinstance(words, bytes):
                    blank += not words.strip()
                    garbled.extend(_garbled(paths.join(folder, stem + caption), words))
    unlisted += len(waiting)
    return DatasetFolder(
        key, root, tuple(images), unreadable, more, others, unlisted, captions, blank, tuple(garbled)
    )


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
