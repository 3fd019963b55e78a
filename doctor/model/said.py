"""What a text is in the language of whoever reads it. English is what is written in the source, and costs nothing.

Pure rooms speak English. Where text reaches a person (a screen, a page, standard error) it goes through `said`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

_translated: Callable[[str], str] | None = None
_language = "en"


class Filled(str):
    """A text that knows the template and the arguments that it was made of."""

    template: str
    arguments: Mapping[str, Any]


class AsIs(str):
    """A name, somebody else's words, or what is said already: `said` leaves it alone."""


def filled(template: str, arguments: Mapping[str, Any]) -> str:
    """The template with its arguments filled in, in English; `said` of it translates the template."""
    made = Filled(template.format_map(arguments))
    made.template, made.arguments = template, arguments
    return made


class Joined(str):
    """A text that was put together of others, each of which `said` says by itself; `by` and `last` stand between."""

    parts: tuple[str, ...]
    by: str
    last: str


def joined(by: str, parts: Iterable[str], last: str = "") -> str:
    """The texts that are not empty, with `by` between them, or `last` before the last one."""
    there = tuple(filter(None, parts))
    if len(there) < 2:
        return there[0] if there else ""
    made = Joined(f"{by.join(there[:-1])}{last or by}{there[-1]}")
    made.parts, made.by, made.last = there, by, last or by
    return made


def listed(names: Iterable[str]) -> str:
    """The names as a list in a sentence: "a, b and c"."""
    return joined(", ", names, " and ")


def said(text: str) -> str:
    """The text in the language of this process; as it is where that has no translation of it."""
    return text if _translated is None else _translated(text)


def speak(translated: Callable[[str], str] | None, language: str = "en") -> None:
    """From now on `said` is `translated`, or English with None."""
    global _translated, _language
    _translated, _language = translated, language


def language() -> str:
    """The tag of the language (RFC 5646: zh-CN)."""
    return _language
