"""What lies beneath the programs of a computer and bounds them: limits of the system, of a container, of Windows."""

from __future__ import annotations

from .record import dataclass


@dataclass(frozen=True)
class Host:
    """Bounds that hold for any program of this user. Sizes are bytes; None: no bound, or it is not known.

    `shared_memory` is the size of /dev/shm. `open_files` and `address_space` are this process's own limits, which its
    children get. `commit_free` of `commit_limit` bytes can still be promised to programs, where the system promises
    no more (Linux with vm.overcommit_memory=2, Windows with a page file that does not grow).
    `encoding` is that of text files whose reader names none, "" where it is not known. `long_paths` says whether
    Windows takes paths of more than 259 characters, `synced` which folders a program copies into a cloud.
    `clock` is the time in seconds since 1970, UTC.
    `wsl_config` is the .wslconfig of the Windows around a WSL, whether it is there or not, with its `wsl_text`.
    """

    shared_memory: int | None = None
    open_files: int | None = None
    address_space: int | None = None
    commit_limit: int | None = None
    commit_free: int | None = None
    encoding: str = ""
    long_paths: bool | None = None
    synced: tuple[str, ...] = ()
    clock: int | None = None
    wsl_config: str = ""
    wsl_text: str = ""
