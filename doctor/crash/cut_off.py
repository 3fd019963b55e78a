"""What is told of a traceback of which the end is not there: what was going on by its last frames."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..model.crashes import Failure, Frame, Known
from ..model.record import replace
from .messages import CUT_OFF
from .stages import Stage, by_code, by_import, by_lines, by_package, by_script, place_of

# Files that only hand a call on.
_HANDS_ON = re.compile(
    r"[/\\]torch[/\\](?:nn[/\\]modules[/\\]module|autograd|utils[/\\](?:checkpoint|_contextlib)|_tensor|_compile|_dynamo)"
    r"|[/\\](?:click|typer|runpy|threading|concurrent|anyio)\b|[/\\]gradio[/\\]utils\.py"
    r"|_validators\.py|nvtx\.py|c10d_logger|autocast_mode|^<frozen "
)
# What a line of code calls, without the arguments; of what makes an optimizer, that it does.
_CALLED = re.compile(r"[\w.]+\((?:params, defaults)?")
_OF_ANYTHING = ("super(", "str(", "len(", "list(", "int(")
_IMPORT = re.compile(r"(?:from (?P<module>[\w.]+) import|import (?P<whole>[\w.]+))")
# Code that imports for others.
_IMPORTING = re.compile(r"[/\\]import_utils\.py$|[/\\]importlib[/\\]|^\W*<frozen importlib")
# Where pip builds a package.
_BUILT = re.compile(r"[/\\]pip-(?:install|req-build)-\w+[/\\](?P<name>[\w.-]+?)_[0-9a-f]{32}[/\\]")
_AT_WORK = 2  # of the last frames, whose files tell
# Exceptions that say little without their words.
_WORDED = frozenset(
    ("RuntimeError", "ValueError", "OSError", "TypeError", "KeyError", "AttributeError", "ImportError")
)
_LOOK = "Look at the end of the output where it was made: the line that names the error comes after the last frame."
_SOURCE = "https://docs.python.org/3/library/traceback.html"


def cut_off(failure: Failure, before: Sequence[str] = ()) -> Known | None:
    """What is told of a traceback without an end, or with no more than the name of its exception: the last call that
    it shows, and what was going on there; where its frames do not tell, by the lines right `before` it."""
    if failure.message.strip() or not (failure.name == CUT_OFF or failure.name in _WORDED):
        return None
    known = Known("", _LOOK, error=failure.name, vague=failure.name != CUT_OFF, source=_SOURCE)
    if not failure.frames:
        return _shown_before(known, before) if failure.name == CUT_OFF else None
    shown = [one for one in failure.frames if one.line and not _HANDS_ON.search(one.file)] or list(failure.frames)
    last = shown[-1]
    if last.code.startswith("assert "):
        return None
    # The frame that is cut in its own line shows no code; it is what the frame before it calls.
    calling = last if last.code or len(shown) == 1 else shown[-2]
    called = _CALLED.findall(calling.code)
    stage = None
    if not _IMPORT.match(last.code):  # a file's name says what it is for, not that more than an import was going on
        stage = by_code(" ".join(called), last.function, (last, *failure.frames[-_AT_WORK:]))
    imports = (
        [] if stage else [one for one in failure.frames if _IMPORT.match(one.code) or _IMPORTING.search(one.file)]
    )
    if imports and stage is None:
        return _importing(known, imports)
    at, stage = last, stage or by_package(_package(last))
    if stage is None:  # what the frames around it are at
        around = (
            (one, by_code(" ".join(_CALLED.findall(one.code)), one.function, (one,))) for one in reversed(shown)
        )
        at, stage = next(((one, found) for one, found in around if found is not None), (last, None))
    if stage is not None:
        place = _built(failure.frames) or place_of(at)
        return _told(known, stage, place) if at is last else _around(known, stage, place, place_of(last))
    named = [one for one in called if one not in _OF_ANYTHING] or called
    call = named[0].partition("(")[0].lstrip(".") if named else ""
    script = by_script(shown)
    if (said := _shown_before(known, before)) is not None and call in ("", "main"):
        return said
    if script is not None:
        return _told(known, *script)
    if not call:
        return None
    place = place_of(calling)
    return replace(
        known,
        cause="The log ends amid a traceback, before it says what went wrong. "
        f"The last call that it shows is {call}, at {place}.",
    )


def _told(known: Known, stage: Stage, place: str) -> Known:
    phase, often = stage.doing, stage.often
    return replace(
        known,
        cause="The log ends amid a traceback, before it says what went wrong. "
        f"The program was {phase} at {place}; what fails there most often: {often}.",
        do=f"{_LOOK} {stage.do}".strip(),
    )


def _around(known: Known, stage: Stage, place: str, inner: str) -> Known:
    """What a frame outside of the last one was at: what that one does in it, its name does not tell."""
    phase, often = stage.doing, stage.often
    return replace(
        known,
        cause="The log ends amid a traceback, before it says what went wrong. "
        f"The last place that it shows is {inner}, as the program was {phase} at {place}; what fails there most "
        f"often: {often}.",
    )


def _shown_before(known: Known, before: Sequence[str]) -> Known | None:
    """What the program said that it was at, as the traceback began."""
    if (stage := by_lines(before)) is None:
        return None
    phase, often = stage.doing, stage.often
    return replace(
        known,
        cause="The log ends amid a traceback, before it says what went wrong. By the lines before it the program was "
        f"{phase}; what fails there most often: {often}.",
        do=f"{_LOOK} {stage.do}".strip(),
    )


def _importing(known: Known, imports: Sequence[Frame]) -> Known:
    """An import that did not come to its end; `imports` are the lines of code that ask for it, and Python's own."""
    begun = [(one, found) for one in imports if (found := _IMPORT.match(one.code)) is not None]
    if not begun:
        place = place_of(imports[0])
        return replace(
            known,
            cause="The log ends amid a traceback, before it says what went wrong. The program was importing a "
            f"module at {place}; what fails there most often: a package that is missing, or some "
            "whose versions do not go together (torch with xformers, flash-attn or bitsandbytes; diffusers with "
            "transformers, peft or huggingface_hub).",
        )
    frame, found = begun[-1]
    what, place = found["module"] or found["whole"], place_of(frame)
    tried = f'Look at the end of the output; python -c "import {what}" in the same environment shows the error, too.'
    if (stage := by_import(what)) is not None:
        often = stage.often
        return replace(
            known,
            cause="The log ends amid a traceback, before it says what went wrong. The program was importing "
            f"{what} at {place}; what fails there most often: {often}.",
            do=tried,
        )
    return replace(
        known,
        cause="The log ends amid a traceback, before it says what went wrong. The program was importing "
        f"{what} at {place}: most often a package is missing there, or two packages are of versions that "
        "do not go together.",
        do=_LOOK if what.startswith(".") else tried,
    )


def _package(frame: Frame) -> str:
    if _HANDS_ON.search(frame.file):
        return ""
    found = re.search(r"(?:site|dist)-packages[/\\]([\w.]+)", frame.file)
    return found[1] if found is not None else ""


def _built(frames: Sequence[Frame]) -> str:
    """The package that is being built, "" where none is."""
    return next((found["name"] for one in reversed(frames) if (found := _BUILT.search(one.file)) is not None), "")
