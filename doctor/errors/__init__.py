"""A mistake of the user's as an error, the exit codes, and how text is made safe to show."""

from __future__ import annotations

import re
from collections.abc import Sequence

USER_MISTAKE, OUR_BUG, INTERRUPTED = 2, 4, 130


class UserError(Exception):
    """Something the user can put right: one line for what is wrong, one for what to type."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def not_cached(repo: str, cached: Sequence[str], otherwise: str) -> UserError:
    """That `repo` is in none of the caches, which hold `cached`. A name that is near to one is likely a slip."""
    from difflib import get_close_matches

    near = get_close_matches(repo, cached, 1, 0.5)
    return UserError(f"{repo} is in no hub cache of this machine.", f"Did you mean {near[0]}?" if near else otherwise)


def printable(text: str) -> str:
    """`text` without the control characters of file names, which a terminal would obey."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)


def redacted(text: str, home: str) -> str:
    """`text` without the home folder and without anything that looks like a hub token."""
    if len(home) > 1:
        text = text.replace(home, "~")
    return re.sub(r"\bhf_[A-Za-z0-9]{10,}", "hf_***", text)
