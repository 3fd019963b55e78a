"""What this computer is: its system and its memory, nothing heavy imported."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Literal


def os_name() -> Literal["linux", "windows", "darwin"]:
    return "windows" if sys.platform == "win32" else "darwin" if sys.platform == "darwin" else "linux"


def release() -> str:
    if sys.platform == "win32":
        import platform  # slow to import; elsewhere one system call tells

        return f"{platform.system()} {platform.release()}"
    found = os.uname()
    return f"{found.sysname} {found.release}"


def memory() -> tuple[int, int]:
    """(total, available) bytes of RAM. Linux says both in one file; importing psutil for it would cost 15 ms."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        found = {name: int(rest.split()[0]) << 10 for name, _, rest in (line.partition(":") for line in lines)}
        return found["MemTotal"], found["MemAvailable"]
    except (OSError, ValueError, KeyError, IndexError):
        import psutil

        memory = psutil.virtual_memory()
        return memory.total, memory.available


def container_limit() -> tuple[int, int] | None:
    """(limit, used) of this process's control group in bytes, None without a limit (docs: cgroup v2, then v1)."""
    pairs = (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    )
    for limit, used in pairs:
        try:
            return int(Path(limit).read_bytes()), int(Path(used).read_bytes())
        except (OSError, ValueError):
            continue
    return None
