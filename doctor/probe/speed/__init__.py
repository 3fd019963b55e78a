"""How fast files can be read from where they lie and not from memory: real files, read-only, within a deadline."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from threading import Thread

from ...model import Unknown
from .readers import Hole, NoWay, Read, buffered, direct, not_in_memory

SPEED_DEADLINE = 0.6
HANGS = 5.0  # a single read that takes longer is a dead mount, as far as one can tell
BLOCK = 4096
SMALLEST, SHORT, LONG = 64 << 10, 256 << 10, 4 << 20
TURNS = 24
ENOUGH, FAST = 4, 400e6  # so many long reads at this pace (bytes/s) leave no doubt: nobody would move the model
# Where O_DIRECT passes by the page cache, whatever is in it. Not on btrfs (Linux 6.18 leaves the pages there), not on
# what may stand on one (an overlay), not on ZFS, which has a cache of its own; nor with these options.
DIRECT = ("ext2", "ext3", "ext4", "xfs", "vfat", "exfat", "nfs", "cifs", "smb3", "fuse")
NOT_WITH = ("compress", "data=journal")

Opener = Callable[[str, memoryview], AbstractContextManager[Read]]


class Samples:
    """Seconds of 4 KiB reads, and bytes/s of long ones. `how` names the way that kept memory out of it."""

    def __init__(self) -> None:
        self.how = ""
        self.holes = 0
        self.latencies: list[float] = []
        self.streams: list[float] = []


def measure(files: Sequence[str], filesystem: str = "", options: str = "") -> Samples | Unknown:
    """Read parts of the largest of `files` within SPEED_DEADLINE, in a thread that is left behind if it hangs."""
    answers: list[Samples | Unknown] = []

    def work() -> None:
        try:
            answers.append(_measure(files, filesystem, options))
        except (OSError, ValueError) as error:
            answers.append(Unknown(f"the files cannot be read ({getattr(error, 'strerror', None) or error})"))

    thread = Thread(target=work, daemon=True, name="speed")
    thread.start()
    thread.join(HANGS + SPEED_DEADLINE)
    if not answers:
        return Unknown(f"a read below {os.path.dirname(files[0])} did not come back within {HANGS:.0f} s")
    return answers[0]


def _measure(files: Sequence[str], filesystem: str, options: str) -> Samples | Unknown:
    import mmap

    sizes = sorted(((os.stat(f).st_size, f) for f in files), reverse=True)[:8]
    if sizes[0][0] < BLOCK:
        return Unknown("the files are too small to measure")
    ways: list[tuple[str, Opener]] = [("of what was not in memory", not_in_memory)]
    if filesystem in ("tmpfs", "ramfs"):
        ways = [("of files in memory", buffered)]
    elif sys.platform == "win32" or (
        filesystem.startswith(DIRECT) and not any(option in options for option in NOT_WITH)
    ):
        ways.insert(0, ("past the page cache", direct))
    buffer = memoryview(mmap.mmap(-1, LONG))  # page-aligned, as direct reads want it
    for how, opener in ways:
        try:
            samples = _sample(sizes, opener, buffer)
        except NoWay:
            continue
        if samples.streams:
            samples.how = how
            return samples
        if sizes[0][0] < SMALLEST:
            return Unknown("the files are too small to measure")
        if samples.holes:
            return Unknown("the files consist of holes, of which nothing is stored")
        return Unknown("the files are all in memory; the next load comes from there, and the disk was not measured")
    return Unknown("what lies in memory cannot be told from what is read, so the disk was not measured")


def _sample(sizes: Sequence[tuple[int, str]], opener: Opener, buffer: memoryview) -> Samples:
    """Small and long reads in turn. A slow place gets short ones, so that none takes longer than it must."""
    found = Samples()
    tried: list[tuple[int, float]] = []
    large = [(size, file) for size, file in sizes if size >= LONG] or sizes[:1]
    deadline = time.perf_counter() + SPEED_DEADLINE
    length = SHORT
    for turn in range(TURNS):
        size, file = sizes[turn % len(sizes)]
        taken = _try(found, opener, file, buffer, _spread(turn, size, BLOCK), BLOCK) if size >= BLOCK else None
        found.latencies += [taken] if taken is not None else []
        if turn % 3 == 0:
            size, file = large[turn // 3 % len(large)]
            wanted = min(length, size // BLOCK * BLOCK)
            # elsewhere than the small reads, which may bring their surroundings along
            offset = _spread(turn + TURNS, size, wanted)
            taken = _try(found, opener, file, buffer, offset, wanted) if wanted >= SMALLEST else None
            if taken is not None:
                tried.append((wanted, wanted / max(taken, 1e-9)))
                length = LONG if taken < 0.05 else length
        clear = [pace for wanted, pace in tried if wanted == LONG]
        if time.perf_counter() > deadline or (len(clear) >= ENOUGH and min(clear) >= FAST):
            break
    enough = min(1 << 20, max((wanted for wanted, _ in tried), default=0))  # a short read measures the way there
    found.streams = [pace for wanted, pace in tried if wanted >= enough]
    return found


def _try(found: Samples, opener: Opener, file: str, buffer: memoryview, offset: int, length: int) -> float | None:
    """One timed read; behind the last data of a sparse file, one that is nearer to its beginning."""
    with opener(file, buffer) as read:
        for place in (offset, offset // 3, offset // 9):
            try:
                return read(place // BLOCK * BLOCK, length)
            except Hole:
                continue
    found.holes += 1
    return None


def _spread(turn: int, size: int, length: int) -> int:
    """A whole block to begin at: golden-ratio steps repeat no range, without a random generator."""
    return min(int(size * ((turn + 1) * 0.6180339887 % 1)), max(0, size - length)) // BLOCK * BLOCK
