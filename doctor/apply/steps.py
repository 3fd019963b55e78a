"""What each step touches, costs and does, and how it reads to a person."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..configs.edit import EditError, apply_edits
from ..configs.text import decode
from ..model import (
    ExtractFiles,
    FetchFile,
    MakeLink,
    MirrorFolder,
    PlaceCopy,
    Plan,
    Quarantine,
    ReplaceText,
    SetValue,
    Step,
    WriteText,
)
from ..model.amounts import amount
from .actions import aside, edit, hub_root, make, move
from .copy import Meter
from .errors import ApplyError
from .extraction import extract
from .fetch import fetch
from .journal import Journal
from .link import place as place_copy
from .mirror import mirror, mirrored
from .part import adopted, part_of

if TYPE_CHECKING:
    from ..state.receipts import Receipts


ADDRESS = re.compile(r"\b([0-9a-f]{8})(?:[0-9a-f]{32}|[0-9a-f]{56})\b")
LARGEST_TEXT = 16 << 20


def at(path: str) -> Path:
    """The absolute path of a step, links unresolved."""
    return Path(os.path.abspath(path))


def behind(path: Path) -> Path:
    """The file that a path leads to, links resolved as far as they go; a loop of links ends somewhere in it."""
    return Path(os.path.realpath(path))


def ordered(plan: Plan) -> tuple[tuple[Step, ...], ...]:
    """The plan as groups, each carried out at once: all edits of one file together, where the last of them stands."""
    steps = plan.steps
    groups: list[tuple[Step, ...]] = []
    for index, step in enumerate(steps):
        if isinstance(step, SetValue | ReplaceText):
            file = behind(at(step.path))
            same = [
                (i, s)
                for i, s in enumerate(steps)
                if isinstance(s, SetValue | ReplaceText) and behind(at(s.path)) == file
            ]
            if index == same[-1][0]:
                groups.append(tuple(s for _, s in same))
        else:
            groups.append((step,))
    return tuple(groups)


def is_text_sized(path: Path) -> bool:
    """Whether a regular file is there, links followed, that is small enough to keep a copy of."""
    return path.is_file() and path.stat().st_size <= LARGEST_TEXT


def place(step: Step) -> Path:
    """What the step writes to. Folders above are resolved: a path must not lead through what it replaces."""
    path = at(step.target if isinstance(step, ExtractFiles | MirrorFolder) else step.path)
    return behind(path.parent) / path.name


def sources(step: Step) -> tuple[Path, ...]:
    """What the step reads from."""
    match step:
        case ExtractFiles():
            return tuple(at(item.source) for item in step.items)
        case MirrorFolder() | PlaceCopy():
            return (at(step.source),)
        case FetchFile(prefix=str(prefix)):
            return (at(prefix),)
        case _:
            return ()


def copies(step: Step) -> Iterable[tuple[Path, int]]:
    """Every (source, bytes) that the step really copies. Downloads count with a source that does not exist."""
    match step:
        case ExtractFiles():
            done = adopted(step, part_of(place(step)))
            for item in step.items:
                if item.name not in done:
                    yield at(item.source), item.size
        case PlaceCopy():
            yield at(step.source), step.size
        case FetchFile():
            yield at(step.path), step.size or 0
        case MirrorFolder():
            for path, _, kind in mirrored(at(step.source)):
                yield path, path.stat().st_size if kind == "copy" else 0
        case _:
            return


def read_text(path: Path) -> tuple[str, str]:
    """The text of a file as the repairs counted its characters, and the encoding that gives its bytes again."""
    source = decode(str(path), path.read_bytes())
    if source.problem is not None and source.problem.kind == "size":
        raise ApplyError(f"{path}: {source.problem.message}")
    return source.text, source.encoding


def edited(path: Path, edits: Sequence[SetValue | ReplaceText]) -> bytes:
    """The new bytes of a text file; encoding, byte-order mark and line ends stay. Raises ApplyError."""
    text, encoding = read_text(path)
    try:
        return apply_edits(text, edits).encode(encoding, "surrogateescape")
    except EditError as error:
        raise ApplyError(f"{path} cannot be edited: {error}") from error


def perform(group: tuple[Step, ...], journal: Journal, meter: Meter, receipts: Receipts) -> None:
    """Carry out one group of `ordered`. Every change is announced in the journal before it is made."""
    step = group[0]
    path = place(step)
    match step:
        case SetValue() | ReplaceText():
            edits = [s for s in group if isinstance(s, SetValue | ReplaceText)]
            edit(journal, path, edited(path, edits))
        case ExtractFiles():
            extract(step, path, journal, meter, receipts)
        case MirrorFolder():
            make(journal, path, lambda part: mirror(at(step.source), part, meter))
        case Quarantine():
            move(journal, path, aside(path, journal.id, "quarantine"))
        case WriteText():
            data = step.text.encode("utf-8", "surrogateescape")
            if is_text_sized(path):
                edit(journal, path, data)
            else:
                make(journal, path, lambda part: _write(part, data), instead=True)
        case MakeLink():
            if not (path.is_symlink() and str(path.readlink()) == step.target):
                make(journal, path, lambda part: part.symlink_to(step.target), instead=True)
        case PlaceCopy():
            make(journal, path, lambda part: place_copy(step, part, meter), instead=True)
        case FetchFile():
            make(journal, path, fetch(step, path, journal, meter), instead=True)


def _write(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def describe(step: Step) -> str:
    """The step as one line for a person; content addresses and commits are shortened as git does."""
    return ADDRESS.sub(r"\1…", _in_words(step))


def _in_words(step: Step) -> str:
    match step:
        case SetValue():
            value = json.dumps(step.value, ensure_ascii=False)  # true, as the config has it
            return f"set {step.pointer} to {value} in {step.path}"
        case ReplaceText():
            return f"replace {step.old!r} by {step.new!r} in {step.path}"
        case ExtractFiles():
            count = len(step.items)
            total = amount(sum(item.size for item in step.items))
            verb = "hard-link" if step.hardlink else "copy"
            ready = sum(done.size for done in adopted(step, part_of(place(step))).values())
            rest = f"; {amount(ready)} of it lie ready from an earlier run" if ready else ""
            return f"{verb} {count} file{'s' * (count != 1)}, {total}, into {step.target}, verifying each{rest}"
        case MirrorFolder():
            return f"make the writable folder {step.target} with a link to every file below {step.source}"
        case Quarantine():
            where = (
                "aside, inside the cache" if hub_root(at(step.path)) is not None else "aside, beside where it lies"
            )
            return f"move {step.path} {where}"
        case WriteText():
            return f"write {step.path}: {step.text.strip()[:60]!r}"
        case MakeLink():
            return f"link {step.path} to {step.target}"
        case PlaceCopy():
            verb = "hard-link" if step.link else "copy"
            return f"{verb} {step.source}, {amount(step.size)}, to {step.path}, verifying it"
        case FetchFile(prefix=str(prefix)):
            rest = amount(step.size - step.prefix_size) if step.size is not None else "rest"
            after = "what is there" if prefix == step.path else prefix
            return f"download the missing {rest} of {step.filename} of {step.repo} to {step.path}, after {after}"
        case FetchFile():
            how_much = f", {amount(step.size)}," if step.size is not None else ""
            return f"download {step.filename}{how_much} of {step.repo} to {step.path}"


def diff(plan: Plan) -> str:
    """What the plan would change: a unified diff of the text files, then one line per other step."""
    from difflib import unified_diff

    parts: list[str] = []
    lines: list[str] = []
    for group in ordered(plan):
        edits = [step for step in group if isinstance(step, SetValue | ReplaceText)]
        if not edits:
            lines += map(describe, group)
            continue
        path = at(edits[0].path)
        try:
            before, encoding = read_text(path)
            after = edited(path, edits).decode(encoding, "surrogateescape")
        except (ApplyError, OSError) as error:
            lines += [f"cannot be done now: {describe(step)} ({error})" for step in edits]
            continue
        parts += unified_diff(_lines(before), _lines(after), edits[0].path, edits[0].path, lineterm="")
    return "\n".join([*parts, *lines])


def _lines(text: str) -> list[str]:
    return text.replace("\r\n", "\n").removesuffix("\n").split("\n")
