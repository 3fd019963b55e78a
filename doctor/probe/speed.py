"""How fast files can be read from where they lie and not from memory: real files, read-only, within a deadline."""

from __future__ import annotations

import errno
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Thread
from typing import Literal

from ..model import Speed, Unknown
from ..model.storage import HOST
from .disks import Device, MountLine, device_of, mount_of
from .windows import PLACEHOLDER, is_placeholder
from .world import Mount

SPEED_DEADLINE = 0.6
HANGS = 5.0  # a single read that takes longer is a dead mount, as far as one can tell
BLOCK = 4096
SMALLEST, SHORT, LONG = 64 << 10, 256 << 10, 4 << 20
TURNS = 24
ENOUGH, FAST = 4, 400e6  # so many long reads at this pace (bytes/s) leave no doubt: nobody would move the model
ONE_DISK = 300e6  # bytes/s that no single hard disk reads
# Where O_DIRECT passes by the page cache, whatever is in it. Not on btrfs (Linux 6.18 leaves the pages there), not on
# what may stand on one (an overlay), not on ZFS, which has a cache of its own; nor with these options.
DIRECT = ("ext2", "ext3", "ext4", "xfs", "vfat", "exfat", "nfs", "cifs", "smb3", "fuse")
NOT_WITH = ("compress", "data=journal")
MEMORY = ("tmpfs", "ramfs", "ramdisk")
NETWORK = re.compile(r"nfs|cifs|smb|afp|webdav|lustre|ceph|afs|gpfs|beegfs|gluster|mapped drive|fuse(\.|$)")
REFUSALS = (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS)

# Seconds to fill a buffer from a place of a file; None where that is a hole or lay in memory. Raises NoWay.
Read = Callable[[str, memoryview, int], float | None]


class NoWay(Exception):
    """This file system, or this system, cannot keep memory out of it in this way."""


