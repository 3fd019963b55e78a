"""Width and height of a picture from the first bytes of its file. Nothing is decoded."""

from __future__ import annotations

from .world import World

_FIRST = 64
_MOST_SEGMENTS = 200
# Start-of-frame markers of JPEG: all of C0..CF but the tables C4, C8 and CC.
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


def dimensions(world: World, path: str) -> tuple[int, int] | None:
    """(width, height) of a PNG, JPEG or WebP file by its content, None when its header is none of these."""
    start = world.read(path, 0, _FIRST)
    if not isinstance(start, bytes):
        return None
    if start.startswith(b"\x89PNG\r\n\x1a\n") and start[12:16] == b"IHDR":
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
