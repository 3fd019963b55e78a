"""Exactly one file of a repository, through huggingface_hub's own client, verified before it is put in place."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from ..model import FetchFile
from .actions import aside, scratch
from .copy import Meter, digest_of, require
from .errors import ApplyError, reason
from .journal import Journal


def fetch(step: FetchFile, path: Path, journal: Journal, meter: Meter) -> Callable[[Path], None]:
    """How to build the file. It is downloaded on the file system of `path`, so that it only has to be renamed.

    The client gets an empty cache: with the real one it would take the damaged file for a good copy.
    """

    def build(part: Path) -> None:
        folder = scratch(journal, aside(path, journal.id, "download"))
        got = _download(step, folder)
        actual = got.stat().st_size
        if step.size is not None and actual != step.size:
            raise ApplyError(f"{step.filename} of {step.repo} came with {actual} bytes instead of {step.size}")
        require(step.digest, digest_of(got, step.digest), f"{step.filename} of {step.repo}, as it was downloaded,")
        descriptor = os.open(got, os.O_RDWR)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        got.rename(part)
        meter(actual, step.filename)

    return build


def _download(step: FetchFile, folder: Path) -> Path:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(
            hf_hub_download(
                step.repo,
                step.filename,
                revision=step.revision,
                local_dir=folder / "file",
                cache_dir=folder / "cache",
                endpoint=os.environ.get("HF_ENDPOINT"),
            )
        )
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError, ValueError) as error:
        what = f"{step.filename} of {step.repo} could not be downloaded"
        raise ApplyError(f"{what}: {reason(error)}") from error
