"""What is known of one failure: the entry that fits it, or what its shape and its line of code tell."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..model.crashes import Failure, Known
from . import table
from .asserted import asserted
from .cut_off import cut_off
from .fault import fault
from .likely import likely
from .lines import Lines
from .messages import CUT_OFF
from .nothing import nothing
from .own import own
from .phrases import phrases
from .specific import closest, fitting
from .versions import by_version
from .widths import by_widths

ABOVE = 8
_FAR_ABOVE = 20  # where a trainer's banner stands between a name that was left unset and why
_JUST_ABOVE = 3
_UNSET = re.compile(r"referenced before assignment|not associated with a value|'NoneType' object")


def known_of(failure: Failure, installed: Mapping[str, str], lines: Lines) -> Known | None:
    chain = failure.chain[:1] if tries_another(failure) else failure.chain
    told = [known for part in chain if (known := closer(closest(part), part, installed, lines)) is not None]
    if len(told) > 1 and _UNSET.search(failure.message):  # a handler lacked it, as the first came too early
        told = told[1:]
    return next((known for known in told if not known.vague), told[0] if told else None)


def closer(known: Known | None, failure: Failure, installed: Mapping[str, str], lines: Lines) -> Known | None:
    """Where no more is known than a failure's shape: which versions have the name that it is about."""
    if not (known is None or known.vague or table.is_general(known)):
        return known
    before = lines.between(failure.begin - _JUST_ABOVE - 1, failure.begin)
    told = (
        by_version(failure, installed)
        or likely(failure)
        or by_widths(failure)
        or own(failure)
        or cut_off(failure, before)
        or asserted(failure)
    )
    return told or fault(failure) or nothing(failure) or known


def tries_another(failure: Failure) -> bool:
    """Whether it is an import without its end, tried because another one failed, which then ended nothing."""
    code = next((frame.code for frame in reversed(failure.frames) if frame.code), "")
    came = failure.cause is not None and failure.cause.name in ("ImportError", "ModuleNotFoundError")
    return came and failure.name == CUT_OFF and code.startswith(("from ", "import "))


def is_messenger(failure: Failure) -> bool:
    """Whether it is known as one that only comes after another."""
    if not any(known.messenger for known in fitting(failure)):
        return False
    known = known_of(failure, {}, Lines(()))
    return known is not None and known.messenger


def said_above(lines: Lines, failure: Failure) -> tuple[Failure, Known] | None:
    """What the lines right before a failure say, and what they are known for."""
    first = failure.begin - 1 - (_FAR_ABOVE if failure.name == UnboundLocalError.__name__ else ABOVE)
    rest, count = lines.after(first), len(lines.between(first, failure.begin))
    found = phrases(Lines(rest[:count], rest.numbers[:count]), table.known)
    return next((one for one in found if not one[1].vague), found[0] if found else None)
