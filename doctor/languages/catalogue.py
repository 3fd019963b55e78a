"""A catalogue: .po files that translators edit, read as they are. Half a file is as good as what it holds.

A command says a few dozen of its thousands of texts, so only these are made of what is written there. Reading is done
by methods of str: regular expressions took as long as a tenth of a check.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from .template import Template, template

_ESCAPED = (("\\", r"\\"), ('"', r"\""), ("\n", r"\n"), ("\t", r"\t"))


class Catalogue:
    """The translations of some files, read when they are first asked for; of two of a text that of the first file."""

    def __init__(self, files: Iterable[Path]) -> None:
        self.files = tuple(files)

    @cached_property
    def _entries(self) -> dict[bytes, bytes]:
        """English -> translation, both as they stand between quotes, without what is open or marked as fuzzy."""
        found: dict[bytes, bytes] = {}
        for file in reversed(self.files):
            with suppress(OSError):
                read = entries(file.read_bytes())
                found.update((english, other) for english, other, fuzzy in read if other and not fuzzy)
        return found

    @cached_property
    def _by_word(self) -> dict[str, list[bytes]]:
        """The texts with places by a word of theirs, which a text that is made of one holds, too: the last one, else
        the first, else the longest."""
        found: dict[str, list[bytes]] = {}
        for english in self._entries:
            if english.count(b"{"):  # `in` takes ten times as long for bytes
                words = english.decode(errors="replace").split(" ")
                word = words[0] if "}" in words[-1] else words[-1]
                if "{" in word:
                    word = max((one for one in words if "{" not in one and "}" not in one), key=len, default="")
                found.setdefault(word, []).append(english)
        return found

    def exact(self, text: str) -> str | None:
        """The translation of a text or template; None where it is left open or marked as fuzzy."""
        other = self._entries.get(quoted(text).encode(errors="replace"))
        return plain(other) if other else None

    def made_of(self, text: str) -> Iterator[tuple[Template, str, dict[str, str]]]:
        """Templates that a text may be made of, their translations, and what was filled in; the longest first."""
        words = {"", *quoted(text).split(" ")}
        near = [template(plain(one)) for word in words for one in self._by_word.get(word, ())]
        for one in sorted(near, key=lambda one: -one.plain):
            if (values := one.values(text)) is not None:
                yield one, self.exact(one.text) or "", values


def entries(data: bytes) -> Iterator[tuple[bytes, bytes, bool]]:
    """(English, translation, whether it is marked as fuzzy) of each entry of a .po file, all as between its
    quotes.
    """
    header, _, rest = data.partition(b"\n\n")
    data = rest if header.find(b'msgid ""\n') >= 0 else data
    if data.find(b'"\n"') >= 0:  # an editor of .po files breaks long texts into several lines
        data = data.replace(b'"\n"', b"")
    fuzzy = data.count(b"#, fuzzy") > 0
    before, *others = (b"\n" + data).split(b'\nmsgid "')
    for entry in others:
        english, middle, rest = entry.partition(b'"\nmsgstr "')
        if english and middle:  # no English text is the header's
            other, end, _ = rest.partition(b'"\n')
            other = other if end else rest[: rest.rfind(b'"')]
            yield english, other, fuzzy and before.find(b"\n#, fuzzy", before.rfind(b"\n\n")) >= 0
        before = entry


def quoted(text: str) -> str:
    """A text as a .po file writes it between quotes."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return text
    for one, escaped in _ESCAPED:
        text = text.replace(one, escaped)
    return text


def plain(written: bytes) -> str:
    """The text that a .po file writes so between quotes."""
    text = written.decode(errors="replace")
    if "\\" not in text:
        return text
    first, *others = text.split(r"\\")
    for one, escaped in _ESCAPED[1:]:
        first, *others = (part.replace(escaped, one) for part in (first, *others))
    return "\\".join((first, *others))
