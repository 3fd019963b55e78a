"""Carry out a plan on a machine record instead of a disk: the laws run on machines that no one here has.

The real writer is tested on real file systems; this mirrors only what each step leaves behind.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from zdoctor.doctor.configs.edit import apply_edits
from zdoctor.doctor.model import (
    ExtractFiles,
    FetchFile,
    MakeLink,
    MirrorFolder,
    PlaceCopy,
    Plan,
    Quarantine,
    ReplaceText,
    SetValue,
    WriteText,
)
from zdoctor.doctor.probe.recorded import RecordedWorld
from zdoctor.doctor.probe.world import Stat

Record = dict[str, Any]


def carry_out(plan: Plan, record: Record, text: str) -> tuple[Record, str]:
    """The record and the config text after the plan. A download cannot be simulated: such a plan is refused."""
    files: dict[str, Any] = {**record["files"]}
    world = RecordedWorld(record)
    edits = [step for step in plan.steps if isinstance(step, SetValue | ReplaceText)]
    for step in plan.steps:
        match step:
            case ExtractFiles(target, items):
                for item in items:
                    files[world.join(target, *item.name.split("/"))] = _entry(record, world, item.source)
            case MirrorFolder(source, target):
                for path in _walk(world, source):
                    files[world.join(target, path[len(source) + 1 :])] = {"link": path}
            case Quarantine(path):
                files[path + ".quarantine"] = files.pop(path)
            case WriteText(path, content):
                files[path] = {"text": content}
            case MakeLink(path, target):
                files[path] = {"link": target}
            case PlaceCopy(path, source):
                files[path] = _entry(record, world, source)
            case FetchFile():
                raise NotImplementedError("a download")
            case _:
                pass
    return {**record, "files": files}, apply_edits(text, edits) if edits else text


def _entry(record: Record, world: RecordedWorld, path: str) -> Any:
    return record["files"][world.resolve(path)[0]]


def _walk(world: RecordedWorld, folder: str) -> Iterator[str]:
    names = world.names(folder)
    assert isinstance(names, tuple)
    for name in names:
        path = world.join(folder, name)
        stat = world.stat(path)
        if isinstance(stat, Stat) and stat.kind == "folder":
            yield from _walk(world, path)
        else:
            yield path
