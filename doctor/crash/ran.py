"""How far a training came before it failed: by its last bar, or line of a step."""

from __future__ import annotations

import re

from ..model.crashes import Ran
from .lines import Lines
from .messages import PROMPT

_COUNT = r"(?P<done>\d+)/(?P<of>\d+) ?\[\d"
# A bar of all steps is called so, or shows a rate of learning and a loss; one that begins anew in each epoch is
# called an epoch, and tells only that one.
_STEPS = (
    re.compile(rf"(?:(?<![A-Za-z])(?<![A-Za-z] )|INFO +)[Ss]teps: *\d+%[^\[]*?\b{_COUNT}"),
    re.compile(rf"^(?![Ee]poch)(?:[^\[]*\D)?{_COUNT}[^\]]*\blr[:=][^\]]*\bloss[:=]"),
    re.compile(rf"^(?![Ee]poch)(?:[^\[]*\D)?{_COUNT}[^\]]*\blr[:=][^\]]*\w_loss[:=]"),
    re.compile(r"^\W*(?:(?:global|train)[_ ])?[Ss]tep:? *(?P<done>\d+) ?/ ?(?P<of>\d+)\b.*\bloss\b"),
)
_EPOCHS = re.compile(rf"^[Ee]poch: *\d+%[^\[]*?\b{_COUNT}")
# With these a program begins, so that the bars above are of a run before.
_STARTS = re.compile(
    r"accelerate launch|[Rr]unning training|# Running job:|^Running \d+ jobs?\b|Loading settings from"
    r"|num train images"
)

# A line of all these has one of them.
_WORDS = ("teps:", "loss", "poch:", "launch", "training", "Running", "Loading", "images")


def ran(lines: Lines) -> Ran | None:
    """The last steps that the log shows, else the last epochs; None where it shows none for certain."""
    epochs, end = None, len(lines)
    for at in reversed(lines.holding(*_WORDS)):
        if any(PROMPT.match(line) for line in lines[at + 1 : end]):
            break
        line, end = lines[at], at
        for bar in _STEPS:
            if (found := bar.search(line)) is not None:
                return _told("steps", found)
        if epochs is None and (found := _EPOCHS.search(line)) is not None:
            epochs = _told("epochs", found)
        if _STARTS.search(line) or PROMPT.match(line):
            break
    return epochs


def _told(unit: str, found: re.Match[str]) -> Ran | None:
    done, of = int(found["done"]), int(found["of"])
    resumed = 0 < done < of and "<?" in found.string  # a bar without a rate yet
    return Ran(unit, done, of, resumed) if of > 0 and done <= of else None
