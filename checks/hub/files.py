"""The hub cache: damaged and missing files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ...doctor.model import Finding, Hub, HubFile, HubRepo, Run, Severity, found
from ...doctor.model.amounts import amount
from ...doctor.rules import prevents, rule

SHOWN = 10
STOPS = "The run stops while it loads the model."
KINDS = {"sha256": "sha256", "git-sha1": "git sha1"}
DAMAGE = {
    "wrong-size": "it has {actual_size} bytes and should have {size} (from {source})",
    "wrong-content": "by its {kind} (measured) its content is not what was published (from {source})",
    "wrong-link": "its link leads to the content of another file",
    "broken-structure": "{detail}",
    "disguised": "it has {actual_size} bytes and should have {size} (from {source}); it is {detail}",
}
GAPS = {
    "missing": "{file} of {repo} is missing from the cached snapshot {short}.",
    "dangling": "{file} of {repo} is a link to nothing: the blob behind it is gone.",
}
FOLDER_GAP = "{file} is missing from {repo}, which was downloaded from the hub at commit {short}."
CHANGED = "{file} of {repo} was written anew after it was downloaded (by its time): "
UPDATE = (
    "The update of {repo} to commit {short} was interrupted: {count} of its {total} files are missing, {same} of "
    "them unchanged since {older}, which is complete here."
)
UPDATED = "Without symbolic links the hub client knows no file of an older commit: it downloads all of them again, "
UPDATED += "{size}."
HIDDEN = "{file} of {repo} is in the cache, but noted as non-existent (.no_exist), so loaders do not see it."


@rule("HUB001", "error", "corrupt-cache-file")
@prevents("SafetensorError", "incomplete metadata, file not fully covered|header too large|MetadataIncomplete")
@prevents("OSError", r"Unable to load weights from (pytorch )?checkpoint file")
def corrupt_cache_file(run: Run, hub: Hub) -> Iterator[Finding]:
    """A file of the hub cache that does not hold what was published.

    What: Every file the run loads is held against the size and content address of the repository's file list, or
    of the blob's name; safetensors files also against their own header. Files up to 1 MiB are hashed at every
    check, larger ones with --deep. A folder made by `hf download --local-dir` is held against the notes that the
    client keeps in it; a file that its owner wrote anew since is at most a note.
    Why: The hub client never looks at content. It checks the size once, while it downloads; afterwards a file that
    exists is used as it is, online and offline, and downloading again changes nothing.
    Repair: The same content from elsewhere on this machine, verified. Else, where the file was only cut off, or an
    interrupted download of it lies in the cache, the bytes that are missing are downloaded; else this one file, and
    also where its sha256 is wrong once it is complete. What was there goes into quarantine.
    Upstream: https://github.com/huggingface/huggingface_hub/issues/3643,
    https://github.com/huggingface/huggingface_hub/issues/2364
    Signature: SafetensorError: Error while deserializing header: incomplete metadata, file not fully covered
    """
    for repo in used(hub):
        bad = [f for f in repo.files if f.needed and f.state in DAMAGE]
        for file in bad[:SHOWN]:
            state = "disguised" if file.state == "wrong-size" and file.detail else file.state
            yield of_repo(
                run,
                repo,
                (CHANGED if file.changed else "{file} of {repo} is damaged: ") + DAMAGE[state] + ".",
                "The run trains on it as it is. If you changed it on purpose, all is well."
                if file.changed
                else "The hub client uses it as it is, and downloading the model again does not replace it: "
                "the trainer stops while it loads the file, or trains on wrong weights.",
                severity="note" if file.changed else None,
                evidence=_evidence(repo, file),
                file=file.name,
                kind=KINDS.get((file.digest or "").partition(":")[0], "digest"),
                source=_source(repo),
            )
        yield from _rest(run, repo, bad[SHOWN:], "Other files of {repo} are damaged too, {count} in all: {names}.")
        yield from _unverified(run, repo)


def _unverified(run: Run, repo: HubRepo) -> Iterator[Finding]:
    if unread := {file.path: file.unread for file in repo.files if file.unread}:
        first = next(file for file in repo.files if file.unread)
        yield of_repo(
            run,
            repo,
            "The content of {file} of {repo} could not be verified: {detail}."
            if len(unread) == 1
            else "The contents of {count} files of {repo} could not be verified; {file}: {detail}.",
            "They may be damaged all the same; check again when nothing writes to them.",
            evidence={"unread": unread},
            severity="warning",
            file=first.name,
            count=len(unread),
            detail=first.unread,
        )
    for file in repo.files:
        if not file.needed and file.name == f"trees/{repo.commit}.json":
            yield of_repo(
                run,
                repo,
                "The hub client's list of files for {repo} cannot be used: it {detail}.",
                "Missing files go unnoticed without it; once it is gone, the client fetches a new one.",
                evidence=_evidence(repo, file),
                severity="warning",
            )


@rule("HUB002", "error", "incomplete-snapshot")
@prevents("IncompleteSnapshotError", "is incomplete")
@prevents("LocalEntryNotFoundError", "Cannot find (an appropriate cached snapshot folder|the requested files)")
@prevents("OSError", "does not appear to have a file named")
@prevents("FileNotFoundError", "does not appear to have a file named")
@prevents("OSError", r"Can't load (config|tokenizer) for")
def incomplete_snapshot(run: Run, hub: Hub) -> Iterator[Finding]:
    """A cached model that lacks files: a link to nothing, a missing shard.

    What: Every file the run loads is looked for; the names come from the repository's file list
    (trees/<commit>.json), or from the weight index where there is no list. A file that is there but noted as
    non-existent (in .no_exist, after the hub once answered 404) is as good as missing.
    An update that was interrupted in a cache without symbolic links is one finding.
    Why: An interrupted download, a deleted blob, or a tool that removed files leaves a snapshot that looks like a
    model. Online the client downloads what is missing; offline, or from a path, the loader fails.
    Repair: A link to the blob where the content is still there, a verified copy from elsewhere on this machine; else
    what an interrupted download lacks is downloaded, or exactly the missing file. In an update without symbolic links
    the unchanged files become hard links to those of the older snapshot, and only the others are downloaded.
    Upstream: https://github.com/huggingface/huggingface_hub/issues/3371
    Signature: IncompleteSnapshotError: The cached snapshot for … is incomplete
    """
    for repo in used(hub):
        by_id = repo.ref_state != "pinned"
        if repo.commit is None:
            if by_id and hub.offline and not repo.snapshots:
                message = "HF_HUB_OFFLINE is set, but nothing of {repo} is in the hub cache {cache}."
                otherwise = "The run stops when it loads the model: the hub client may not download it."
                evidence = {"cache": repo.cache, "caches": list(hub.caches)}
                yield of_repo(run, repo, message, otherwise, evidence=evidence)
            continue
        hides = not run.by_runner  # zdoctor's runner opens the snapshot by its path, where that note has no effect
        gaps = [f for f in repo.files if f.needed and (f.state in GAPS or (f.hidden and hides))]
        # online the client downloads what is missing by itself; zdoctor's runner downloads nothing
        heals = by_id and not hub.offline and not run.by_runner
        if repo.update_of is not None:
            yield from _update(run, repo, heals)
            gaps = [f for f in gaps if f.state != "missing"]
        if repo.is_unlinked:
            yield _unlinked(run, repo, heals)
            gaps = [f for f in gaps if f.good_copy is None]
        if heals:
            started = {folder_of(f) for f in repo.files if f.needed and f.state != "missing"}
            gaps = [f for f in gaps if folder_of(f) in started or f.prefix is not None]
        yield from _missing_files(run, repo, gaps, heals)


def _missing_files(run: Run, repo: HubRepo, gaps: Sequence[HubFile], heals: bool) -> Iterator[Finding]:
    otherwise = STOPS
    if heals:
        otherwise = "Online, each start first downloads what is missing; with the hub out of reach the run stops."
    for file in gaps[:SHOWN]:
        is_gone = file.state in GAPS
        yield of_repo(
            run,
            repo,
            FOLDER_GAP if repo.is_folder else GAPS.get(file.state, HIDDEN),
            otherwise if is_gone else "The trainer goes on without it, or stops while it loads the model.",
            severity="warning" if heals and is_gone else None,
            evidence=_evidence(repo, file),
            file=file.name,
        )
    rest = gaps[SHOWN:]
    mild: Severity | None = "warning" if heals and all(file.state in GAPS for file in rest) else None
    yield from _rest(run, repo, rest, "Other files of {repo} are missing too, {count} in all: {names}.", mild)


def _update(run: Run, repo: HubRepo, heals: bool) -> Iterator[Finding]:
    """One finding for all that is missing, unless it is on its way."""
    if heals and any(alive for _, _, alive in repo.partials):
        return
    lost = [f for f in repo.files if f.state == "missing"]
    yield of_repo(
        run,
        repo,
        UPDATE,
        UPDATED if heals else STOPS,
        severity="warning" if heals else None,
        evidence={"update_of": repo.update_of, "commit": repo.commit, "paths": [f.path for f in lost]},
        older=(repo.update_of or "")[:8],
        count=len(lost),
        total=len(repo.files),
        same=sum(f.good_copy is not None for f in lost),
        size=amount(sum(f.size or 0 for f in lost)),
    )


def _unlinked(run: Run, repo: HubRepo, heals: bool) -> Finding:
    """The snapshot's folder was deleted, the blobs were not."""
    there = [f for f in repo.files if f.good_copy is not None]
    return of_repo(
        run,
        repo,
        "The snapshot {short} of {repo} is gone; the contents of {count} of its files are still in the cache.",
        "Online the client links them again at the next start; with the hub out of reach the run stops."
        if heals
        else STOPS,
        severity="warning" if heals else None,
        evidence={"commit": repo.commit, "paths": [f.path for f in there]},
        count=len(there),
    )


