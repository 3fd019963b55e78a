"""Repairs for paths: a writable mirror of a read-only dataset, and the file inside an adapter folder."""

from __future__ import annotations

from collections.abc import Iterator

from ..doctor.model import DatasetFolder, Finding, Fix, MirrorFolder, Quarantine, Run, System, Writes
from ..doctor.model.shell import quoted
from ..doctor.rules import repair
from .edits import value_of


@repair("PTH001")
def mirror_dataset(
    finding: Finding, run: Run, system: System, writes: Writes, datasets: tuple[DatasetFolder, ...]
) -> Iterator[Fix]:
    """A dataset gets a writable mirror; another folder for the run itself is the user's choice.

    Links to what may not be read are of no use, so there is no mirror of that.
    """
    key, folder = finding.args["key"], finding.args["folder"]
    if any(one.forbidden and f"{one.key}/folder_path" == key for one in datasets):
        yield _allowed(folder, system)
        return
    if writes.mirror_root is None:
        return
    if not key.startswith("datasets/"):
        step = value_of(run, "output_folder", system.join(writes.mirror_root, "output"))
        yield Fix(f"write the run below {writes.mirror_root}", (step,), safety="ask")
        return
    number = key.split("/")[1]
    name = system.base(folder) if number == "0" else f"{system.base(folder)}-{number}"
    target = system.join(writes.mirror_root, "zdoctor-mirror", name)
    steps = MirrorFolder(folder, target), value_of(run, key, target)
    yield Fix(f"make a writable mirror of links at {target}", steps, order=1)


@repair("DAT001")
def let_this_user_read(finding: Finding, system: System, datasets: tuple[DatasetFolder, ...]) -> Iterator[Fix]:
    """The command that gives the rights to a folder whose owner took them away; another's folder is its owner's."""
    if any(one.forbidden and one.path == finding.args["folder"] for one in datasets):
        yield _allowed(finding.args["folder"], system)


def _allowed(folder: str, system: System) -> Fix:
    command = "" if system.os == "windows" else f"chmod -R u+rwX {quoted(folder)}"
    return Fix(f"let this user read and write {folder}, which its owner can do", (), safety="show", command=command)


@repair("PTH003")
def name_the_file(finding: Finding, run: Run) -> Iterator[Fix]:
    """The only .safetensors file of the folder; several are offered, none is chosen."""
    adapter = finding.args["adapter"]
    candidates = finding.args["candidates"]
    separator = "\\" if "\\" in adapter and "/" not in adapter else "/"
    for name in candidates:
        path = adapter.rstrip("/\\") + separator + name
        step = value_of(run, "adapter", path)
        yield Fix(f"set assistant_lora_path to {path}", (step,), "safe" if len(candidates) == 1 else "ask")
    if suggestion := finding.args.get("suggestion"):
        step = value_of(run, "adapter", suggestion)
        yield Fix(f"set assistant_lora_path to {suggestion}", (step,), "ask", "changes-result")


@repair("TRN010")
def set_the_save_aside(finding: Finding) -> Iterator[Fix]:
    """Nothing can be read of it; the save before it is then the newest."""
    yield Fix("move the damaged save out of the way", (Quarantine(str(finding.evidence["path"])),), safety="ask")
