"""Which expression of the code was None, where a failure says only that one was."""

from __future__ import annotations

import re
from pathlib import PureWindowsPath

from ..model.crashes import Failure, Known

_WORDS = "'NoneType' object "
# A name, what it holds and what it gives: self.model, parts[0].text, load(x).
_EXPRESSION = r"(?<![\w.\])])[A-Za-z_]\w*(?:\.\w+|\[[^\[\]]*\]|\([^()]*\))*?"
_ATTRIBUTE = re.compile(r"has no attribute '(\w+)'")


def nothing(failure: Failure) -> Known | None:
    """What is told of it, where the line of code names but one that it can have been."""
    if _WORDS not in failure.message or not failure.frames:
        return None
    frame = failure.frames[-1]
    if (asked := _ATTRIBUTE.search(failure.message)) is not None:
        follows = rf"\.{asked[1]}\b"
    elif "is not subscriptable" in failure.message:
        follows = r"\["
    else:
        return None
    found = {one[0] for one in re.finditer(rf"{_EXPRESSION}(?={follows})", frame.code)} - {"self"}
    if len(found) != 1:
        return None
    what = found.pop()
    place = f"{PureWindowsPath(frame.file).name}:{frame.line}"
    return Known(
        cause=(
            f"{what} is nothing (None) at {place}, in {frame.function}: a part of the model, a setting or a library "
            "that was not named, not loaded, or could not be made; or the program released it before."
        ),
        do=(
            f"Look which setting or file {what} comes from; what could not be loaded or found is most often said in "
            "the warnings above. Where all is named, update the trainer, or take its release before."
        ),
        error=failure.name,
        vague=True,
        source="https://docs.python.org/3/library/constants.html#None",
    )
