"""Step: one file of a repository is downloaded, through huggingface_hub's own client, and verified."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ...files.durable import rename
from ...model import FetchFile
from ...model.amounts import amount
from ..actions.build import make, scratch
from ..actions.copy import Meter, copy_file, digest_of, require
from ..actions.errors import ApplyError, reason
from ..actions.journal import Record
from ..actions.paths import aside, at, hub_root
from .needs import Needs, Work, locks_of

COMPLETED = "completed"
WORTH = 1 << 20  # fewer new bytes are not worth a file that stays


def describe(step: FetchFile) -> str:
    if step.prefix is not None:
        rest = amount(step.size - step.prefix_size) if step.size is not None else "rest"
        after = "what is there" if step.prefix == step.path else step.prefix
        return f"download the missing {rest} of {step.filename} of {step.repo} to {step.path}, after {after}"
    how_much = f", {amount(step.size)}," if step.size is not None else ""
    return f"download {step.filename}{how_much} of {step.repo} to {step.path}"


def precheck(step: FetchFile, path: Path, needs: Needs) -> None:
    for prefix in step.sources:
        needs.source(at(prefix), step.prefix_size)
    needs.file_place(path)
    needs.room(path, size=step.size or 0, names=1)
    needs.copied += step.size or 0
    needs.online |= step.size is None or step.prefix_size < step.size
    needs.locks |= locks_of(path, step.digest, "models--" + step.repo.replace("/", "--"))


def perform(steps: Sequence[FetchFile], path: Path, work: Work) -> None:
    """Download on the file system of `path`, so that the file only has to be renamed.

    The client gets an empty cache: with the real one it would take the damaged file for a good copy.
    """
    (step,), journal, meter = steps, work.journal, work.meter

    def build(part: Path) -> None:
        folder = scratch(journal, aside(path, journal.id, "download"), _salvage(step, path))
        got = _stream(step, folder, meter) or _whole(step, folder, meter)
        with got.open("r+b") as file:  # os.open would open it as text on Windows, and cut off a Ctrl-Z at its end
            os.fsync(file.fileno())
        rename(got, part)

    make(journal, path, build, instead=True)


def _salvage(step: FetchFile, path: Path) -> Record | None:
    """Where a download that fails leaves its bytes: among the client's left-overs, under a name that says whose."""
    root = hub_root(path)
    if step.digest is None or root is None or "--" not in root.name:
        return None
    left = root / "blobs" / f"{step.digest.partition(':')[2]}.zdoctor.incomplete"
    return {"from": COMPLETED, "to": str(left), "size": step.prefix_size + WORTH}


def _whole(step: FetchFile, folder: Path, meter: Meter) -> Path:
    got = _download(step, folder)
    _verify(step, got)
    meter(got.stat().st_size, step.filename)
    return got


def _verify(step: FetchFile, got: Path) -> None:
    actual = got.stat().st_size
    if step.size is not None and actual != step.size:
        raise ApplyError(f"{step.filename} of {step.repo} came with {actual} bytes instead of {step.size}")
    require(step.digest, digest_of(got, step.digest), f"{step.filename} of {step.repo}, as it was downloaded,")


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
                endpoint=mirror(),
            )
        )


def _stream(step: FetchFile, folder: Path, meter: Meter) -> Path | None:
    """The prefix, if there is one, and after it what only the hub has.

    None where both together are not the file, and where the client itself has a better way to the whole of it.
    """
    if step.digest is None or (step.prefix is None and not _is_plain(step)):
        return None
    got, done = folder / COMPLETED, meter.done
    try:
        if step.prefix is None:
            got.touch()
        else:
            copy_file(Path(step.prefix), got, step.prefix_size, None, meter, step.filename)
        if step.size is None or step.prefix_size < step.size:
            _append(step, got, meter)
    except _NoSuchRest:
        pass
    except OSError as error:
        got.unlink(missing_ok=True)  # a disk that is full is left with no more than it had
        if error.errno != errno.EIO:  # a bad sector in what was to be the beginning
            raise
    else:
        try:
            _verify(step, got)
            return got
        except ApplyError:
            if step.prefix is None:
                got.unlink()
                raise
    got.unlink(missing_ok=True)
    meter(done - meter.done, step.filename)
    return None


def _is_plain(step: FetchFile) -> bool:
    """Whether the client would fetch the whole file by plain HTTP, each time from the beginning."""
    from huggingface_hub import get_hf_file_metadata

    if find_spec("hf_xet") is None:
        return True
    try:
        return get_hf_file_metadata(_url(step)).xet_file_data is None
    except Exception:  # of whichever HTTP library; asked for the whole file, the client says what is wrong
        return False


class _NoSuchRest(Exception):
    """The server does not serve these bytes."""


def _append(step: FetchFile, target: Path, meter: Meter) -> None:
    """Download what follows the bytes of `target`. A server that ignores the range gives the whole file instead.

    After a broken connection it goes on where it was, as often as the client does that for a whole file. This is
    plain HTTP also where hf_xet is installed: that fetches whole files only, and where the server offers it.
    """
    from huggingface_hub.errors import HfHubHTTPError
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

    # Ranges of a compressed answer would be others.
    headers = build_hf_headers() | {"Accept-Encoding": "identity"}
    with _explained(step), _no_second_bar(), _Counted(target, meter, step.filename) as file:
        file.seek(0, os.SEEK_END)
        try:
            size = None if step.prefix is None else step.size
            http_get(_url(step), file, resume_size=step.prefix_size, headers=headers, expected_size=size)
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


def _url(step: FetchFile) -> str:
    from huggingface_hub import hf_hub_url

    return hf_hub_url(step.repo, step.filename, revision=step.revision, endpoint=mirror())


def mirror() -> str | None:
    """The mirror, if one is set, read now rather than when the client was imported."""
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or None
