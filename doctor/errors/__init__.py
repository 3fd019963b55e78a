"""A mistake of the user's as an error, the exit codes, and how text is made safe to show."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

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


_TOKEN = re.compile(r"\b(hf_|gh[opsu]_|sk-)[\w-]{10,}", re.A)


def redacted(text: str, home: str) -> str:
    """`text` without the home folder and without anything that looks like a token of the hub or of a service."""
    return without_tokens(text.replace(home, "~") if len(home) > 1 else text)


def without_tokens(text: str, environment: Mapping[str, str] | None = None) -> str:
    """`text` without what looks like a token, and without the values of variables that are named as one."""
    for name, value in (environment or {}).items():
        if len(value) > 7 and re.search(r"TOKEN|SECRET|PASSWORD|API_?KEY", name, re.I):
            text = text.replace(value, "***")
    return _TOKEN.sub(r"\1***", text)
