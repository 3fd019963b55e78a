"""The machine we run on. Reads only, with deadlines; imports nothing heavy.

Storage speed is measured on the user's own files past the page cache, never on a freshly written one.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ..model import Component, Gpu, Host, HubAnswer, Schema, Speed, System, Unknown
from ..model.environment import Metadata
from ..model.shell import Shell, shell_among
from . import filesystem, host
from .cards import cards
from .disks import MountLine, folders_below, mount_of, read_mounts
from .hub.client import BUNDLES, PROXIES
from .speed import speed_of
from .world import Mount, Shapes, Stat, World

if TYPE_CHECKING:
    from ..state.receipts import Receipts
    from .digests import Progress

# Only variables that change what a trainer or the hub does; never a token, nor a password in an address.
VARIABLES = (
    *("CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES", "HF_ENDPOINT", "HF_HOME", "HF_HUB_CACHE"),
    *("HSA_OVERRIDE_GFX_VERSION", "PYTHONNOUSERSITE", "PYTHONPATH"),
    *("HF_HUB_DISABLE_SYMLINKS", "HF_HUB_DISABLE_XET", "HF_HUB_ENABLE_HF_TRANSFER", "HF_HUB_OFFLINE"),
    *("HUGGINGFACE_HUB_CACHE", "LOCAL_RANK", "PYTHONUTF8", "PYTORCH_ALLOC_CONF", "TRANSFORMERS_OFFLINE"),
    *(*BUNDLES, *PROXIES, *map(str.lower, PROXIES), "XDG_CACHE_HOME"),
)
_LOGIN = re.compile(r"(?<=://).*@|^(?!\w+://).*@")
STEADY_FILESYSTEMS = ("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "bcachefs", "overlay", "tmpfs")


class LiveWorld(World):
    """This machine. Environment, working directory and home can be given, for tests and for the demo.

    `trainer_source` is a checkout of the trainer that the user named. `online`: the hub may be asked.
    """

    def __init__(
        self,
        environment: Mapping[str, str] | None = None,
        cwd: str | None = None,
        home: str | None = None,
        *,
        receipts: Receipts | None = None,
        progress: Progress | None = None,
        trainer_source: str | None = None,
        online: bool = False,
    ) -> None:
        self._online = online
        self.variables = dict(os.environ if environment is None else environment)
        self._cwd = cwd or str(Path.cwd())
        self._home = home or str(Path.home())
        self._receipts = receipts
        self._digests: dict[tuple[str, str], str | Unknown] = {}  # one look reads a file once, whatever asks for it
        self._progress = progress
        self._trainer_source = trainer_source
        self._speeds: dict[tuple[str, ...], Speed | Unknown] = {}

    @cached_property
    def system(self) -> System:
        given = self.variables
        memory = host.memory()
        return System(
            os=os_name(),
            release=release(),
            python=".".join(map(str, sys.version_info[:3])),
            cwd=self._cwd,
            home=self._home,
            cpus=os.cpu_count() or 1,
            memory_total=memory.total,
            memory_available=memory.available,
            swap=memory.swap,
            contained=memory.contained,
            environment={name: _without_login(name, given[name]) for name in VARIABLES if name in given},
            interpreter=sys.executable or "",
            machine=processor(self.variables),
            typed_in=shell_here(),
            libc=c_library(),
        )

    def now_ns(self) -> int:
        return time.time_ns()

    def stat(self, path: str) -> Stat | Unknown | None:
        return filesystem.stat(path)

    def names(self, folder: str) -> tuple[str, ...] | Unknown:
        return filesystem.names(folder)

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes | Unknown:
        return filesystem.read(path, start, length)

    def refusal(self, folder: str) -> str | Unknown | None:
        return filesystem.refusal(folder)

    def is_open(self, path: str) -> bool:
        return os.path.realpath(path) in self._open_files

    @cached_property
    def _open_files(self) -> frozenset[str]:
        return filesystem.open_files()

    def digests(self, wanted: Mapping[str, str]) -> Mapping[str, str | Unknown]:
        from .digests import digests

        # Only local file systems of Linux keep inode and change time such that a receipt proves something.
        new = {path: kind for path, kind in wanted.items() if (path, kind) not in self._digests}
        mount = self.mount(next(iter(new))) if new else None
        trusted = isinstance(mount, Mount) and mount.filesystem in STEADY_FILESYSTEMS
        found = digests(new, self._readers, self._receipts if trusted else None, self._progress)
        self._digests.update({(path, new[path]): digest for path, digest in found.items()})
        return {path: self._digests[path, kind] for path, kind in wanted.items()}

    def _readers(self, files: Sequence[str]) -> int:
        """How many files are read at once: several where seeking costs nothing, else one."""
        cores = min(4, self.system.cpus, len(files))
        speed = self.speed([os.path.realpath(file) for file in files[:8]]) if cores > 1 else None
        return cores if isinstance(speed, Speed) and speed.kind in ("ssd", "memory") else 1

    def mount(self, path: str) -> Mount | Unknown:
        existing = Path(path)
        try:
            while not existing.exists() and existing != existing.parent:
                existing = existing.parent
            real = str(existing.resolve())
            if sys.platform == "win32":
                import shutil

                from .windows import filesystem_of

                anchor = Path(real).anchor
                return Mount(anchor, filesystem_of(anchor), False, shutil.disk_usage(real).free)
            state = os.statvfs(real)
        except (OSError, RuntimeError, ValueError) as error:
            return Unknown(f"{path}: {filesystem.reason(error)}")
        free = state.f_bavail * state.f_frsize
        read_only = bool(state.f_flag & os.ST_RDONLY)
        line = mount_of(real, self._mounts) or MountLine("/", "unknown")
        return Mount(line.point, line.filesystem, read_only, free, line.source)

    @cached_property
    def _mounts(self) -> tuple[MountLine, ...]:
        """The table of mounts, the deepest and newest first."""
        if sys.platform == "darwin":
            import psutil

            volumes = psutil.disk_partitions(all=True)  # from the kernel's table: no volume is asked
            told = [MountLine(volume.mountpoint, volume.fstype, volume.device) for volume in volumes]
            return tuple(sorted(told, key=lambda line: -len(line.point)))
        try:
            return read_mounts(Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace"))
        except OSError:
            return ()

    def speed(self, files: Sequence[str]) -> Speed | Unknown:
        asked = tuple(sorted(files))  # whatever the order, it is the same disk
        if asked not in self._speeds:
            self._speeds[asked] = speed_of(files, self.mount, self._mounts)
        return self._speeds[asked]

    def landmarks(self) -> tuple[str, ...]:
        import importlib.util

        files = [sys.executable]
        try:
            for spec in map(importlib.util.find_spec, ("hf_xet", "unicodedata")):
                folders = (spec.submodule_search_locations or ()) if spec else ()
                files += [str(file) for folder in folders for file in sorted(Path(folder).glob("*.so"))]
                files += [spec.origin] if spec and spec.origin and spec.origin.endswith((".so", ".pyd")) else []
            return tuple(os.path.realpath(file) for file in files)
        except (OSError, ImportError, ValueError):  # an interpreter whose own files this user may not look at
            return ()

    def elsewhere(self, places: Sequence[str]) -> tuple[str, ...]:
        return tuple(folders_below(self._mounts, places))

    def skeletons(self, parts: Mapping[str, Component]) -> Mapping[str, Shapes | Unknown]:
        from .skeletons import ask_libraries

        if self._progress is not None:
            names = ", ".join(sorted({part.class_name or name for name, part in parts.items()}))
            self._progress(0, 0, f"asking the installed libraries about {names}")
        return ask_libraries(parts)

    def schema(self, trainer: str, near: Sequence[str]) -> Schema | Unknown | None:
        from ..schema import checkouts
        from ..schema.tables import cached, completed
        from ..state import state_folder

        named = self._trainer_source
        root = (
            checkouts.find(trainer, near) if named is None else Path(os.path.abspath(os.path.join(self._cwd, named)))
        )
        if root is None:
            return None
        if named is not None and checkouts.recognised(root) != trainer:
            return Unknown(f"{named} is no checkout of {trainer}, whose config this is")
        try:
            return completed(cached(root, trainer, state_folder()))
        except (checkouts.NoCheckout, OSError, RecursionError) as error:
            return Unknown(f"{root} could not be read: {error}") if named is not None else None

    def gpus(self) -> tuple[Gpu, ...] | Unknown:
        return self._gpus

    @cached_property
    def _gpus(self) -> tuple[Gpu, ...] | Unknown:
        return cards()

    def host(self) -> Host | Unknown:
        return host.limits(self.variables)

    def search_path(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(os.path.abspath(folder or ".") for folder in sys.path))

    def packages(self) -> dict[str, str]:
        return self._packages

    @cached_property
    def _packages(self) -> dict[str, str]:
        from .packages import versions_on

        return versions_on(self, self.search_path())

    def ask_hub(self, python: str, wanted: Mapping[str, str]) -> Mapping[str, HubAnswer]:
        if not self._online:
            return {}
        from .hub.question import ask

        if self._progress is not None:
            self._progress(0, 0, f"asking the hub about {', '.join(wanted)}")
        return ask(python, wanted, self.variables)

    def metadata(self, folders: Sequence[str]) -> Mapping[str, Metadata]:
        from .packages import metadata_in

        return metadata_in(self, folders)


def _without_login(name: str, value: str) -> str:
    return _LOGIN.sub("", value) if name.upper() in (*PROXIES, "HF_ENDPOINT") else value


def os_name() -> Literal["linux", "windows", "darwin"]:
    return "windows" if sys.platform == "win32" else "darwin" if sys.platform == "darwin" else "linux"


@cache
def shell_here() -> Shell | None:
    """The shell of Windows that this process was started from; elsewhere commands are alike in all of them."""
    if sys.platform != "win32":
        return None
    import psutil

    try:
        return shell_among(parent.name() for parent in psutil.Process().parents())
    except (OSError, psutil.Error):
        return None


def release() -> str:
    if sys.platform == "win32":
        import platform  # slow to import; elsewhere one system call tells

        return f"{platform.system()} {platform.release()}"
    found = os.uname()
    return f"{found.sysname} {found.release}"


def c_library() -> str:
    """As this Python was linked with: "glibc 2.36" or "musl" on Linux, "" where it does not say."""
    if sys.platform != "linux":
        return ""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):  # a name that only glibc knows
        return "musl" if any(Path("/lib").glob("ld-musl-*.so.1")) else ""


def processor(variables: Mapping[str, str]) -> str:
    """As platform.machine() names it."""
    if sys.platform == "win32":
        return variables.get("PROCESSOR_ARCHITEW6432") or variables.get("PROCESSOR_ARCHITECTURE", "")
    return os.uname().machine
