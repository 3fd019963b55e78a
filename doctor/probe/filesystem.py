"""Files and folders of this machine: what they are and hold, which are open, and where none can be made.

The answers are those that `World` asks for. Reads only.
"""

from __future__ import annotations

import errno
import os
import stat as modes
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Literal

from ..model import Unknown
from .windows import PLACEHOLDER, WRITE_PROTECT, is_marked_read_only, is_placeholder
from .world import Stat

READ_LIMIT = 32 << 20  # bytes, where no length is asked for


def stat(path: str) -> Stat | Unknown | None:
    try:
        found = os.lstat(path)
        target = os.readlink(path) if modes.S_ISLNK(found.st_mode) else None
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        return Unknown(f"{path}: {reason(error)}")
    return Stat(
        _kind(found.st_mode), found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_dev, found.st_ino, target
    )


def names(folder: str) -> tuple[str, ...] | Unknown:
    try:
        return tuple(sorted(os.listdir(folder)))
    except (OSError, ValueError) as error:
        return Unknown(f"{folder}: {reason(error)}")


def read(path: str, start: int = 0, length: int | None = None) -> bytes | Unknown:
    try:
        state = os.stat(path)
        if not modes.S_ISREG(state.st_mode):  # a pipe or device would block or never end
            return Unknown(f"{path}: not a regular file")
        if is_placeholder(state):
            return Unknown(f"{path}: {PLACEHOLDER}")
        with open(path, "rb", buffering=0) as file:
            file.seek(start)
            return file.read(READ_LIMIT if length is None else length)
    except (OSError, ValueError, OverflowError) as error:
        return Unknown(f"{path}: {reason(error)}")


def open_files() -> frozenset[str]:
    """Names of the files that processes have open. By name: to stat what others have open could block."""
    found: set[str] = set()
    try:
        processes = [entry.path for entry in os.scandir("/proc") if entry.name.isdigit()]
    except OSError:
        return frozenset()
    for process in processes:
        with suppress(OSError):  # of another user, or gone
            for handle in os.scandir(f"{process}/fd"):
                with suppress(FileNotFoundError):
                    found.add(os.readlink(handle))
    return frozenset(found)


def refusal(folder: str) -> str | Unknown | None:
    if sys.platform == "win32":
        from .windows import open_for_new_files

        return refused(folder, open_for_new_files)
    try:
        state = os.statvfs(folder)
        if state.f_flag & os.ST_RDONLY:
            return "read-only file system"
        if state.f_bavail == 0 and state.f_blocks:
            return "no space left"
        if state.f_files and state.f_favail == 0:
            return "no inodes left"
        flag = _immutable(folder)
        if flag is not None:
            return flag
        effective = os.access in os.supports_effective_ids
        if not os.access(folder, os.W_OK | os.X_OK, effective_ids=effective):
            return "permission denied"
    except OSError as error:
        return Unknown(f"{folder}: {reason(error)}")
    return None


def refused(folder: str, open_it: Callable[[str], None]) -> str | Unknown | None:
    """`refusal` on Windows, by opening the folder as who makes a file in it must.

    os.access knows nothing of access control lists there, and calls every folder writable.
    """
    marked = False
    try:
        marked = is_marked_read_only(os.stat(folder))
        open_it(folder)
    except PermissionError as error:
        if getattr(error, "winerror", None) == WRITE_PROTECT:
            return "read-only file system"
        # Explorer's mark, which "Documents" has, hinders nobody; whether it hinders this way of asking is not known
        return None if marked else "permission denied"
    except OSError as error:
        return Unknown(f"{folder}: {reason(error)}")
    return None


def _kind(mode: int) -> Literal["file", "folder", "link", "other"]:
    if modes.S_ISLNK(mode):
        return "link"
    if modes.S_ISDIR(mode):
        return "folder"
    return "file" if modes.S_ISREG(mode) else "other"


def reason(error: BaseException) -> str:
    """What an error says, without the path that a caller has named already."""
    if isinstance(error, OSError) and error.errno is not None:
        return f"{errno.errorcode.get(error.errno, error.errno)}: {error.strerror}"
    return str(error) or type(error).__name__


def _immutable(folder: str) -> str | None:
    """What `lsattr` would show: files cannot be made in an immutable folder, nor renamed in an append-only one."""
    if sys.platform != "linux":
        return None
    import array
    import fcntl

    get_flags, immutable, append_only = 0x80086601, 0x10, 0x20
    flags = array.array("l", [0])
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return None
    try:
        fcntl.ioctl(handle, get_flags, flags)
    except OSError:
        return None
    finally:
        os.close(handle)
    if flags[0] & immutable:
        return "the folder is marked immutable (chattr +i)"
    return "the folder is marked append-only (chattr +a)" if flags[0] & append_only else None
