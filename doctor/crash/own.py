"""What a program lacks of its own: a name or a file in its own folder, which no package brings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import takewhile
from pathlib import PureWindowsPath

from ..model.crashes import Failure, Frame, Known

_IMPORTED = re.compile(
    r"cannot import name ['\"](?P<name>\w+)['\"] from ['\"](?P<package>[\w.]+)['\"] \((?P<file>[^)]+)\)"
)
_PATH = re.compile(r"(?P<path>(?:[A-Za-z]:)?[\\/][\w.\\/ -]+)")
# What is a program's own in its folder, and no model, dataset or output.
_PARTS = re.compile(
    r"[\\/](?:submodules|third_party|vendor|backend|musubi[-_]tuner|sd[-_]scripts|ai-toolkit|kohya_ss|diffusion-pipe)\b"
    r"|\.(?:py|sh|bat|js)$",
    re.I,
)
_LEAST = 2
_CHECKOUT = re.compile(
    r".*?[\\/](?:musubi-tuner|sd-scripts|ai-toolkit|SimpleTuner|diffusion-pipe|OneTrainer)(?=[\\/])"
)
SOURCE = "https://git-scm.com/book/en/v2/Git-Tools-Submodules"


def own(failure: Failure) -> Known | None:
    """What is told of it, where the path shows that it is the program's own."""
    if (mixed := _copies(failure.frames)) is not None:
        one, other = mixed
        return Known(
            f"The code of two copies of the program is mixed: {one} was started, and what it imports comes from "
            f"{other}, which may be of another version.",
            "pip uninstall the copy that is imported (until pip finds none), then in the folder that is started: "
            "pip install -e . (or start the one that is installed).",
            error=failure.name,
            source="https://setuptools.pypa.io/en/latest/userguide/development_mode.html",
        )
    message = " ".join(failure.message.split())
    asked = _IMPORTED.search(message)
    if asked is not None and _beside(asked["file"], failure.frames):
        package, name = asked["package"], asked["name"]
        return Known(
            f"{package} is a folder of the program itself, no package, and has no {name}: this copy of the "
            "program lacks a file, or its files are of different versions.",
            "In the program's folder: git pull, then git submodule update --init --recursive. Where it is the "
            "newest, its publisher left that out: look for the name in its issues, or take a release before.",
            "Installing or updating packages by pip.",
            error=failure.name,
            source=SOURCE,
        )
    if failure.name not in ("FileNotFoundError", "OSError", "RuntimeError", "ValueError"):
        return None
    for path in _missing(message, failure.frames):
        return Known(
            f"A part of the program itself is not there: {path}. Its submodules were not fetched, or it was not "
            "installed whole.",
            "In the program's folder: git submodule update --init --recursive, then its installation once more.",
            error=failure.name,
            source=SOURCE,
        )
    return None


def _copies(frames: tuple[Frame, ...]) -> tuple[str, str] | None:
    """The folders of two checkouts of one program whose code is in the frames."""
    roots = [found[0] for one in frames if not one.is_library and (found := _CHECKOUT.match(one.file)) is not None]
    named: dict[str, str] = {}
    for root in roots:
        name = re.split(r"[\\/]", root)[-1]
        if named.setdefault(name, root) != root:
            return named[name], root
    return None


def _missing(message: str, frames: tuple[Frame, ...]) -> Iterator[str]:
    """Paths of the message that lie beside the program's own code and are code."""
    if not re.search(r"not found|No such file|does not exist|missing", message):
        return
    for found in _PATH.finditer(message):
        path = found["path"].rstrip(" .")
        if _beside(path, frames) and _PARTS.search(path):
            yield path


def _beside(path: str, frames: tuple[Frame, ...]) -> bool:
    """Whether a path lies in the folder of the program's own code, and not among installed packages."""
    parts = PureWindowsPath(path).parts[:-1]
    roots = (PureWindowsPath(one.file).parts[:-1] for one in frames if not one.is_library)
    shared = (
        sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(root, parts, strict=False))) for root in roots
    )
    return not Frame(path, 0, "").is_library and any(count >= _LEAST for count in shared)
