"""What a run was doing as it failed, by its last frames and the lines before, and what fails there most often."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path, PureWindowsPath

import yaml

from ..model.crashes import Frame
from ..model.record import dataclass

TABLE = Path(__file__).with_name("stages.yaml")


@dataclass(frozen=True)
class Stage:
    """A thing that a run does; each pattern, where it is given, is looked for as the table's head says."""

    often: str
    doing: str = ""
    do: str = ""
    skip: str = ""
    calls: str = ""
    files: str = ""
    package: str = ""
    said: str = ""
    script: str = ""
    imports: str = ""

    def fits(self, called: str, files: str) -> bool:
        asked = bool(self.calls or self.files)
        return asked and all(re.search(*pair) for pair in ((self.calls, called), (self.files, files)))


@cache
def stages() -> tuple[Stage, ...]:
    """The table, in its order."""
    read = yaml.load(TABLE.read_bytes(), Loader=getattr(yaml, "CBaseLoader", yaml.BaseLoader))
    return tuple(Stage(**entry) for entry in read)


def by_code(called: str, function: str, frames: Sequence[Frame]) -> Stage | None:
    """By what is called in a line of code and whose files are at work, else by the name of the line's function.

    The arguments of a call say what is trained with, not what was going on."""
    files = "\n".join(frame.file for frame in frames)
    asked = ((stage, words) for words in (called, f"{function}(") for stage in stages())
    return next((stage for stage, words in asked if stage.fits(words, files)), None)


def by_package(package: str) -> Stage | None:
    """By the installed package whose code is at work."""
    return next((stage for stage in stages() if stage.package and re.fullmatch(stage.package, package)), None)


def by_lines(lines: Iterable[str]) -> Stage | None:
    """By what was printed right before, the last line first."""
    asked = ((stage, line.strip()) for line in reversed(list(lines)) for stage in stages() if stage.said)
    return next((stage for stage, line in asked if re.search(stage.said, line)), None)


def by_script(frames: Iterable[Frame]) -> tuple[Stage, str] | None:
    """By the name of the script that was started, and that name."""
    names = [PureWindowsPath(frame.file).name for frame in frames]
    asked = ((stage, name) for name in names for stage in stages() if stage.script)
    return next(((stage, name) for stage, name in asked if re.search(stage.script, name)), None)


def by_import(module: str) -> Stage | None:
    """By the module that was being imported."""
    package = module.partition(".")[0]
    return next((stage for stage in stages() if stage.imports and re.fullmatch(stage.imports, package)), None)


def place_of(frame: Frame) -> str:
    """A frame in a few words."""
    name = PureWindowsPath(frame.file).name
    place = f"{name}:{frame.line}" if frame.line else name
    return f"{frame.function} ({place})" if frame.function else place
