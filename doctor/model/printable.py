"""Text that is safe to show: names and values hold anything, and logs hold secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping

TOKEN = re.compile(r"\b(hf_|gh[opsu]_|github_pat_|glpat-|xox[abprs]-|sk-|AKIA|AIza)[\w-]{10,}", re.A)
# What no terminal, page, log or parser should get from a name or value: control characters but tab and newline,
# overrides of the writing direction, halves of characters, and what is no character.
UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)


def printable(text: str) -> str:
    """`text` with a replacement character for each that is unprintable."""
    return UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def redacted(text: str, home: str) -> str:
    """`text` without the home folder and without anything that looks like a token of the hub or of a service."""
    return without_tokens(text.replace(home, "~") if len(home) > 1 else text)


def without_tokens(text: str, environment: Mapping[str, str] | None = None) -> str:
    """`text` without what looks like a token, and without the values of variables that are named as one."""
    for name, value in (environment or {}).items():
        if len(value) > 7 and re.search(r"TOKEN|SECRET|PASSWORD|API_?KEY", name, re.I):
            text = text.replace(value, "***")
    return TOKEN.sub(r"\1***", text)
