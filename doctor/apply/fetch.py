"""Exactly one file of a repository, through huggingface_hub's own client, verified before it is put in place."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..model import FetchFile
from .actions import aside, hub_root, scratch
from .copy import Meter, copy_file, digest_of, require
from .errors import ApplyError, reason
from .journal import Journal, Record

COMPLETED = "completed"
WORTH = 1 << 20  # fewer new bytes are not worth a file that stays


def fetch(step: FetchFile, path: Path, journal: Journal, meter: Meter) -> Callable[[Path], None]:
    """How to build the file. It is downloaded on the file system of `path`, so that it only has to be renamed.

    The client gets an empty cache: with the real one it would take the damaged file for a good copy.
    """

    def build(part: Path) -> None:
        folder = scratch(journal, aside(path, journal.id, "download"), _salvage(step, path))
        got = _complete(step, folder, meter) or _whole(step, folder, meter)
        descriptor = os.open(got, os.O_RDWR)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        got.rename(part)

    return build


def _salvage(step: FetchFile, path: Path) -> Record | None:
    """Where a completion that fails leaves its bytes: among the client's left-overs, under a name that says whose."""
    root = hub_root(path)
    if step.prefix is None or step.digest is None or root is None or "--" not in root.name:
        return None
    left = root / "blobs" / f"{step.digest.partition(':')[2]}.zdoctor.incomplete"
    return {"from": COMPLETED, "to": str(left), "size": step.prefix_size + WORTH}


def _whole(step: FetchFile, folder: Path, meter: Meter) -> Path:
    got = _download(step, folder)
    actual = got.stat().st_size
    if step.size is not None and actual != step.size:
        raise ApplyError(f"{step.filename} of {step.repo} came with {actual} bytes instead of {step.size}")
    require(step.digest, digest_of(got, step.digest), f"{step.filename} of {step.repo}, as it was downloaded,")
    meter(actual, step.filename)
    return got


def _download(step: FetchFile, folder: Path) -> Path:
    from huggingface_hub import hf_hub_download

    with _explained(step):
        return Path(
            hf_hub_download(
                step.repo,
                step.filename,
                revision=step.revision,
                local_dir=folder / "file",
                cache_dir=folder / "cache",
                endpoint=_endpoint(),
            )
        )


def _complete(step: FetchFile, folder: Path, meter: Meter) -> Path | None:
    """The prefix and the rest that only the hub has, when both together are the file; None when they are not."""
    if step.prefix is None or step.digest is None:
        return None
    got, done = folder / COMPLETED, meter.done
    try:
        copy_file(Path(step.prefix), got, step.prefix_size, None, meter, step.filename)
        if step.size is None or step.prefix_size < step.size:
            _append(step, got, meter)
        if digest_of(got, step.digest).hexdigest() == step.digest.partition(":")[2]:
            return got
    except _NoSuchRest:
        pass
    except OSError as error:
        if error.errno != errno.EIO:  # a bad sector in what was to be the beginning
            got.unlink(missing_ok=True)  # a disk that is full is left with no more than it had
            raise
    got.unlink()
    meter(done - meter.done, step.filename)
    return None


class _NoSuchRest(Exception):
    """The server does not serve these bytes of the file."""


def _append(step: FetchFile, target: Path, meter: Meter) -> None:
    """Download what follows the bytes of `target`. A server that ignores the range gives the whole file instead.

    After a broken connection it goes on where it was, as often as the client does that for a whole file. This is
    plain HTTP also where hf_xet is installed: the client itself uses that for whole files only, and where the server
    offers it.
    """
    from huggingface_hub import hf_hub_url
    from huggingface_hub.errors import HfHubHTTPError
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

    url = hf_hub_url(step.repo, step.filename, revision=step.revision, endpoint=_endpoint())
    # Ranges of a compressed answer would be others.
    headers = build_hf_headers() | {"Accept-Encoding": "identity"}
    with _explained(step), _no_second_bar(), _Counted(target, meter, step.filename) as file:
        file.seek(0, os.SEEK_END)
        try:
            http_get(url, file, resume_size=step.prefix_size, headers=headers, expected_size=step.size)
        except HfHubHTTPError as error:
            if error.response.status_code < 500:  # the client says why, or finds another way, for the whole file
                raise _NoSuchRest from error
            raise
        except OSError as error:
            if type(error) is OSError and error.errno is None:  # the client's word for a wrong size
                raise _NoSuchRest from error
            raise


class _Counted(io.BufferedRandom):
    """A file that tells the meter of every byte, also of those that are thrown away to begin anew."""

    def __init__(self, path: Path, meter: Meter, name: str) -> None:
        super().__init__(io.FileIO(path, "r+"))
        self.meter, self.label = meter, name

    def write(self, data: Any, /) -> int:
        written = super().write(data)
        self.meter(written, self.label)
        return written

    def truncate(self, size: int | None = None, /) -> int:
        here = self.tell()
        before = self.seek(0, os.SEEK_END)
        self.seek(here)
        after = super().truncate(size)
        self.meter(after - before, self.label)
        return after


@contextmanager
def _explained(step: FetchFile) -> Iterator[None]:
    """Whatever the client raises, as a refusal. Its errors are those of the HTTP library of the day."""
    try:
        yield
    except (ApplyError, _NoSuchRest, MemoryError):
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        what = f"{step.filename} of {step.repo} could not be downloaded"
        raise ApplyError(f"{what}: {reason(error)}") from error


@contextmanager
def _no_second_bar() -> Iterator[None]:
    """The meter shows the bytes; the client's own bar would write over it."""
    from huggingface_hub.utils import (  # type: ignore[attr-defined]
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
    )

    bar = "huggingface_hub.http_get"
    if are_progress_bars_disabled(bar):
        yield
        return
    disable_progress_bars(bar)
    try:
        yield
    finally:
        enable_progress_bars(bar)


def _endpoint() -> str | None:
    """The mirror, if one is set, read now rather than when the client was imported."""
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or None