def speed_of(
    files: Sequence[str], mount: Callable[[str], Mount | Unknown], lines: Sequence[MountLine]
) -> Speed | Unknown:
    """The speed of files of one folder. `mount` and `lines` are what the system says of its mounts."""
    if not files:
        return Unknown("there is no file to read")
    try:
        real = os.path.realpath(files[0])
    except ValueError as error:  # a name that no file system has
        return Unknown(f"the files cannot be read ({error})")
    on, folder = mount(files[0]), str(Path(files[0]).parent)
    filesystem, device = on.filesystem if isinstance(on, Mount) else "unknown", device_of(real, lines)
    if device is not None and device.image:
        return Unknown("the files lie in an image, which is read through memory")
    line = mount_of(real, lines)
    samples = _in_time(files, filesystem, line.options if line is not None else "")
    if isinstance(samples, Unknown):
        return samples
    how, latencies, streams = samples
    latency = sorted(latencies)[len(latencies) // 2] if latencies else None
    caches = ", caches of the host included" if device is not None and device.virtual else ""
    caches = ", caches of the program behind the mount included" if filesystem.startswith("fuse") else caches
    return Speed(
        path=folder,
        kind=speed_kind(filesystem, latency, max(streams), device),
        filesystem=filesystem,
        latency=latency,
        low=min(streams),
        high=max(streams),
        source=f"measured: {len(latencies)} random 4 KiB and {len(streams)} sequential reads {how}{caches}",
        device=device.name if device is not None else "",
    )


def speed_kind(
    filesystem: str, latency: float | None, fastest: float, device: Device | None = None
) -> Literal["ssd", "hdd", "network", "memory", "slow", "unknown"]:
    """A verdict by measurement first: `queue/rotational` calls virtual flash an HDD, and a tired SSD is none."""
    if NETWORK.match(filesystem) or filesystem.startswith(HOST):
        return "network"
    if filesystem in MEMORY:
        return "memory"
    if latency is None:
        return "unknown"
    waits = latency > 3e-3
    tired = fastest < 100e6 or (waits and fastest < ONE_DISK)
    if device is not None and device.virtual:  # its flag is made up, and nobody can tell what is behind it
        return "slow" if tired else "ssd"
    seeks = device.seeks if device is not None else None
    if seeks and (waits or (latency > 1e-3 and fastest < ONE_DISK)):
        return "hdd"
    if seeks is None and waits and fastest < ONE_DISK:
        return "hdd"
    return "slow" if tired else "ssd"


Samples = tuple[str, list[float], list[float]]  # the way that kept memory out of it, seconds of 4 KiB reads, bytes/s


def _sizes(files: Sequence[str]) -> list[tuple[int, str]] | Unknown:
    """The largest of the files that can be measured, with their sizes."""
    states = {file: os.stat(file) for file in files}
    cloud = next((file for file, state in states.items() if is_placeholder(state)), None)
    if cloud is not None:
        return Unknown(f"{cloud} is {PLACEHOLDER}")
    sizes = sorted(((state.st_size, file) for file, state in states.items()), reverse=True)[:8]
    large_enough = [(size, file) for size, file in sizes if size >= BLOCK]
    return large_enough if sizes[0][0] >= SMALLEST else Unknown("the files are too small to measure")


def _in_time(files: Sequence[str], filesystem: str, options: str) -> Samples | Unknown:
    """Samples taken in a thread, which is left behind if it hangs."""
    answers: list[Samples | Unknown] = []
    thread = Thread(target=lambda: answers.append(_measured(files, filesystem, options)), daemon=True, name="speed")
    thread.start()
    thread.join(HANGS + SPEED_DEADLINE)
    hung = Unknown(f"a read below {os.path.dirname(files[0])} did not come back within {HANGS:.0f} s")
    return answers[0] if answers else hung


def _measured(files: Sequence[str], filesystem: str, options: str) -> Samples | Unknown:
    import mmap

    ways: list[tuple[str, Read]] = [("of what was not in memory", not_in_memory)]
    if filesystem in ("tmpfs", "ramfs"):
        ways = [("of files in memory", buffered)]
    elif sys.platform == "win32" or (filesystem.startswith(DIRECT) and not any(no in options for no in NOT_WITH)):
        ways.insert(0, ("past the page cache", direct))
    try:
        sizes = _sizes(files)
        if isinstance(sizes, Unknown):
            return sizes
        buffer = memoryview(mmap.mmap(-1, LONG))  # page-aligned, as direct reads want it
        for how, read in ways:
            try:
                latencies, streams = _sampled(sizes, read, buffer)
            except NoWay:
                continue
            if streams:
                return how, latencies, streams
            if read is direct:
                return Unknown("the files consist of holes, of which nothing is stored")
            return Unknown(
                "the files are all in memory; the next load comes from there, and the disk was not measured"
            )
    except (OSError, ValueError) as error:
        return Unknown(f"the files cannot be read ({getattr(error, 'strerror', None) or error})")
    return Unknown("what lies in memory cannot be told from what is read, so the disk was not measured")


def _sampled(sizes: Sequence[tuple[int, str]], read: Read, buffer: memoryview) -> tuple[list[float], list[float]]:
    """Small and long reads in turn. A slow place gets short ones, so that none takes longer than it must."""
    latencies: list[float] = []
    tried: list[tuple[int, float]] = []
    large = [(size, file) for size, file in sizes if size >= LONG] or sizes[:1]
    deadline, length = time.perf_counter() + SPEED_DEADLINE, SHORT
    for turn in range(TURNS):
        size, file = sizes[turn % len(sizes)]
        taken = read(file, buffer[:BLOCK], _spread(turn, size, BLOCK))
        latencies += [taken] if taken is not None else []
        if turn % 3 == 0:
            size, file = large[turn // 3 % len(large)]
            wanted = min(length, size // BLOCK * BLOCK)
            # elsewhere than the small reads, which may bring their surroundings along
            taken = read(file, buffer[:wanted], _spread(turn + TURNS, size, wanted))
            if taken is not None:
                tried.append((wanted, wanted / max(taken, 1e-9)))
                length = LONG if taken < 0.05 else length
        clear = [pace for wanted, pace in tried if wanted == LONG]
        if time.perf_counter() > deadline or (len(clear) >= ENOUGH and min(clear) >= FAST):
            break
    enough = min(1 << 20, max((wanted for wanted, _ in tried), default=0))  # a short read measures the way there
    return latencies, [pace for wanted, pace in tried if wanted >= enough]


def _spread(turn: int, size: int, length: int) -> int:
    """A whole block to begin at: golden-ratio steps repeat no range, without a random generator."""
    return min(int(size * ((turn + 1) * 0.6180339887 % 1)), max(0, size - length)) // BLOCK * BLOCK


def direct(file: str, into: memoryview, offset: int) -> float | None:
    """Past the page cache: O_DIRECT, and FILE_FLAG_NO_BUFFERING on Windows. Offsets and lengths are whole blocks."""
    if sys.platform == "win32":
        from .windows import read_unbuffered

        return read_unbuffered(file, into, offset)
    flag = getattr(os, "O_DIRECT", None)
    if flag is None:
        raise NoWay
    try:
        return _read(file, into, offset, os.O_RDONLY | flag)
    except OSError as error:
        if error.errno in REFUSALS:
            raise NoWay from None
        raise


def buffered(file: str, into: memoryview, offset: int) -> float | None:
    """As any program reads: for files that lie in memory anyway."""
    return _read(file, into, offset, os.O_RDONLY)


def not_in_memory(file: str, into: memoryview, offset: int) -> float | None:
    """Only where the page cache holds nothing. What was read is given back, so that all is as before."""
    if sys.platform == "win32":
        raise NoWay
    handle = os.open(file, os.O_RDONLY)
    try:
        before = held(handle, offset, len(into))
        if before is None:
            raise NoWay
        if before:
            return None
        if sys.platform == "darwin":
            import fcntl

            fcntl.fcntl(handle, fcntl.F_NOCACHE, 1)
        if sys.platform == "linux":
            advice = os.POSIX_FADV_RANDOM if len(into) <= BLOCK else os.POSIX_FADV_NORMAL
            os.posix_fadvise(handle, 0, 0, advice)
        taken = _timed(handle, into, offset)
        if sys.platform == "linux":
            # Where the pages do not show up after the read, they would not have shown up before it either (ZFS):
            # then memory may have answered.
            if taken is not None and not held(handle, offset, len(into)):
                raise NoWay
            os.posix_fadvise(handle, offset, len(into), os.POSIX_FADV_DONTNEED)
        return taken
    finally:
        os.close(handle)


def _read(file: str, into: memoryview, offset: int, flags: int) -> float | None:
    handle = os.open(file, flags)
    try:
        return _timed(handle, into, offset)
    finally:
        os.close(handle)


def _timed(handle: int, into: memoryview, offset: int) -> float | None:
    if sys.platform == "win32":  # where `direct` reads in its own way
        raise NoWay
    if _has_hole(handle, offset, len(into)):  # which is read at the speed of memory
        return None
    started = time.perf_counter()
    read = os.preadv(handle, [into], offset)
    taken = time.perf_counter() - started
    return taken if read == len(into) else None


def _has_hole(handle: int, offset: int, length: int) -> bool:
    try:
        return hasattr(os, "SEEK_HOLE") and os.lseek(handle, offset, os.SEEK_HOLE) < offset + length
    except OSError as error:  # ENXIO: behind the last data; else a file system that does not tell
        return error.errno == errno.ENXIO


def held(handle: int, offset: int, length: int) -> int | None:
    """Pages of a range that lie in memory, by mincore(2); None when the system does not say.

    Since Linux 5.2 it calls everything resident that the caller neither owns nor may write. Mapping a file reads
    nothing of it.
    """
    if sys.platform == "win32":
        return None
    may_ask = os.geteuid() in (0, os.fstat(handle).st_uid) or os.access(f"/proc/self/fd/{handle}", os.W_OK)
    if sys.platform == "linux" and not may_ask:
        return None
    import ctypes

    libc, page = ctypes.CDLL(None, use_errno=True), os.sysconf("SC_PAGESIZE")
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_int64]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
    start = offset // page * page
    length += offset - start
    address = libc.mmap(None, length, 1, 1, handle, start)  # PROT_READ, MAP_SHARED
    if address in (None, ctypes.c_void_p(-1).value):
        return None
    try:
        pages = ctypes.create_string_buffer(-(-length // page))
        return sum(byte & 1 for byte in pages.raw) if libc.mincore(address, length, pages) == 0 else None
    finally:
        libc.munmap(address, length)
