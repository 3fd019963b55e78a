"""A catalogue: the .po file that translators edit, read as it is. Half a file is as good as what it holds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from .template import Template, template

_ENTRY = re.compile(r'\n((?:#[,|].*\n)*)msgid "(.*(?:\n".*)*)"\nmsgstr "(.*(?:\n".*)*)"(?=\n)')
_ESCAPED = {r"\n": "\n", r"\t": "\t", r"\"": '"', r"\\": "\\", '"\n"': ""}
_ESCAPES = re.compile(r'\\[nt"\\]|"\n"')


class Catalogue:
    """The translations of one file, read when they are first asked for."""

    def __init__(self, file: Path) -> None:
        self.file = file

    @cached_property
    def texts(self) -> dict[str, str]:
        """English -> translation, without those that are left open or marked as fuzzy."""
        return {one: other for one, other, fuzzy in entries(self.file) if other and not fuzzy}

    @cached_property
    def _by_ends(self) -> dict[tuple[str, str], list[str]]:
        """The texts with places by the words that they begin and end with, "" where a place stands there."""
        found: dict[tuple[str, str], list[str]] = {}
        for text in self.texts:
            if "{" in text:
                first, last = text.partition("{")[0], text.rpartition("}")[2]
                ends = first.partition(" ")[0] if " " in first else "", last.rpartition(" ")[2] if " " in last else ""
                found.setdefault(ends, []).append(text)
        return found

    def exact(self, text: str) -> str | None:
        return self.texts.get(text)

    def made_of(self, text: str) -> Iterator[tuple[Template, str, dict[str, str]]]:
        """Templates that a text may be made of, their translations, and what was filled in; the longest first."""
        first, last = text.partition(" ")[0], text.rpartition(" ")[2]
        ends = ((first, last), (first, ""), ("", last), ("", ""))
        near = [template(one) for pair in ends for one in self._by_ends.get(pair, ())]
        for one in sorted(near, key=lambda one: -one.plain):
            if (values := one.values(text)) is not None:
                yield one, self.texts[one.text], values


def entries(file: Path) -> Iterator[tuple[str, str, bool]]:
    """(English, translation, whether it is marked as fuzzy) of each entry of a .po file but its header."""
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for flags, english, other in _ENTRY.findall(f"\n{text}\n"):
        if english:  # which the header's is not
            yield _plain(english), _plain(other), "fuzzy" in flags


def _plain(quoted: str) -> str:
    return _ESCAPES.sub(lambda one: _ESCAPED[one[0]], quoted) if "\\" in quoted or "\n" in quoted else quoted
