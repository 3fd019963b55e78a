"""Width and height of a picture from the first bytes of its file, and what ails it. Nothing is decoded."""

from __future__ import annotations

from ..model import Unknown
from .world import World

IMAGES = (".jpg", ".jpeg", ".png", ".webp")
_FIRST = 64
_MOST_SEGMENTS = 200
_MOST_CHUNKS = 4096
_LARGEST = 32 << 20
_PNG_HEADER = 33
_CHECKSUMS = 20  # at the end of a PNG's data: Pillow does without
_PNG = b"\x89PNG\r\n\x1a\n"
_MARKUP = (b"<!doctype", b"<html", b"<head", b"<?xml", b"<svg")
# Start-of-frame markers of JPEG: all of C0..CF but the tables C4, C8 and CC.
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


def beginning(world: World, path: str) -> bytes | Unknown:
    """What the two questions below look at first; read once, for every look at a network file takes its time."""
    return world.read(path, 0, _FIRST)


def dimensions(world: World, path: str, start: bytes) -> tuple[int, int] | None:
    """(width, height) of a PNG, JPEG or WebP file by its content, None when its header is none of these."""
    if start.startswith(_PNG) and start[12:16] == b"IHDR":
        return _positive(int.from_bytes(start[16:20], "big"), int.from_bytes(start[20:24], "big"))
    if start[:4] == b"RIFF" and start[8:12] == b"WEBP":
        return _webp(start)
    if start.startswith(b"\xff\xd8"):
        return _jpeg(world, path)
    return None


def _webp(start: bytes) -> tuple[int, int] | None:
    kind = start[12:16]
    if kind == b"VP8 " and start[23:26] == b"\x9d\x01\x2a":
        return _positive(
            int.from_bytes(start[26:28], "little") & 0x3FFF, int.from_bytes(start[28:30], "little") & 0x3FFF
        )
    if kind == b"VP8L" and start[20:21] == b"\x2f":
        bits = int.from_bytes(start[21:25], "little")
        return _positive((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
    if kind == b"VP8X" and len(start) >= 30:
        return _positive(int.from_bytes(start[24:27], "little") + 1, int.from_bytes(start[27:30], "little") + 1)
    return None


def _jpeg(world: World, path: str) -> tuple[int, int] | None:
    """Walk the segments: cameras put tens of kilobytes of thumbnail before the frame header."""
    offset = 2
    for _ in range(_MOST_SEGMENTS):
        head = world.read(path, offset, 16)
        if not isinstance(head, bytes) or len(head) < 9 or head[0] != 0xFF:
            return None
        if head[1] == 0xFF:
            offset += 1
            continue
        if head[1] in _FRAMES:
            return _positive(int.from_bytes(head[7:9], "big"), int.from_bytes(head[5:7], "big"))
        if head[1] in (0xD9, 0xDA):
            return None
        offset += 2 if head[1] == 0x01 or 0xD0 <= head[1] <= 0xD7 else 2 + int.from_bytes(head[2:4], "big")
    return None


def _positive(width: int, height: int) -> tuple[int, int] | None:
    return (width, height) if width > 0 and height > 0 else None


def damage(world: World, path: str, size: int, start: bytes) -> str | None:
    """Why Pillow cannot decode this file of `size` bytes.

    None where it may well do: it knows more formats than these three. Tried with Pillow 13.
    """
    if size == 0 or not start:
        return "is empty"
    if not any(start):
        return "holds nothing but zero bytes"
    text = start.lstrip().lower()
    if text.startswith(b"version https://git-lfs"):
        return "is a Git LFS pointer; the picture itself was not fetched"
    if text.startswith(_MARKUP):
        return "holds a web page or XML, no picture"
    if start[4:8] == b"ftyp" and start[8:12] in (b"heic", b"heix", b"heim", b"heis", b"hevc"):
        return "is a HEIC picture by its content"
    if start[4:8] == b"ftyp" and start[8:12] in (b"isom", b"mp41", b"mp42", b"qt  ", b"M4V "):
        return "is a video by its content"
    if start[:4] == b"RIFF" and start[8:12] == b"WEBP":
        # libwebp opens nothing that is shorter than it says; one byte of padding may be left out
        whole = int.from_bytes(start[4:8], "little") + 8
        return f"is cut off: {size:,} of {whole:,} bytes are there" if size + 1 < whole else None
    early = start.startswith(_PNG) and _png_ends_early(world, path, size)
    early = early or (start.startswith(b"\xff\xd8\xff") and _jpeg_ends_early(world, path, size))
    return "is cut off or damaged: its end is missing" if early else None


def _jpeg_ends_early(world: World, path: str, size: int) -> bool:
    """Whether no end marker follows the header."""
    tail = world.read(path, max(0, size - _FIRST), _FIRST)
    if size > _LARGEST or not isinstance(tail, bytes) or tail.endswith(b"\xff\xd9"):
        return False
    if len(set(tail)) < 2:
        return False  # padded: Pillow may take the padding for what is missing
    # Cameras append things behind the end marker: look for it in the whole file, but for the thumbnail's.
    content = world.read(path, 0, size)
    if not isinstance(content, bytes) or len(content) < size:
        return False
    scan = _first_scan(content)
    return scan is not None and content.find(b"\xff\xd9", scan) < 0


def _first_scan(content: bytes) -> int | None:
    """Where the compressed data of a JPEG begins, its length when the header does not end, None when it is odd."""
    offset = 2
    while offset + 4 <= len(content):
        if content[offset] != 0xFF:
            return None
        marker = content[offset + 1]
        if marker == 0xDA:
            return offset
        offset += 1 if marker == 0xFF else 2 + int.from_bytes(content[offset + 2 : offset + 4], "big")
    return len(content)


def _png_ends_early(world: World, path: str, size: int) -> bool:
    """Whether the last chunk of data is cut."""
    tail = world.read(path, max(0, size - 12), 12)
    if not isinstance(tail, bytes) or tail[4:8] == b"IEND" or len(set(tail)) < 2:
        return False  # whole, or padded: Pillow may take the padding for what is missing
    offset = len(_PNG)
    for _ in range(_MOST_CHUNKS):
        head = world.read(path, offset, 8)
        if not isinstance(head, bytes):
            return False
        if not head[4:8].isalpha() or head[4:8] == b"IEND":
            return offset <= _PNG_HEADER  # behind the data Pillow takes no offence
        offset += 12 + int.from_bytes(head[:4], "big")
        if offset > size + _CHECKSUMS:
            return True
    return False
