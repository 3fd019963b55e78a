"""The bytes of a log to its text, whatever its encoding; of a long log those pieces that can tell of its end."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

START = "Traceback (most recent call last)"
# Stands in the text alone in a line, before the number of the lines that come before the next one.
GAP = "\x1c"
HEAD = 1 << 18
TAIL = 1 << 20
BEFORE, AROUND = 1 << 11, 1 << 16
MOST_AROUND = 16
_MARKS = ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"), (b"\xef\xbb\xbf", "utf-8"))
_SAMPLE = 1 << 14
# A code page, and the first bytes of those characters that most texts in it consist of.
_PAGES = (("gb18030", 0xB0, 0xD7), ("big5", 0xA4, 0xC6), ("cp932", 0x88, 0x97))
# Lines in which bytes are left that are no UTF-8.
_NO_UTF_8 = re.compile(r"^(?:[^\n]*[\udc80-\udcff][^\n]*(?:\n|\Z))+", re.M)
_FOREIGN = re.compile(r"[^\x00-\x7f]")
_KANA = range(0x3041, 0x30FF)


class Piece(NamedTuple):
    """Some bytes of a log, and how many lines come before them."""

    before: int
    data: bytes


def excerpt(blocks: Iterable[bytes]) -> list[Piece]:
    """The head and the tail of a log, and between them what surrounds its last tracebacks; a short log is kept whole.

    Each block but the last holds a multiple of four bytes, so that no character of UTF-16 is cut.
    """
    kept: list[Piece] = []
    tail, before, word = bytearray(), 0, b""
    for block in blocks:
        tail += block
        word = word or START.encode(_encoding(block))
        if len(tail) > 2 * TAIL:
            before = _shed(tail, before, word, kept)
    if kept:
        before = _shed(tail, before, word, kept)
    return [*kept, Piece(before, bytes(tail))]


def _shed(tail: bytearray, before: int, word: bytes, kept: list[Piece]) -> int:
    """Shorten the tail to what is kept of it, and keep of the rest the head and what surrounds tracebacks.

    Returns how many lines come before the tail.
    """
    places = [] if kept else [(0, _whole(tail, HEAD, word))]
    end = _whole(tail, max(0, len(tail) - TAIL) // 4 * 4, word)
    at = end
    for _ in range(MOST_AROUND):
        at = tail.rfind(word, 0, at)
        if at < 0:
            break
        places.append((_begin(at), min(_begin(at) + AROUND, end)))
    done = 0
    for begin, stop in sorted(places):
        if stop > done:
            begin = max(begin, done)
            before += tail.count(b"\n", done, begin)
            kept.append(Piece(before, bytes(tail[begin:stop])))
            before += tail.count(b"\n", begin, stop)
            done = stop
    before += tail.count(b"\n", done, end)
    del tail[:end], kept[1:-MOST_AROUND]
    return before


def _whole(data: bytearray, end: int, word: bytes) -> int:
    """`end`, or the beginning of a traceback that may go on after it."""
    at = data.find(word, max(0, end - AROUND), end)
    return end if at < 0 else _begin(at)


def _begin(at: int) -> int:
    return max(0, at - BEFORE) // 4 * 4


def decode(log: bytes | Sequence[Piece]) -> str:
    """PowerShell writes UTF-16, most others UTF-8, and Windows' own programs the code page of the machine."""
    pieces = [Piece(0, log)] if isinstance(log, bytes) else log
    encoding = _encoding(pieces[0].data)
    return "".join(f"\n{GAP}{piece.before}\n" * (piece.before > 0) + _text(piece.data, encoding) for piece in pieces)


def _encoding(start: bytes) -> str:
    """By the mark at the beginning or, in UTF-16 without one, by the zeros beside each letter."""
    for mark, encoding in _MARKS:
        if start.startswith(mark):
            return encoding
    sample = start[:4096]
    for encoding, letters, zeros in (("utf-16-le", 0, 1), ("utf-16-be", 1, 0)):
        if sample[zeros::2].count(0) > max(len(sample) // 8, 6 * sample[letters::2].count(0)):
            return encoding
    return "utf-8"


def _text(data: bytes, encoding: str) -> str:
    if encoding != "utf-8":
        return data.decode(encoding, "replace").removeprefix("\ufeff")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return _of_code_page(data.removeprefix(b"\xef\xbb\xbf"))


def _of_code_page(data: bytes) -> str:
    """A log can hold lines of several programs, each in an encoding of its own.

    Those that are no UTF-8 are taken to be in the code page in which they consist of the usual characters.
    """
    text = data.decode("utf-8", "surrogateescape")
    runs = (run[0].encode("utf-8", "surrogateescape") for run in _NO_UTF_8.finditer(text))
    sample = b""
    while len(sample) <= _SAMPLE and (run := next(runs, b"")):
        sample += run[: 2 * _SAMPLE].rpartition(b"\n")[0] or run
    share, page = max((_usual(sample, *page), page[0]) for page in _PAGES)
    page = page if share > 0.6 else "cp1252"
    return _NO_UTF_8.sub(lambda run: run[0].encode("utf-8", "surrogateescape").decode(page, "replace"), text)


def _usual(sample: bytes, page: str, first: int, last: int) -> float:
    """The share of usual characters among all that are not ASCII; 0 where the bytes are no text in this code page."""
    try:
        foreign = _FOREIGN.findall(sample.decode(page))
    except UnicodeDecodeError:
        return 0.0
    usual = sum(ord(sign) in _KANA or _in_level(sign.encode(page), first, last) for sign in foreign)
    return usual / max(1, len(foreign))


def _in_level(sign: bytes, first: int, last: int) -> bool:
    return len(sign) == 2 and first <= sign[0] <= last
