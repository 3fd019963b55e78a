"""Only what is missing of a file is downloaded, from a hub that may be as bad as a real one; the digest decides."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from huggingface_hub.utils import WeakFileLock, are_progress_bars_disabled  # type: ignore[attr-defined]

from zdoctor.doctor.apply import ApplyError, apply, describe, recover, undo
from zdoctor.doctor.model import FetchFile, Quarantine
from zdoctor.tests.hub_server import HubServer, git_sha1, sha256

from ..trees import plan, snapshot

REPO, NAME, SMALL = "o/n", "vae/model.safetensors", "config.json"
DATA = bytes(range(256)) * 400
HAVE = 70_000
REST = len(DATA) - HAVE


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    with HubServer({REPO: {NAME: DATA, SMALL: b'{"a": 1}'}}) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url + "/")
        monkeypatch.setattr("huggingface_hub.file_download.time.sleep", lambda seconds: None)
        yield server


@pytest.fixture
def blobs(tmp_path: Path) -> Path:
    blobs = tmp_path / "hub" / "models--o--n" / "blobs"
    blobs.mkdir(parents=True)
    (blobs / sha256(DATA)).write_bytes(DATA[:HAVE])
    return blobs


def step(hub: HubServer, blobs: Path, prefix: Path | None = None) -> FetchFile:
    place = blobs / sha256(DATA)
    prefix = place if prefix is None else prefix
    digest = "sha256:" + sha256(DATA)
    return FetchFile(REPO, hub.head(REPO), NAME, str(place), len(DATA), digest, str(prefix), prefix.stat().st_size)


def test_only_the_rest_is_downloaded(hub: HubServer, blobs: Path, tmp_path: Path) -> None:
    before = snapshot(blobs.parent)
    told: list[tuple[int, int, str]] = []
    done = apply(plan(step(hub, blobs)), state=tmp_path / "state", progress=lambda *what: told.append(what))
    assert (blobs / sha256(DATA)).read_bytes() == DATA
    assert (hub.served, done.copied) == (REST, len(DATA))
    assert told[0] == (0, 0, "asking whether the hub can be reached")
    assert told[1][0] == HAVE and told[-1] == (len(DATA), len(DATA), NAME)
    assert not are_progress_bars_disabled("huggingface_hub.http_get")
    undo(state=tmp_path / "state")
    assert snapshot(blobs.parent) == before


def test_a_left_over_download_is_the_beginning(hub: HubServer, blobs: Path, tmp_path: Path) -> None:
    """The file itself is gone; what was left is put aside by a later step of the same plan."""
    partial = (blobs / sha256(DATA)).rename(blobs / f"{sha256(DATA)}.0123abcd.incomplete")
    before = snapshot(blobs.parent)
    apply(plan(step(hub, blobs, partial), Quarantine(str(partial))), state=tmp_path / "state")
    assert (blobs / sha256(DATA)).read_bytes() == DATA
    assert not partial.exists() and hub.served == REST
    undo(state=tmp_path / "state")
    assert snapshot(blobs.parent) == before


WHOLE = len(DATA)


@pytest.mark.parametrize(
    ("name", "beginning", "served"),
    [
        ("flipped", bytes([DATA[0] ^ 1]) + DATA[1:HAVE], REST + WHOLE),
        ("holes", DATA[:1000] + bytes(HAVE - 1000), REST + WHOLE),
        ("complete", DATA, 0),
        ("full of zeros", bytes(WHOLE), WHOLE),
        ("too long", DATA + b"more", WHOLE),
        ("empty", b"", WHOLE),
    ],
)
def test_the_digest_decides(
    hub: HubServer, blobs: Path, tmp_path: Path, name: str, beginning: bytes, served: int
) -> None:
    (blobs / sha256(DATA)).write_bytes(beginning)
    done = apply(plan(step(hub, blobs)), state=tmp_path / "state")
    assert (blobs / sha256(DATA)).read_bytes() == DATA
    assert (hub.served, done.copied) == (served, len(DATA))


@pytest.mark.parametrize("at", [[0], [10_000], [10_000, 0, 20_000]])
def test_a_broken_connection_is_taken_up_where_it_broke(
    hub: HubServer, blobs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: list[int]
) -> None:
    monkeypatch.setattr(
        "huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 1000
    )  # what it keeps of a cut body: whole ones
    hub.cuts = list(at)
    apply(plan(step(hub, blobs)), state=tmp_path / "state")
    assert (blobs / sha256(DATA)).read_bytes() == DATA
    assert hub.served == REST


def test_a_server_that_ignores_ranges_sends_it_whole(hub: HubServer, blobs: Path, tmp_path: Path) -> None:
    hub.ranges = False
    done = apply(plan(step(hub, blobs)), state=tmp_path / "state")
    assert (blobs / sha256(DATA)).read_bytes() == DATA
    assert (hub.served, done.copied) == (WHOLE, WHOLE)


@pytest.mark.parametrize("have", [HAVE, 0])
def test_a_token_is_for_the_hub_and_not_for_where_it_sends_us(
    hub: HubServer, blobs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, have: int
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_mine")
    wanted = step(hub, blobs) if have else replace(step(hub, blobs), prefix=None, prefix_size=0)
    with HubServer({REPO: {NAME: DATA, SMALL: b'{"a": 1}'}}) as other:
        hub.elsewhere = other.url
        apply(plan(wanted), state=tmp_path / "state")
    assert (blobs / sha256(DATA)).read_bytes() == DATA
    assert (hub.served, other.served) == (0, len(DATA) - have)
    assert (hub.tokens, other.tokens) == ({"Bearer hf_mine"}, {None})


@pytest.mark.parametrize("complete", [True, False])
@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        ({"false": {NAME: DATA[:-1] + b"!"}}, "is corrupt"),
        ({"refused": {NAME: (404, "EntryNotFound")}}, "could not be downloaded"),
        ({"refused": {NAME: (403, "GatedRepo")}}, "could not be downloaded"),
        ({"refused": {NAME: (401, "RepoNotFound")}}, "could not be downloaded"),
        ({"refused": {NAME: (503, "")}}, "could not be downloaded"),
        ({"cuts": [0] * 20}, "could not be downloaded"),
    ],
)
def test_what_the_hub_refuses_or_falsifies_changes_nothing(
    hub: HubServer, blobs: Path, tmp_path: Path, trouble: dict[str, object], said: str, complete: bool
) -> None:
    vars(hub).update(trouble)
    if not complete:
        (blobs / sha256(DATA)).write_bytes(b"")
    before = snapshot(blobs.parent)
    with pytest.raises(ApplyError, match=said) as error:
        apply(plan(step(hub, blobs)), state=tmp_path / "state")
    assert "Everything is as before." in str(error.value)
    assert snapshot(blobs.parent) == before


def test_without_a_digest_the_whole_file_is_fetched(hub: HubServer, blobs: Path, tmp_path: Path) -> None:
    whole = step(hub, blobs)
    blind = FetchFile(REPO, whole.revision, NAME, whole.path, None, None, whole.prefix, whole.prefix_size)
    apply(plan(blind), state=tmp_path / "state")
    assert hub.served == WHOLE


def test_a_size_that_nobody_knows_is_learned_from_the_hub(hub: HubServer, blobs: Path, tmp_path: Path) -> None:
    known = step(hub, blobs)
    unsized = FetchFile(REPO, known.revision, NAME, known.path, None, known.digest, known.prefix, known.prefix_size)
    assert "the missing rest of" in describe(unsized) and "the missing 32.4 kB of" in describe(known)
    apply(plan(unsized), state=tmp_path / "state")
    assert (blobs / sha256(DATA)).read_bytes() == DATA
    assert hub.served == REST


def test_a_small_file_by_its_git_hash(hub: HubServer, blobs: Path, tmp_path: Path) -> None:
    file = blobs / git_sha1(b'{"a": 1}')
    file.write_bytes(b'{"a"')
    digest = f"git-sha1:{file.name}"
    apply(plan(FetchFile(REPO, hub.head(REPO), SMALL, str(file), 8, digest, str(file), 4)), state=tmp_path / "state")
    assert file.read_bytes() == b'{"a": 1}'
    assert hub.served == 4


def ours(blobs: Path) -> Path:
    return blobs / f"{sha256(DATA)}.zdoctor.incomplete"


@pytest.fixture
def salvaged(monkeypatch: pytest.MonkeyPatch) -> None:
    """These files are small."""
    monkeypatch.setattr("zdoctor.doctor.apply.steps.fetch_file.WORTH", 1000)
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 1000)


@pytest.mark.usefixtures("salvaged")
@pytest.mark.parametrize("have", [HAVE, 0])
def test_what_was_downloaded_before_a_failure_is_not_downloaded_again(
    hub: HubServer, blobs: Path, tmp_path: Path, have: int
) -> None:
    """Of a file that is missing altogether as well: the client would begin anew each time."""
    wanted = step(hub, blobs) if have else replace(step(hub, blobs), prefix=None, prefix_size=0)
    before = snapshot(blobs.parent)
    hub.cuts = [20_000] + [0] * 20
    kept = r"Everything is as before\. What was downloaded is kept in .*, (90|20) kB: the same command goes on"
    with pytest.raises(ApplyError, match=kept):
        apply(plan(wanted), state=tmp_path / "state")
    assert ours(blobs).read_bytes() == DATA[: have + 20_000]
    assert {name: what for name, what in snapshot(blobs.parent).items() if ours(blobs).name not in name} == before
    hub.cuts = []
    apply(plan(step(hub, blobs, ours(blobs)), Quarantine(str(ours(blobs)))), state=tmp_path / "state")
    assert (blobs / sha256(DATA)).read_bytes() == DATA
    assert hub.served == len(DATA) - have and not ours(blobs).exists()


@pytest.mark.usefixtures("salvaged")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="a process is killed")
def test_what_was_downloaded_before_a_kill_is_not_downloaded_again(
    hub: HubServer, blobs: Path, tmp_path: Path
) -> None:
    def kill(done: int, total: int, name: str) -> None:
        if done > HAVE + 20_000:
            os.kill(os.getpid(), signal.SIGKILL)

    pid = os.fork()
    if not pid:
        apply(plan(step(hub, blobs)), state=tmp_path / "state", progress=kill)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    _, kept = recover(tmp_path / "state")
    assert kept.startswith("What was downloaded is kept in")
    assert DATA.startswith(ours(blobs).read_bytes()) and ours(blobs).stat().st_size > HAVE + 10_000
    assert (blobs / sha256(DATA)).read_bytes() == DATA[:HAVE]


@pytest.mark.usefixtures("salvaged")
def test_a_full_disk_is_left_with_no_more_than_it_had(hub: HubServer, blobs: Path, tmp_path: Path) -> None:
    before = snapshot(blobs.parent)

    def full(done: int, total: int, name: str) -> None:
        if done > HAVE + 20_000:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(ApplyError, match=r"No space left on device\. Everything is as before\.$"):
        apply(plan(step(hub, blobs)), state=tmp_path / "state", progress=full)
    assert snapshot(blobs.parent) == before


def test_a_stop_in_the_middle_takes_everything_back(hub: HubServer, blobs: Path, tmp_path: Path) -> None:
    before = snapshot(blobs.parent)

    def stop(done: int, total: int, name: str) -> None:
        if done > HAVE:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        apply(plan(step(hub, blobs)), state=tmp_path / "state", progress=stop)
    assert snapshot(blobs.parent) == before


def lock_of(blobs: Path) -> Path:
    return blobs.parent.parent / ".locks" / "models--o--n" / f"{sha256(DATA)}.lock"


@pytest.mark.parametrize("partial", [False, True])
def test_a_download_that_is_running_is_left_alone(hub: HubServer, blobs: Path, tmp_path: Path, partial: bool) -> None:
    """The lock is the client's own, held as a download holds it."""
    left = blobs / f"{sha256(DATA)}.0123abcd.incomplete"
    left.write_bytes(DATA[:5])
    lock_of(blobs).parent.mkdir(parents=True)
    wanted = plan(Quarantine(str(left)) if partial else step(hub, blobs))
    with WeakFileLock(lock_of(blobs)):
        before = snapshot(tmp_path / "hub")
        with pytest.raises(ApplyError, match=r"downloading this content right now: .* Everything is as before\."):
            apply(wanted, state=tmp_path / "state")
        assert snapshot(tmp_path / "hub") == before
    apply(wanted, state=tmp_path / "state")


def test_the_lock_is_given_back(hub: HubServer, blobs: Path, tmp_path: Path) -> None:
    lock_of(blobs).parent.mkdir(parents=True)
    lock_of(blobs).touch()
    hub.refused = {NAME: (403, "GatedRepo")}
    with pytest.raises(ApplyError, match="could not be downloaded"):
        apply(plan(step(hub, blobs)), state=tmp_path / "state")
    with WeakFileLock(lock_of(blobs), timeout=0.1):
        pass


def test_lock_files_of_ours_go_with_the_undo(hub: HubServer, blobs: Path, tmp_path: Path) -> None:
    before = snapshot(tmp_path / "hub")
    apply(plan(step(hub, blobs)), state=tmp_path / "state")
    assert lock_of(blobs).exists()
    undo(state=tmp_path / "state")
    assert snapshot(tmp_path / "hub") == before
    assert os.listdir(tmp_path / "hub") == ["models--o--n"]
