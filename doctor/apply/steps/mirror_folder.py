"""Step: a folder of links is made that stands for a read-only dataset."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from ...model import MirrorFolder
from ..actions.build import make
from ..actions.copy import Meter, copy_file
from ..actions.errors import ApplyError
from ..actions.paths import at, behind
from .needs import Needs, Work

MOST_MIRRORED = 500_000
# What the trainers open for writing inside a dataset folder: a link would lead the write to the read-only original.
REWRITTEN_FILES = frozenset({".aitk_size.json"})
REWRITTEN_FOLDERS = frozenset({"_latent_cache", "_t_e_cache", "_clip_vision_cache", "_controls"})


def describe(step: MirrorFolder) -> str:
    return f"make the writable folder {step.path} with a link to every file below {step.source}"


def precheck(step: MirrorFolder, path: Path, needs: Needs) -> None:
    needs.new_folder(path)
    source, target = behind(at(step.source)), behind(path)
    if not source.is_dir():
        raise ApplyError(f"{source} is no folder")
    if source == target or source in target.parents:
        raise ApplyError(f"{path} lies inside {source}, which it should mirror")
    held = mirrored(at(step.source))
    needs.room(path, ((file, file.stat().st_size if kind == "copy" else 0) for file, _, kind in held))


def perform(steps: Sequence[MirrorFolder], path: Path, work: Work) -> None:
    make(work.journal, path, lambda part: mirror(at(steps[0].source), part, work.meter))


def mirrored(source: Path) -> Iterator[tuple[Path, str, str]]:
    """What a mirror of `source` holds: (path, name relative to it, "folder" | "link" | "copy"), parents first.

    Raises ApplyError for a folder with more than MOST_MIRRORED names, OSError where it cannot be read.
    """
    count = 0
    folders: list[tuple[Path, str]] = [(source, "")]
    while folders:
        folder, prefix = folders.pop()
        rewritten = any(part in REWRITTEN_FOLDERS for part in prefix.split("/"))
        with os.scandir(folder) as entries:
            for entry in sorted(entries, key=lambda e: e.name):
                count += 1
                if count > MOST_MIRRORED:
                    raise ApplyError(
                        f"{source} holds more than {MOST_MIRRORED} files; point the config at one dataset"
                    )
                path, name = Path(entry.path), f"{prefix}{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    folders.append((path, f"{name}/"))
                    yield path, name, "folder"
                elif entry.is_file() and (rewritten or entry.name in REWRITTEN_FILES):
                    yield path, name, "copy"
                elif entry.is_symlink() or entry.is_file():
                    yield path, name, "link"


def mirror(source: Path, target: Path, meter: Meter) -> None:
    """Build the writable folder `target`: a link to every file below `source`, copies of what trainers rewrite.

    Where the system refuses symbolic links (Windows without developer mode), hard links; where those fail, copies.
    """
    target.mkdir()
    refused = False
    for path, name, kind in mirrored(source):
        place = target / name
        if kind == "folder":
            place.mkdir()
        elif kind == "copy":
            copy_file(path, place, None, None, meter, name)
        else:
            if not refused:
                try:
                    place.symlink_to(path, target_is_directory=path.is_dir())
                    continue
                except OSError as error:
                    if error.errno not in (errno.EPERM, errno.EACCES, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
                        raise
                    refused = True
            _stand_in(path, place, meter, name)


def _stand_in(path: Path, place: Path, meter: Meter, name: str) -> None:
    try:
        place.hardlink_to(path)
    except OSError:
        if path.is_dir():
            shutil.copytree(path, place)
        else:
            copy_file(path, place, None, None, meter, name)
