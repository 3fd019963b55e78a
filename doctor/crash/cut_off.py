"""What is told of a traceback of which the end is not there: what was going on by its last frames."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PureWindowsPath

from ..model.crashes import Failure, Frame, Known
from ..model.record import replace
from .messages import CUT_OFF
from .phases import PHASES, doing, place_of, working

# Files that only hand a call on.
_HANDS_ON = re.compile(
    r"[/\\]torch[/\\](?:nn[/\\]modules[/\\]module|autograd|utils[/\\](?:checkpoint|_contextlib)|_tensor|_compile|_dynamo)"
    r"|[/\\](?:click|typer|runpy|threading|concurrent|anyio)\b|[/\\]gradio[/\\]utils\.py"
    r"|_validators\.py|nvtx\.py|c10d_logger|autocast_mode|^<frozen "
)
# What a line of code calls, without the arguments; of what makes an optimizer, that it does.
_CALLED = re.compile(r"[\w.]+\((?:params, defaults)?")
_IMPORT = re.compile(r"(?:from (?P<module>[\w.]+) import|import (?P<whole>[\w.]+))")
# Code that imports for others.
_IMPORTING = re.compile(r"[/\\]import_utils\.py$|[/\\]importlib[/\\]|^\W*<frozen importlib")
# How what is printed right before a traceback begins, and what is done then.
_SAID_BEFORE = tuple(
    (re.compile(begun), next((phase, often) for _, phase, often in PHASES if phase == named))
    for begun, named in (
        (r"^(?:INFO:? *)?[Ss]aving\b", "saving"),
        (r"(?i)\bcaching latents", "encoding pictures with the VAE"),
        (r"^(?:steps?|epoch):? +\d+%", "computing a step"),
    )
)
# What a trainer's script is for, by its name, and what fails in it most.
_SCRIPTS = tuple(
    (re.compile(name), phase, often)
    for name, phase, often in (
        (
            r"cache_latents",
            "caching latents",
            "a VAE or image encoder of another model or kind (only a part of one), the card's memory, or a "
            "picture or video that is damaged",
        ),
        (
            r"cache_text_encoder_outputs",
            "caching what becomes of captions",
            "a text encoder of another model or layout, the card's memory, or captions that are missing",
        ),
        (
            r"train_network|^train_\w*lora|^(?:flux|sdxl|sd3|lumina|hunyuan|wan|qwen)\w*_train",
            "preparing or doing a training",
            "caches that are missing or of another task (make both anew with this model's own scripts), a file of "
            "another model, the card's memory, or another process of several that failed first",
        ),
    )
)
# Exceptions that say little without their words.
_WORDED = frozenset(
    ("RuntimeError", "ValueError", "OSError", "TypeError", "KeyError", "AttributeError", "ImportError")
)
_LOOK = "Look at the end of the output where it was made: the line that names the error comes after the last frame."
_SOURCE = "https://docs.python.org/3/library/traceback.html"


# What is imported, and why that fails most often.
_IMPORTED = (
    (
        ("torchcodec",),
        "no shared libraries of FFmpeg that it knows (on Windows a full-shared build whose bin is in PATH), or a "
        "torchcodec that was built for another torch",
    ),
    (
        ("xformers", "flash_attn", "sageattention", "bitsandbytes", "torchvision", "torchaudio", "torchao", "triton"),
        "a build that is for another torch, CUDA, card or Python than the ones installed, or is not installed",
    ),
    (("tkinter", "customtkinter"), "a Python without Tk (python3-tk, or a Python of python.org)"),
    (("cv2",), "a library of the system that is missing (libGL), or several packages of OpenCV over each other"),
)


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
    told = doing(" ".join(called), last.function)
    imports = (
        [] if told else [one for one in failure.frames if _IMPORT.match(one.code) or _IMPORTING.search(one.file)]
    )
    if imports:
        return _importing(known, imports)
    at, told = last, told or working(_package(last))
    if told is None:  # what the frames around it are at
        around = ((one, doing(" ".join(_CALLED.findall(one.code)), one.function)) for one in reversed(shown))
        at, told = next(((one, said) for one, said in around if said is not None), (last, None))
    if told is not None:
        phase, often = told
        place = place_of(at)
        return replace(
            known,
            cause="The log ends amid a traceback, before it says what went wrong. "
            f"The program was {phase} at {place}; what fails there most often: {often}.",
        )
    named = [one for one in called if one not in ("super(", "str(", "len(", "list(", "int(")] or called
    call = named[0].partition("(")[0].lstrip(".") if named else ""
    if not call or call == "main":
        shown_before = _shown_before(known, before) or _script(known, shown)
        if shown_before is not None or not call:
            return shown_before
    place = place_of(calling)
    return replace(
        known,
        cause="The log ends amid a traceback, before it says what went wrong. "
        f"The last call that it shows is {call}, at {place}.",
    )


def _shown_before(known: Known, before: Sequence[str]) -> Known | None:
    """What the program said that it was at, as the traceback began."""
    said = [line.strip() for line in before if line.strip()]
    found = (told for line in reversed(said) for begun, told in _SAID_BEFORE if begun.search(line))
    if (told := next(found, None)) is None:
        return None
    phase, often = told
    return replace(
        known,
        cause="The log ends amid a traceback, before it says what went wrong. By the lines before it the program was "
        f"{phase}; what fails there most often: {often}.",
    )


def _script(known: Known, shown: Sequence[Frame]) -> Known | None:
    """What the script is for of which no more is shown than that it was started."""
    names = (PureWindowsPath(frame.file).name for frame in shown)
    begun = next(((one, name) for name in names for one in _SCRIPTS if one[0].search(name)), None)
    if begun is None:
        return None
    (_, phase, often), name = begun
    return replace(
        known,
        cause="The log ends amid a traceback, before it says what went wrong. The program was "
        f"{phase} at {name}; what fails there most often: {often}.",
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
    often = next((told for package, told in _IMPORTED if what.partition(".")[0] in package), "")
    tried = f'Look at the end of the output; python -c "import {what}" in the same environment shows the error, too.'
    if often:
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
