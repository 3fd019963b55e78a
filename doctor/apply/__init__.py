"""The only writer. A plan is applied whole or not at all, survives a kill, and is undone to the last byte.

Of an extraction that was cut short the finished files stay, in a part folder beside its target.
"""

from .actions.errors import ApplyError, Busy, StalePlan, UndoRefused
from .actions.journal import unfinished
from .steps import describe, diff
from .transaction import Applied, Binding, apply, bind
from .undo import history, recover, undo

__all__ = [
    "Applied",
    "ApplyError",
    "Binding",
    "Busy",
    "StalePlan",
    "UndoRefused",
    "apply",
    "bind",
    "describe",
    "diff",
    "history",
    "recover",
    "undo",
    "unfinished",
]
