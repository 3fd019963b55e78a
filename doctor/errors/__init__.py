"""A mistake of the user's as an error, and the exit codes."""

from __future__ import annotations

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
