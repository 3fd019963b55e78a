"""What a dataset folder holds: images by their headers, and which of them have a caption beside them."""

from __future__ import annotations

from ..model import DatasetFolder, Image, Run, Unknown
from .components import listed
from .image import dimensions
from .world import Paths, Stat, World

MOST_IMAGES = 2000
MOST_FOLDERS = 1000
_IMAGES = (".jpg", ".jpeg", ".png", ".webp")
_NOT_FOLDERS = (*_IMAGES, ".txt", ".caption", ".json", ".safetensors", ".npz", ".md")


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
        extension = dataset.caption_extension
        found.append(_read(world, paths, dataset.key, root, f".{extension.lstrip('.')}"))
    return tuple(found)


def _read(world: World, paths: Paths, key: str, root: str, caption: str) -> DatasetFolder:
    images: list[Image] = []
    unreadable: list[str] = []
    more = 0
    waiting = [root]
    visited = 0
    while waiting and visited < MOST_FOLDERS:
        folder = waiting.pop(0)
        visited += 1
        names = world.names(folder)
        if isinstance(names, Unknown):
            continue  # the trainer's own walk passes over a folder it may not list
        present = set(names)
        for name in names:
            path = paths.join(folder, name)
            if not name.lower().endswith(_IMAGES):
                if not name.lower().endswith(_NOT_FOLDERS) and not name.startswith(".") and name != "_controls":
                    stat = world.stat(path)
                    if isinstance(stat, Stat) and stat.kind == "folder":
                        waiting.append(path)
                continue
            if len(images) + len(unreadable) >= MOST_IMAGES:
                more += 1
                continue
            size = dimensions(world, path)
            if size is None:
                unreadable.append(path)
            else:
                images.append(Image(path, *size, caption=f"{name.rpartition('.')[0]}{caption}" in present))
    return DatasetFolder(key, root, tuple(images), tuple(unreadable), more)
