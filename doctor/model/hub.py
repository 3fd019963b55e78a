"""What hub caches hold of the repositories that a run loads, and what should be there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from .record import dataclass, field

FileState = Literal["ok", "missing", "dangling", "wrong-link", "wrong-size", "wrong-content", "broken-structure"]


@dataclass(frozen=True)
class HubFile:
    """One file that a snapshot should hold.

    `size` and `digest` ("sha256:…" or "git-sha1:…") are what it should be, from the manifest or the blob's name;
    `good_copy` is another file on this machine with the same content address and size, when this one is bad; where
    there is none, `prefix` is a (path, bytes) that should be the beginning of it: itself, cut off, or a left-over
    download.
    `blob` is where the content lies or belongs (the end of the links), None where the snapshot holds plain files.
    `needed` is false for what no trainer loads (a README, weights of another precision). `hidden` is true where the
    client noted (in .no_exist) that the repository has no such file: loaders then do not see it. `changed` is true in
    a downloaded folder where somebody wrote the file anew after the download. `verified` is true
    where the content was held against `digest`; `unread` says why it could not be, where a deep check wanted to.
    """

    name: str
    path: str
    blob: str | None
    state: FileState
    size: int | None
    digest: str | None
    actual_size: int | None = None
    detail: str = ""
    good_copy: str | None = None
    prefix: tuple[str, int] | None = None
    verified: bool = False
    needed: bool = True
    hidden: bool = False
    changed: bool = False
    unread: str = ""


@dataclass(frozen=True)
class HubRepo:
    """One repository of a hub cache and the snapshot the run would use; or a folder downloaded with --local-dir.

    Such a folder has no `cache`; its path stands for the name of the repository, which it does not tell. `origin` is
    the hub id that its files can be fetched from, None where nothing on this machine knows it.

    `ref_state` is what the file of the ref asked for says; `commit` the snapshot that serves.
    `has_manifest` is true when `trees/<commit>.json` names every file; `manifest` is then that file, its size and its
    digest. `partials` are left-over downloads as (path, size, alive): alive when another process may still be writing
    it. `complete` are those of `snapshots` in which no needed file is missing, the newest first. A repository of
    which nothing is cached has no `commit`.
    `update_of` is the complete older snapshot that the one to use was to replace, where its download was cut short
    and nothing can be linked; its files are then all listed, also those that nobody loads.
    `used_by` are the fields of the run that name it; it is empty for one that lies in a cache the run does not use.
    """

    repo: str
    cache: str
    folder: str
    ref_state: Literal["ok", "dangling", "malformed", "absent", "pinned"]
    ref_path: str
    ref_content: str
    commit: str | None
    snapshot: str | None
    has_manifest: bool
    files: tuple[HubFile, ...]
    partials: tuple[tuple[str, int, bool], ...] = ()
    snapshots: tuple[str, ...] = ()
    used_by: tuple[str, ...] = ()
    complete: tuple[str, ...] = ()
    update_of: str | None = None
    origin: str | None = None
    manifest: tuple[str, int, str] | None = None

    @property
    def is_folder(self) -> bool:
        """Whether it is a plain folder that the hub client filled, outside of every cache."""
        return not self.cache

    @property
    def is_unlinked(self) -> bool:
        """Whether the snapshot is gone, while the content of its files is still in the cache."""
        gone = self.update_of is None and all(file.state == "missing" for file in self.files)
        return gone and any(file.good_copy is not None for file in self.files)

    @property
    def hub_id(self) -> str | None:
        """The repository to fetch its files from, None where nobody knows."""
        return self.origin if self.is_folder else self.repo

    @property
    def usable(self) -> bool:
        """Whether every needed file is there, or can be had from another place on this machine."""
        needed = [f for f in self.files if f.needed]
        return self.commit is not None and all(f.state == "ok" or f.good_copy is not None for f in needed)


@dataclass(frozen=True)
class Hub:
    """The hub caches of this machine, with the repositories that concern the run.

    `token` says where the client finds a token ("HF_TOKEN", a file), "" where it finds none; None where that is not
    known. The token itself is nowhere kept.
    """

    caches: tuple[str, ...]
    repos: tuple[HubRepo, ...]
    offline: bool = False
    xet_version: str | None = None
    token: str | None = None

    @property
    def is_empty(self) -> bool:
        """Whether the run loads nothing from the hub."""
        return not any(repo.used_by for repo in self.repos)

    def repo(self, repo_id: str | None) -> HubRepo | None:
        return next((r for r in self.repos if r.repo == repo_id), None)


@dataclass(frozen=True)
class HubClient:
    """The huggingface_hub that the run will use, and the environment variables that come between it and the hub.

    `version` is "" where it is not installed. `variables` are those that are set, by their names, of the two
    spellings of a proxy the one that counts. `bundles` says what is wrong with the files of certificates among them.
    `lacks` are the packages for proxies and transfers that are not installed.
    """

    version: str = ""
    python: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    bundles: Mapping[str, str] = field(default_factory=dict)
    lacks: tuple[str, ...] = ()


@dataclass(frozen=True)
class HubAnswer:
    """What the hub said of a repository's file when it was asked, without its body; `status` 0: it said nothing.

    `code` and `message` are its X-Error-Code and X-Error-Message, `wait` the seconds after which it takes more
    requests, `failed` why nothing came, `unasked` why it could not be asked. `token`: whether one was sent.
    """

    status: int = 0
    code: str = ""
    message: str = ""
    wait: int | None = None
    failed: str = ""
    unasked: str = ""
    token: bool = False
