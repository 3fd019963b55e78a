"""TrainError is the one error of the runner that is meant for a person."""

from __future__ import annotations


class TrainError(Exception):
    """Training cannot start or go on for a reason that the user can mend.

    The message says what, where and what to do.
    """


def first_line(error: BaseException) -> str:
    """Returns the first line of what an error says, or its type."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
