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

_KEY = 5  # letters by which templates are found
_ESCAPED = (("\\", r"\\"), ('"', r"\""), ("\n", r"\n"), ("\t", r"\t"))


class Catalogue:
    """The translations of some files, read when they are first asked for; of two of a text that of the first file."""

    def __init__(self, files: Iterable[Path]) -> None:
        self.files = tuple(files)

    @cached_property
    def _entries(self) -> dict[bytes, bytes]:
        """What follows each English text; what is marked as fuzzy is left out."""
        found: dict[bytes, bytes] = {}
        for file in reversed(self.files):
            with suppress(OSError):
                found |= entries(file.read_bytes())
        return found

    @cached_property
    def _by_key(self) -> dict[bytes, list[bytes]]:
        """The texts with places by what a text that is made of one holds, too: some letters of its beginning, else of
        its end, else a word between its places."""
        found: dict[bytes, list[bytes]] = {}
        for english in self._entries:
            at = english.find(b"{")
            if at < 0:
                continue
            key = english[:_KEY] if at >= _KEY else english[-_KEY:]
            if at < _KEY and key.count(b"}"):
                after = english.partition(b"}")[2].partition(b"{")[0].split(b" ")[1:-1]
                before = english.rpartition(b"{")[0].rpartition(b"}")[2].split(b" ")[1:-1]
                key = max((*after, *before), key=len, default=b"")
            if key in found:
                found[key].append(english)
            else:
                found[key] = [english]
        return found

    def exact(self, text: str) -> str | None:
        """The translation of a text or template; None where it is left open or marked as fuzzy."""
        after = self._entries.get(quoted(text).encode(errors="replace")) if text else None
        return (after and translation(after)) or None

    def made_of(self, text: str) -> Iterator[tuple[Template, str, dict[str, str]]]:
        """Templates that a text may be made of, their translations, and what was filled in; the longest first."""
        written = quoted(text).encode(errors="replace")
        near = [
            template(plain(one))
            for key in {b"", written[:_KEY], written[-_KEY:], *written.split(b" ")}
            for one in self._by_key.get(key, ())
            if written.startswith(one[: one.find(b"{")]) and written.endswith(one[one.rfind(b"}") + 1 :])
        ]
        for one in sorted(near, key=lambda one: -one.plain):
            if (values := one.values(text)) is not None:
                yield one, self.exact(one.text) or "", values


def entries(data: bytes, *, fuzzy: bool = False) -> dict[bytes, bytes]:
    """English -> what follows it from its translation on, of each entry of a .po file, as between its quotes; also of
    those that are marked as fuzzy, where they are asked for."""
    if data.find(b"\r") >= 0:
        data = data.replace(b"\r\n", b"\n")
    header, _, rest = data.partition(b"\n\n")
    data = b"\n" + (rest if header.find(b'msgid ""\n') >= 0 else data)
    if data.find(b'"\n"') >= 0:  # an editor breaks long texts into several lines
        data = data.replace(b'"\n"', b"")
    if not fuzzy and data.find(b"#, fuzzy") >= 0:
        blocks = data.split(b"\n\n")
        data = b"\n\n".join(one for one in blocks if not one.count(b"#, fuzzy"))
    found: dict[bytes, bytes] = {}
    _, *each = data.split(b'\nmsgid "')
    for entry in each:
        english, _, after = entry.partition(b'"\nmsgstr "')
        found[english] = after
    return found


def translation(after: bytes) -> str:
    """The translation that what follows an English text begins with; "" where it was cut off."""
    return plain(after.partition(b'"\n')[0]) if after.find(b'"\n') >= 0 else plain(after[: max(after.rfind(b'"'), 0)])


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
