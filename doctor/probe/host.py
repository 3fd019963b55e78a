"""The bounds of the system beneath a run: of Linux from /proc and the process's limits, of Windows by its calls."""

from __future__ import annotations

import locale
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from ..model import Host, Unknown
from ..model.record import dataclass, replace
from .world import World

_NOBODY = ("All Users", "Default", "Default User", "Public", "desktop.ini")  # in C:\Users, and no person's


def limits(variables: Mapping[str, str]) -> Host:
    """Of this process, as its children will have them. Reads two files at most."""
    if sys.platform == "win32":
        from .windows import limits as of_windows

        # that of the region, whichever Python of ours is new enough for UTF-8
        region = locale.getencoding() if sys.version_info >= (3, 11) else locale.getpreferredencoding(False)
        return replace(of_windows(variables), encoding=region, clock=int(time.time()))
    import resource

    files, space = (resource.getrlimit(one)[0] for one in (resource.RLIMIT_NOFILE, resource.RLIMIT_AS))
    limit, free = _promised()
    return Host(
        shared_memory=_shared_memory(),
        open_files=None if files == resource.RLIM_INFINITY else files,
        address_space=None if space == resource.RLIM_INFINITY else space,
        commit_limit=limit,
        commit_free=free,
        encoding=locale.getpreferredencoding(False),
        synced=_of_clouds(variables.get("HOME", "")) if sys.platform == "darwin" else (),
        clock=int(time.time()),
    )


def _of_clouds(home: str) -> tuple[str, ...]:
    """Where macOS keeps what programs copy into clouds, and iCloud's own."""
    return tuple(os.path.join(home, "Library", name) for name in ("CloudStorage", "Mobile Documents")) if home else ()


def _shared_memory() -> int | None:
    if sys.platform == "linux":
        with suppress(OSError):
            state = os.statvfs("/dev/shm")
            return state.f_blocks * state.f_frsize
    return None


def _promised() -> tuple[int | None, int | None]:
    """(limit, free) bytes that Linux promises to programs, where it counts them.

    Documentation/mm/overcommit-accounting.rst.
    """
    with suppress(OSError, KeyError):
        if Path("/proc/sys/vm/overcommit_memory").read_bytes().strip() == b"2":
            found = meminfo()
            return found["CommitLimit"], max(0, found["CommitLimit"] - found["Committed_AS"])
    return None, None


@dataclass(frozen=True)
class Ram:
    """Bytes of the computer's memory that programs here may use; `contained` where a control group bounds them.

    `swap` is what its disks add to that, None where it is not known.
    """

    total: int
    available: int
    swap: int | None = None
    contained: bool = False


def memory() -> Ram:
    """The computer's memory, or what the control groups of this process leave of it."""
    found = meminfo()
    if "MemAvailable" not in found:
        import psutil  # 15 ms

        seen = psutil.virtual_memory()
        return Ram(seen.total, seen.available)
    ram = Ram(found["MemTotal"], found["MemAvailable"], found.get("SwapTotal"))
    bounds = [(limit, free) for limit, free in _of_groups() if limit < ram.total]
    if not bounds:
        return ram
    limit, free = map(min, zip(*bounds, strict=True))
    return replace(ram, total=limit, available=max(0, min(ram.available, free)), contained=True)


def meminfo() -> dict[str, int]:
    """The lines of /proc/meminfo in bytes; none where there is no such file."""
    return {name.rstrip(":"): size << 10 for name, size in numbers("/proc/meminfo")}


def _of_groups() -> Iterator[tuple[int, int]]:
    """(limit, free) bytes of the control groups that this process is in, the innermost first.

    A container may see its own group as the root, or paths of the host that are not there. Of what is used, pages of
    files do not count: they give way. Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/memory.rst.
    """
    with suppress(OSError, ValueError):
        for line in Path("/proc/self/cgroup").read_text(encoding="utf-8", errors="replace").splitlines():
            number, kinds, place = line.split(":", 2)
            if number == "0":
                root, most, used, of_all = "/sys/fs/cgroup", "memory.max", "memory.current", ""
            elif "memory" in kinds.split(","):
                root, most, used = "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
                of_all = "total_"
            else:
                continue
            group = Path(root + place)
            for folder in (group, *(parent for parent in group.parents if str(parent).startswith(root))):
                with suppress(OSError, ValueError):  # "max": no limit
                    limit = int((folder / most).read_bytes())
                    pages = {f"{of_all}{name}_file" for name in ("active", "inactive")}
                    files = sum(size for name, size in numbers(str(folder / "memory.stat")) if name in pages)
                    yield limit, limit - int((folder / used).read_bytes()) + files


def numbers(path: str) -> Iterator[tuple[str, int]]:
    """The first words of the lines of a file of the kernel, with the numbers that follow them."""
    with suppress(OSError):
        for line in Path(path).read_text(encoding="ascii", errors="replace").splitlines():
            words = line.split()
            if len(words) > 1 and words[1].isdecimal():
                yield words[0], int(words[1])


def probe_host(world: World) -> Host | Unknown:
    """What bounds the programs of this machine; below WSL also what the Windows around it says of it."""
    host = world.host()
    if isinstance(host, Unknown) or not world.system.is_wsl or host.wsl_config:
        return host
    people = [name for name in world.names_in("/mnt/c/Users") if name not in _NOBODY]
    with_file = [name for name in people if ".wslconfig" in world.names_in(f"/mnt/c/Users/{name}")]
    owners = with_file or people
    if len(owners) != 1:
        return host
    path = f"/mnt/c/Users/{owners[0]}/.wslconfig"
    text = world.read(path, 0, 1 << 16) if with_file else b""
    if isinstance(text, Unknown):
        return host
    return replace(host, wsl_config=path, wsl_text=text.decode("utf-8", "replace"))
