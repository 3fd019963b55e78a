"""What a dataset folder holds: images by their headers, which have a caption beside them, and what is no image."""

from __future__ import annotations

import codecs
from collections import Counter
from collections.abc import Container
from itertools import pairwise

from ..model import DatasetFolder, Image, Run, Unknown
from ..model.datasets import FORBIDDEN, Garbled
from ..model.record import replace
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
            walk = _Walk(world, caption, dataset.suffixes, deep=dataset.recursive)
            found.append(walk.of(dataset.key, root))
            continue
        numbered = dataset.key.endswith("_data_dir")
        for folder in [world.join(root, name) for name in names if repeats_of(name) > 0] if numbered else [root]:
            if isinstance(listed(world, folder), tuple):
                found.append(_Walk(world, caption, trainer.top_suffixes, deep=False).of(dataset.key, folder))
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


class _Walk:
    """The trainer's own walk: every folder inside, but hidden ones and linked ones; no hidden files (`._a.jpg`).

    sd-scripts and musubi-tuner look into no folder inside (`deep` is false). The fields are those of DatasetFolder.
    """

    def __init__(self, world: World, caption: str, kinds: tuple[str, ...] = IMAGES, *, deep: bool = True) -> None:
        self.world, self.caption, self.kinds, self.deep = world, caption, kinds, deep
        self.images: list[Image] = []
        self.unreadable: dict[str, str] = {}
        self.more = self.unlisted = self.blank = 0
        self.others: Counter[str] = Counter()
        self.captions: Counter[str] = Counter()
        self.garbled: list[Garbled] = []

    def of(self, key: str, root: str) -> DatasetFolder:
        waiting, visited = [root], 0
        while waiting and visited < MOST_FOLDERS:
            visited += 1
            inside = self._folder(waiting.pop(0))
            waiting += inside if self.deep else ()
        return DatasetFolder(
            key,
            root,
            tuple(self.images),
            self.unreadable,
            self.more,
            self.others,
            self.unlisted + len(waiting),
            self.captions,
            self.blank,
            tuple(self.garbled),
        )

    def _folder(self, folder: str) -> list[str]:
        """Look at what lies in a folder; the folders inside that are to be walked."""
        names = self.world.names(folder)
        if isinstance(names, Unknown):
            self.unlisted += 1
            return []
        present = {self._found_as(name): name for name in names}
        pictures = {_stem(name) for name in names if name.lower().endswith(self.kinds)}
        inside = []
        for name in names:
            path = self.world.join(folder, name)
            if name.startswith("."):
                continue
            if name.lower().endswith(self.kinds):
                is_folder = self._picture(path, present.get(self._found_as(f"{_stem(name)}{self.caption}")))
            else:
                is_folder = self._other(path, name, pictures)
            inside += [path] if is_folder else []
        return inside

    def _found_as(self, name: str) -> str:
        """What the names of a file that the system finds have in common: not the case on Windows and macOS."""
        return name.lower() if self.world.system.os in ("windows", "darwin") else name

    def _other(self, path: str, name: str, pictures: Container[str]) -> bool:
        """Count what does not end like a picture; whether it is a folder to walk."""
        if name == "_controls":
            return False
        ending, like_caption = name.rpartition(".")[2].lower(), name.lower().endswith(_CAPTIONS)
        if like_caption and _stem(name) in pictures:
            self.captions[f".{ending}"] += 1
            return False
        stat = self.world.stat(path)
        if isinstance(stat, Stat) and stat.kind == "folder":
            return True
        if stat is not None and not like_caption:
            self.others[f".{ending}" if "." in name else name] += 1
        return False

    def _picture(self, path: str, caption: str | None) -> bool:
        """Look at what ends like a picture, and at its caption of that name; whether it is a folder to walk."""
        if len(self.images) + len(self.unreadable) >= MOST_IMAGES:
            self.more += 1
            return False
        final, stat = self.world.resolve(path)
        if isinstance(stat, Stat) and stat.kind == "folder":
            return final == path
        if stat is None:
            self.unreadable[path] = "is a link to something that is gone"
            return False
        start = beginning(self.world, path) if isinstance(stat, Stat) else stat
        harm = size = None
        if isinstance(start, Unknown):
            harm = next((said for error, said in _REFUSED.items() if error in start.reason), None)
        elif isinstance(stat, Stat):
            harm, size = damage(self.world, path, stat.size, start), dimensions(self.world, path, start)
        if harm is not None:
            self.unreadable[path] = harm
        elif size is None:
            self.more += 1
        else:
            self.images.append(Image(path, *size, caption=caption is not None))
            if caption is not None:
                self._words(self.world.join(self.world.parent(path), caption))
        return False

    def _words(self, caption: str) -> None:
        words = self.world.read(caption, 0, _CAPTION_LIMIT)
        if isinstance(words, bytes):
            self.blank += not words.strip()
            self.garbled += _garbled(caption, words)


def _stem(name: str) -> str:
    return name.rpartition(".")[0]


def _garbled(path: str, words: bytes) -> tuple[Garbled, ...]:
    """What is wrong with a caption that the trainer cannot decode; nothing where it can."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(words, final=len(words) < _CAPTION_LIMIT)
        return ()
    except UnicodeDecodeError as error:
        at = error.start
    found = Garbled(path, words[at], at, words[:at].count(b"\n") + 1)
    marked = words.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    # Where bytes beyond ASCII stand in pairs, it is rather one of the encodings of East Asia.
    in_pairs = any(one > 127 < other for one, other in pairwise(words))
    if len(words) == _CAPTION_LIMIT or (in_pairs and not marked):
        return (found,)
    encoding = "utf-16" if marked else "cp1252"
    try:
        return (replace(found, encoding=encoding, text=words.decode(encoding)),)
    except UnicodeDecodeError:
        return (found,)
