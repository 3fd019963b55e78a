"""Refs of the hub cache that lead nowhere, and what interrupted downloads left."""

from __future__ import annotations

from collections.abc import Iterator

from ...doctor.model import Finding, Hub, Run
from ...doctor.model.amounts import amount
from ...doctor.rules import prevents, rule
from .files import of_repo, used


@rule("HUB003", "error", "dangling-ref")
@prevents("LocalEntryNotFoundError", "Cannot find an appropriate cached snapshot folder")
def dangling_ref(run: Run, hub: Hub) -> Iterator[Finding]:
    """A branch of the hub cache that names no usable snapshot.

    What: refs/main must hold exactly the 40 digits of a commit whose snapshot is there.
    Why: Asking the hub for a file that does not exist moves the ref to the newest commit without downloading
    anything; editors add a newline; a full disk leaves it empty. The model is then on the disk and cannot be found:
    it vanishes from `hf cache ls`, and offline loads fail. Online the ref heals at the next download.
    Repair: The ref is pointed at the snapshot that is complete, 0 bytes downloaded.
    Upstream: https://github.com/huggingface/huggingface_hub/issues/4487
    Signature: LocalEntryNotFoundError: Cannot find an appropriate cached snapshot folder for the specified revision
    """
    messages = {
        "dangling": "refs/main of {repo} names commit {content}, which has no snapshot here.",
        "malformed": "refs/main of {repo} does not hold a commit: it reads {content!r}.",
        "absent": "{repo} is in the cache, but refs/main is missing, so an offline load does not find it.",
    }
    for repo in used(hub):
        if run.by_runner and repo.snapshot is not None:  # the runner opens the snapshot by its path
            continue
        if repo.ref_state not in messages or not repo.snapshots or (repo.ref_state == "absent" and not hub.offline):
            continue
        yield of_repo(
            run,
            repo,
            messages[repo.ref_state],
            "The run stops when it loads the model, although its files are here."
            if hub.offline
            else "It goes well as long as the hub answers: the client then moves the ref and downloads what changed. "
            "Offline, the run stops although the files are here.",
            severity=None if hub.offline else "warning",
            evidence={"ref": repo.ref_path, "content": repo.ref_content, "snapshots": list(repo.snapshots)},
        )


@rule("HUB004", "warning", "partial-download")
def partial_download(run: Run, hub: Hub) -> Iterator[Finding]:
    """Left-overs of interrupted downloads.

    What: .incomplete files in the blobs folder that nothing wrote to for ten minutes and that no process has open.
    Why: Since 1.18 the hub client gives each download a new temporary name, so a left-over is never resumed: it only
    takes space. One that still grows belongs to a running download and is left alone. One that is the beginning of a
    file the run lacks is worth its bytes: the repair of HUB001 and HUB002 goes on from there.
    Repair: They are moved into quarantine.
    Upstream: https://github.com/huggingface/huggingface_hub/pull/4306
    """
    for repo in used(hub):
        useful = {file.prefix[0] for file in repo.files if file.prefix is not None}
        stale = [(path, size) for path, size, alive in repo.partials if not alive and path not in useful]
        if stale:
            yield of_repo(
                run,
                repo,
                "An interrupted download of {repo} takes {size}; the hub client never resumes it."
                if len(stale) == 1
                else "Interrupted downloads of {repo} take {size}: {count} files that the hub client never resumes.",
                "The space stays taken until somebody deletes what is left over.",
                evidence={"paths": [path for path, _ in stale], "bytes": sum(size for _, size in stale)},
                count=len(stale),
                size=amount(sum(size for _, size in stale)),
            )