def used(hub: Hub) -> list[HubRepo]:
    """The repositories that the run will load from."""
    return [repo for repo in hub.repos if repo.used_by]


def of_repo(run: Run, repo: HubRepo, message: str, otherwise: str, **args: Any) -> Finding:
    """A finding about a repository that the run loads from, over its name, cache and commit, too."""
    place, short = run.where(repo.used_by[0]), (repo.commit or "")[:8]
    return found(place, message, otherwise=otherwise, repo=repo.repo, cache=repo.cache, short=short, **args)


def _evidence(repo: HubRepo, file: HubFile) -> dict[str, object]:
    names = ("path", "blob", "size", "actual_size", "digest", "detail", "good_copy", "prefix")
    return {"commit": repo.commit, **{name: getattr(file, name) for name in names}}


def _rest(
    run: Run, repo: HubRepo, files: Sequence[HubFile], message: str, severity: Severity | None = None
) -> Iterator[Finding]:
    if files:
        names = [file.name for file in files]
        yield of_repo(
            run,
            repo,
            message,
            "The same happens with them.",
            severity=severity,
            evidence={"paths": [file.path for file in files]},
            count=len(files),
            names=", ".join(names[:5]) + (", …" if len(names) > 5 else ""),
        )


def _source(repo: HubRepo) -> str:
    if repo.has_manifest:
        return "its list of files"
    return "the hub client's note of the download" if repo.is_folder else "the name of the blob"


def folder_of(file: HubFile) -> str:
    return file.name.rpartition("/")[0]
