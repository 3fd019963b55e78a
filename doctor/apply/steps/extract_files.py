"""Step: files are copied into a plain folder, each verified."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from ...model import CopyItem, ExtractFiles
from ...model.amounts import amount
from ...probe.live import LiveWorld
from ...probe.world import Mount
from ..actions.build import ensure_folder, names, put, sync_tree
from ..actions.copy import BLOCK, can_link, copy_file, is_steady, link_file
from ..actions.errors import ApplyError
from ..actions.part import (
    adopted,
    files_of,
    finished,
    held,
    made_folders,
    part_of,
    prune,
    receipt,
    require_own,
)
from ..actions.paths import at, behind, hub_root, lies, place
from .needs import Needs, Work

FAT = ("vfat", "msdos", "fat", "fat32")
FAT_LIMIT = (1 << 32) - 1
_DEVICES = re.compile(r"(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9\u00b9\u00b2\u00b3])\s*(\..*)?", re.IGNORECASE)


def describe(step: ExtractFiles) -> str:
    count = len(step.items)
    total = amount(sum(item.size for item in step.items))
    ready = sum(done.size for done in adopted(step, part_of(place(step))).values())
    rest = f"; {amount(ready)} of it lie ready from an earlier run" if ready else ""
    return (
        f"{'hard-link' if step.hardlink else 'copy'} {count} file{'s' * (count != 1)}, {total}, into {step.path}, "
        f"verifying each{rest}"
    )


def precheck(step: ExtractFiles, path: Path, needs: Needs) -> None:
    for item in step.items:
        needs.source(at(item.source), item.size)
    needs.new_folder(path)
    _require_extractable(step, path)
    part = part_of(path)
    useful = adopted(step, part)
    freed = sum(done.size for name, done in finished(part).items() if name not in useful)
    folders = {folder for item in step.items for folder in PurePosixPath(item.name).parents}
    copies = [(at(item.source), item.size) for item in step.items if item.name not in useful]
    needs.room(path, copies, link=step.hardlink, size=-freed, names=len(folders) + 2)


def perform(steps: Sequence[ExtractFiles], path: Path, work: Work) -> None:
    """Bring the files to the new folder `path`, each verified. What an earlier run finished is taken as it is."""
    (step,), part, journal = steps, part_of(path), work.journal
    require_own(part)
    for folder in made_folders(part):
        if Path(folder) in path.parents:  # made for this target; taking it back removes them
            journal.begin("folder", path=folder)
    folders = ensure_folder(journal, path.parent)
    journal.begin("part", path=str(part), kept=True)
    with names(part), held(part, folders):
        done = adopted(step, part)
        prune(part, done)
        files_of(part).mkdir(exist_ok=True)
        work.meter.adopted += sum(file.size for file in done.values())
        for item in step.items:
            if item.name not in done:
                _bring(step, item, files_of(part) / item.name, work)
                receipt(part, item)
    sync_tree(files_of(part))
    put(journal, files_of(part), path)


def _bring(step: ExtractFiles, item: CopyItem, target: Path, work: Work) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    source = at(item.source)
    if step.hardlink:
        link_file(source, target, item.size, item.digest, work.meter)
    else:
        trusted = item.size > BLOCK and is_steady(source)
        copy_file(source, target, item.size, item.digest, work.meter, item.name, work.receipts if trusted else None)


def _require_extractable(step: ExtractFiles, path: Path) -> None:
    """Raise ApplyError with what stands against the extraction to `path`, folders above it resolved."""
    for name in _unfit_names(step.items):
        raise ApplyError(f"The file name {name}")
    require_own(part_of(path))
    # a stray name in a hub cache makes the hub client's scan complain
    for root in filter(None, map(hub_root, (path, *(behind(at(item.source)) for item in step.items)))):
        if root.parent == path or root.parent in path.parents:
            raise ApplyError(f"{path} lies inside the hub cache {root.parent}; choose a folder elsewhere")
    _require_fit(step, path)


def _unfit_names(items: tuple[CopyItem, ...]) -> Iterator[str]:
    names: set[str] = set()
    for item in items:
        if not safe_name(item.name):
            yield f"{item.name!r} would leave its folder"
        if os.name == "nt" and not windows_name(item.name):
            yield f"{item.name!r} cannot be used on Windows"
        if item.name.casefold() in names:
            yield f"{item.name!r} comes twice"
        names.add(item.name.casefold())
    for item in items:
        above = [str(folder).casefold() for folder in PurePosixPath(item.name).parents]
        if names.intersection(above):
            yield f"{item.name!r} lies below another file"


def safe_name(name: str) -> bool:
    """Whether a relative name stays below its folder on every system."""
    # of an absolute path the first part is empty, or a drive with its colon
    parts = name.replace("\\", "/").split("/")
    return not ("\0" in name or ":" in name or any(part in ("", ".", "..") for part in parts))


def windows_name(name: str) -> bool:
    """Whether Windows can hold a file of this relative name: no device, no forbidden sign, no end it would strip."""
    return not any(
        _DEVICES.fullmatch(part) or part.endswith((" ", ".")) or re.search(r'[\x00-\x1f<>:"|?*]', part)
        for part in name.split("/")
    )


def _require_fit(step: ExtractFiles, path: Path) -> None:
    world = LiveWorld()
    folder = next((folder for folder in path.parents if lies(folder)), path.parent)
    if not folder.is_dir():
        raise ApplyError(f"{folder} is no folder")
    refusal = world.refusal(str(folder))
    if isinstance(refusal, str):
        raise ApplyError(f"{folder} cannot be written to: {refusal}")
    mount = world.mount(str(folder))
    if isinstance(mount, Mount):
        too_large = beyond_the_limit(mount.filesystem, step.items)
        if too_large is not None:
            raise ApplyError(
                f"{mount.point} is a FAT file system, which holds no file of 4 GiB or more, and {too_large.name} has "
                f"{amount(too_large.size)}"
            )
    apart = [item for item in step.items if step.hardlink and not can_link(Path(item.source), folder)]
    if apart:
        raise ApplyError(
            f"{apart[0].source} lies on another file system than {folder}, so there can be no hard link. "
            "Leave --hardlink out"
        )


def beyond_the_limit(filesystem: str, items: tuple[CopyItem, ...]) -> CopyItem | None:
    """The first file that the file system cannot hold."""
    return next((item for item in items if filesystem.lower() in FAT and item.size > FAT_LIMIT), None)
