"""The six things that ever happen to the world, each announced in the journal first, and how each is taken back.

    edit     the bytes of an existing file are replaced
    move     something is renamed
    part     something new is built under a temporary name; `kept`: what is finished of it outlives a failure
    place    it is renamed to where it belongs
    folder   an empty folder is made
    scratch  a folder of our own, gone at the end; `salvage`: what of it outlives a failure

A step is made of these, so a rollback after an error, after a kill and an undo are one function: `revert`.
"""

from __future__ import annotations

from collections.abc import Callable

from .build import revert_folder, revert_move, revert_part, revert_place, revert_scratch
from .edit import revert_edit
from .journal import Journal, Record

_REVERTS: dict[str, Callable[[Journal, Record], str | None]] = {
    "edit": revert_edit,
    "move": revert_move,
    "part": revert_part,
    "place": revert_place,
    "folder": revert_folder,
    "scratch": revert_scratch,
}


def revert(journal: Journal, record: Record) -> str | None:
    """Take one action back, from whatever point it had reached. Idempotent until its `reverted` record is written.

    Returns why not, in words, where something would be lost; that is then left as it is.
    """
    return _REVERTS[record["do"]](journal, record)
