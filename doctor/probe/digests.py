"""The sha256 of large files: several at once where the disk bears it, and none that is known to be unchanged."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from threading import Event

from ..files import fingerprints
from ..model import Unknown
from ..model.record import dataclass
from ..state.receipts import Key, Receipts
from .windows import PLACEHOLDER, is_placeholder

BUFFER = 1 << 20
LARGE = 1 << 30  # after a file this large its pages are given back, so that 20 GB do not push out what others cached
REPORT_EVERY = 0.2
Progress = Callable[[int, int, str], None]  # bytes done, bytes in all (0: none to read), name of the file being read


@dataclass(frozen=True)
class Job:
    path: str
    kind: str
    key: Key


def digests(
    wanted: Mapping[str, str],
    readers: Callable[[list[str]], int],
    receipts: Receipts | None = None,
    progress: Progress | None = None,
) -> dict[str, str | Unknown]:
    """The digest ("sha256:…", "git-sha1:…") of every path, of the kind that `wanted` names for it.

    `readers` says how many of the files may be read at once. A file that cannot be read, or that changes while it
    is read, is Unknown. Each digest is noted as soon as its file is done, so that a killed run loses only the files
    it was reading.
    """
    made: dict[str, str | Unknown] = {}
    jobs: list[Job] = []
    for path, kind in wanted.items():
        try:
            state = os.stat(path)
            key = Key.of(state)
        except (OSError, ValueError) as error:
            made[path] = Unknown(f"it cannot be read ({_reason(error)})")
            continue
        if is_placeholder(state):
            made[path] = Unknown(f"it is {PLACEHOLDER}")
            continue
        known = receipts.recall(key, kind) if receipts is not None else None
        if known is not None:
            made[path] = known
        else:
            jobs.append(Job(path, kind, key))
    if jobs:
        jobs.sort(key=lambda job: (-job.key.size, job.path))  # the largest is the critical path
        made.update(_read_all(jobs, readers([job.path for job in jobs]), receipts, progress))
    return made


def _read_all(
    jobs: list[Job], readers: int, receipts: Receipts | None, progress: Progress | None
) -> Iterator[tuple[str, str | Unknown]]:
    total = sum(job.key.size for job in jobs)
    read = [0] * len(jobs)  # each element is written by one thread only
    stop = Event()
    with ThreadPoolExecutor(readers) as pool:
        running: dict[Future[tuple[str, int] | Unknown], Job] = {
            pool.submit(_digest, job, read, number, stop): job for number, job in enumerate(jobs)
        }
        try:
            while running:
                done, _ = wait(running, REPORT_EVERY if progress else None, FIRST_COMPLETED)
                for future in done:
                    job, result = running.pop(future), future.result()
                    if isinstance(result, Unknown):
                        yield job.path, result
                        continue
                    digest, started = result
                    if receipts is not None:
                        receipts.note(job.key, job.kind, digest, started)
                    yield job.path, digest
                if progress is not None:
                    current = next((j for j, n in zip(jobs, read, strict=True) if 0 < n < j.key.size), jobs[-1])
                    progress(sum(read) if running else total, total, current.path)
        finally:  # also on Ctrl-C: the threads end after the buffer they are at
            stop.set()
            pool.shutdown(cancel_futures=True)


def _digest(job: Job, read: list[int], number: int, stop: Event) -> tuple[str, int] | Unknown:
    """(digest, when reading began in ns)."""
    started = time.time_ns()
    state = fingerprints.running(job.kind, job.key.size)
    buffer = memoryview(mmap.mmap(-1, BUFFER))  # page-aligned: the kernel copies a third faster than to a bytearray
    try:
        with open(job.path, "rb", buffering=0) as file:
            if Key.of(os.fstat(file.fileno())) != job.key:
                return Unknown("it changed while it was read")
            _advise(file.fileno(), "POSIX_FADV_SEQUENTIAL")
            while (count := file.readinto(buffer)) and not stop.is_set():
                state.update(buffer[:count])
                read[number] += count
            if job.key.size > LARGE:
                _advise(file.fileno(), "POSIX_FADV_DONTNEED")
            if Key.of(os.fstat(file.fileno())) != job.key or read[number] != job.key.size:
                return Unknown("reading was stopped" if stop.is_set() else "it changed while it was read")
    except (OSError, ValueError) as error:
        return Unknown(f"it cannot be read ({_reason(error)})")
    return f"{job.kind}:{state.hexdigest()}", started


def _advise(handle: int, advice: str) -> None:
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(handle, 0, 0, getattr(os, advice))


def _reason(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
