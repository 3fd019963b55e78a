"""One file is downloaded through the real client, from a hub on loopback that counts what it serves."""

from __future__ import annotations

import hashlib
import os
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from zdoctor.doctor.apply import ApplyError, apply, describe, diff, history, undo
from zdoctor.doctor.apply.steps import precheck
from zdoctor.doctor.model import FetchFile

from ..trees import plan, snapshot

DATA = b"weights" * 999 + b"weight\x1a"
COMMIT = "c" * 40
DIGEST = "sha256:" + hashlib.sha256(DATA).hexdigest()
NAME = "vae/model.safetensors"
SERVED: list[str] = []


class Hub(BaseHTTPRequestHandler):
    """Enough of the hub's file interface: HEAD and GET of `/o/n/resolve/<commit>/<name>`."""

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def answer(self, body: bool) -> None:
        known = self.path == f"/o/n/resolve/{COMMIT}/{NAME}"
        self.send_response(200 if known else 404)
        data = DATA if known else b""
        if known:
            self.send_header("ETag", f'"{DIGEST.partition(":")[2]}"')
        else:
            self.send_header("X-Error-Code", "EntryNotFound")
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if body:
            if known:
                SERVED.append(self.path)
            self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    address = f"http://127.0.0.1:{server.server_address[1]}"
    monkeypatch.setenv("HF_ENDPOINT", address)
    SERVED.clear()
    yield address
    server.shutdown()
    server.server_close()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    blobs = tmp_path / "hub" / "models--o--n" / "blobs"
    blobs.mkdir(parents=True)
    (blobs / "damaged").write_bytes(b"d" * len(DATA))
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    return tmp_path / "hub"


def step(
    home: Path, *, name: str = "vae/model.safetensors", digest: str = DIGEST, size: int = len(DATA)
) -> FetchFile:
    return FetchFile("o/n", COMMIT, name, str(home / "models--o--n" / "blobs" / "damaged"), size, digest)


def test_a_download_takes_room_although_a_copy_would_not(
    home: Path, hub: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the file system shares blocks, the damaged file in its place says nothing about what will be fetched."""
    asked: list[int] = []
    monkeypatch.setattr("zdoctor.doctor.apply.steps.needs.can_reflink", lambda source, folder: True)
    monkeypatch.setattr("zdoctor.doctor.apply.steps.needs._require_room", lambda _, wanted, __: asked.append(wanted))
    assert precheck([step(home)]).copied == len(DATA) and asked == [len(DATA)]


def test_exactly_the_damaged_file_is_fetched_and_undone(home: Path, tmp_path: Path, hub: str) -> None:
    before = snapshot(home)
    done = apply(plan(step(home)), state=tmp_path / "state")
    assert (home / "models--o--n" / "blobs" / "damaged").read_bytes() == DATA
    assert len(SERVED) == 1
    assert done.copied == len(DATA)
    left = [path for path in home.rglob("*") if path.is_file() and path.suffix != ".lock"]
    assert len(left) == 2, left
    undo(state=tmp_path / "state")
    assert snapshot(home) == before


def test_its_last_byte_is_not_taken_for_the_end_of_a_text(
    home: Path, tmp_path: Path, hub: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Windows opens for reading and writing, and not as binary, loses a Ctrl-Z at its end (UCRT, open.cpp)."""
    plain = os.open

    def as_text(path: Any, flags: int, *mode: Any, **folder: Any) -> int:
        if flags & os.O_RDWR and os.path.isfile(path) and Path(path).read_bytes().endswith(b"\x1a"):
            os.truncate(path, os.path.getsize(path) - 1)
        return plain(path, flags, *mode, **folder)

    monkeypatch.setattr(os, "open", as_text)
    apply(plan(step(home)), state=tmp_path / "state")
    assert (home / "models--o--n" / "blobs" / "damaged").read_bytes() == DATA


@pytest.mark.parametrize(
    "wrong, said",
    [
        ({"digest": "sha256:" + "0" * 64}, "is corrupt"),
        ({"size": 7}, "came with 7000 bytes instead of 7"),
        ({"name": "none"}, "none of o/n could not be downloaded"),
        ({"name": "../none"}, "could not be downloaded"),
    ],
)
def test_what_is_not_right_is_not_put_in_place(
    home: Path, tmp_path: Path, hub: str, wrong: dict[str, str], said: str
) -> None:
    before = snapshot(home)
    with pytest.raises(ApplyError, match=said):
        apply(plan(step(home, **wrong)), state=tmp_path / "state")  # type: ignore[arg-type]
    assert snapshot(home) == before


def test_offline_is_said_before_anything_is_done(
    home: Path, tmp_path: Path, hub: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    before = snapshot(home)
    with pytest.raises(ApplyError, match="HF_HUB_OFFLINE is set") as refused:
        apply(plan(step(home)), state=tmp_path / "state")
    assert "--select" in refused.value.hint
    assert snapshot(home) == before and history(tmp_path / "state") == ()


@pytest.mark.parametrize("proxy", ["", "http://proxy.invalid:8080"])
def test_a_host_out_of_reach_is_asked_for_once(
    home: Path, tmp_path: Path, proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    said: list[tuple[int, int, str]] = []

    def unknown(host: Any, *rest: Any, **more: Any) -> Any:
        asked.append(host)
        raise socket.gaierror(-3, "Temporary failure in name resolution")

    monkeypatch.setattr("socket.getaddrinfo", unknown)
    monkeypatch.setattr("time.sleep", lambda seconds: pytest.fail("it waits"))
    for name in ("NO_PROXY", "no_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_ENDPOINT", "https://hub.invalid")
    if proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy)
    before = snapshot(home)
    where = "the proxy proxy.invalid" if proxy else "hub.invalid"
    with pytest.raises(
        ApplyError, match=f"{where} cannot be reached: Temporary failure in name resolution"
    ) as refused:
        apply(plan(step(home)), state=tmp_path / "state", progress=lambda *told: said.append(told))
    assert said == [(0, 0, "asking whether the hub can be reached")]
    assert len(asked) == 1 and "online" in refused.value.hint
    assert snapshot(home) == before and history(tmp_path / "state") == ()


def test_it_is_described(home: Path) -> None:
    assert "download vae/model.safetensors, 7 kB, of o/n to" in diff(plan(step(home)))
    assert "download" in describe(step(home))
