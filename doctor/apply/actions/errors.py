"""What can go wrong while the world is being changed, in words for the person who asked for it."""

from __future__ import annotations

from ...errors import UserError

ANOTHER_STATE = "The environment variable ZDOCTOR_STATE names another state folder."


class ApplyError(UserError):
    """The plan was not carried out; everything is as it was before, unless the message says otherwise."""


class StalePlan(ApplyError):
    """Something the plan was made from has changed since; nothing was touched."""


class UndoRefused(ApplyError):
    """Undoing would lose work done since; nothing was touched."""


class Busy(ApplyError):
    """Another zdoctor is writing at this moment."""


def reason(error: BaseException) -> str:
    """The error as one clause: the file it names and what the system said."""
    if isinstance(error, OSError) and error.strerror:
        name = error.filename2 or error.filename
        return f"{name}: {error.strerror}" if isinstance(name, str) else error.strerror
    return str(error) or type(error).__name__


def clause(error: BaseException) -> str:
    """The reason without the period it may end with, to be put into a sentence."""
    return reason(error).removesuffix(".")
