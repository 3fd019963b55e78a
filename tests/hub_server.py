"""A small hub on loopback that speaks what the real client asks: commits, file lists, files with content addresses.

    with HubServer({"acme/tiny": {"config.json": b"{}"}}) as hub:
        snapshot_download("acme/tiny", endpoint=hub.url, cache_dir=...)
        assert hub.served == 2

Files ending in .safetensors are served as large files (sha256), the others as regular ones (git sha1). No xet.
Its attributes make it a bad hub: one that cuts bodies, ignores ranges, refuses or falsifies files.
"""

from __future__ import annotations

import hashlib
import json
import re
import ssl
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import unquote, urlsplit

Files = Mapping[str, bytes]


def git_sha1(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def etag(name: str, data: bytes) -> str:
    """The content address under which the client stores a file."""
    return sha256(data) if name.endswith(".safetensors") else git_sha1(data)


class HubServer:
    """Repositories by id, each a list of commits (the last is `main`). `served` counts the bytes of file bodies.

    `cuts` are the bytes after which the next bodies break off, `refused` status and error code by file name, `false`
    what is served in place of files, `ranges` whether a part can be had, `elsewhere` the address of another server
    that has the large files, as a content delivery network has them. `tokens` are the authorizations that came with
    requests for files. `gated` is the token without which it refuses every file, as the hub does; `answer_all` the
    status and headers of its answer to everything. With `certificate` (file, key) it speaks TLS.
    """

    def __init__(self, repos: Mapping[str, Files], certificate: tuple[str, str] | None = None) -> None:
        self.commits: dict[str, dict[str, Files]] = {}
        self.served = 0
        self.requests: list[str] = []
        self.tokens: set[str | None] = set()
        self.cuts: list[int] = []
        self.refused: dict[str, tuple[int, str]] = {}
        self.false: dict[str, bytes] = {}
        self.ranges = True
        self.elsewhere = ""
        self.gated = ""
        self.answer_all: tuple[int, Mapping[str, str]] | None = None
        for repo, files in repos.items():
            self.push(repo, files)
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                owner.answer(self, body=True)

            def do_HEAD(self) -> None:
                owner.answer(self, body=False)

            def log_message(self, format: str, *args: Any) -> None:
                owner.requests.append(f"{self.command} {self.path}")

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            # the handshake is made by the thread of the request: one that breaks off would stop the server
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        scheme = "http" if certificate is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._server.server_address[1]}"

    def push(self, repo: str, files: Files) -> str:
        """Make a commit of `files` the newest one of `repo`; returns its 40 digits."""
        commits = self.commits.setdefault(repo, {})
        text = f"{repo} {len(commits)} " + " ".join(f"{name}={sha256(data)}" for name, data in sorted(files.items()))
        commit = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
        commits[commit] = dict(files)
        return commit

    def head(self, repo: str) -> str:
        return next(reversed(self.commits[repo]))

    def __enter__(self) -> HubServer:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, request: BaseHTTPRequestHandler, *, body: bool) -> None:
        path = unquote(urlsplit(request.path).path).strip("/")
        if self.answer_all is not None:
            if "/resolve/" in path:
                self.tokens.add(request.headers.get("Authorization"))
            return self._send(request, *self.answer_all, b"", body)
        if found := re.fullmatch(r"api/models/([^/]+/[^/]+)(?:/revision/(.+))?", path):
            commit = self._commit(found[1], found[2] or "main")
            if commit is not None:
                return self._json(request, self._info(found[1], commit), body)
        elif found := re.fullmatch(r"api/models/([^/]+/[^/]+)/tree/([^/]+)/?.*", path):
            commit = self._commit(found[1], found[2])
            if commit is not None:
                return self._json(request, self._tree(self.commits[found[1]][commit]), body)
        elif found := re.fullmatch(r"([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            commit = self._commit(found[1], found[2])
            if commit is not None:
                self.tokens.add(request.headers.get("Authorization"))
                return self._file(request, commit, found[3], self.commits[found[1]][commit].get(found[3]), body)
        self._send(request, 404, {"X-Error-Code": "RepoNotFound"}, b"", body)

    def _commit(self, repo: str, revision: str) -> str | None:
        commits = self.commits.get(repo)
        if not commits:
            return None
        return self.head(repo) if revision == "main" else revision if revision in commits else None

    def _info(self, repo: str, commit: str) -> dict[str, Any]:
        siblings = [{"rfilename": name} for name in self.commits[repo][commit]]
        return {"_id": "1", "id": repo, "modelId": repo, "sha": commit, "siblings": siblings, "private": False}

    def _tree(self, files: Files) -> list[dict[str, Any]]:
        listing = []
        for name, data in files.items():
            entry: dict[str, Any] = {"type": "file", "path": name, "size": len(data), "oid": git_sha1(data)}
            if name.endswith(".safetensors"):
                entry["lfs"] = {"oid": sha256(data), "size": len(data), "pointerSize": 130}
            listing.append(entry)
        return listing

    def _json(self, request: BaseHTTPRequestHandler, value: Any, body: bool) -> None:
        self._send(request, 200, {"Content-Type": "application/json"}, json.dumps(value).encode(), body)

    def _file(self, request: BaseHTTPRequestHandler, commit: str, name: str, data: bytes | None, body: bool) -> None:
        if self.gated and request.headers.get("Authorization") != f"Bearer {self.gated}":
            gate = {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access to model is restricted."}
            return self._send(request, 401, gate, b"", body)
        status, code = self.refused.get(name, (404, "EntryNotFound") if data is None else (0, ""))
        if data is None or status:
            return self._send(request, status, {"X-Error-Code": code, "X-Repo-Commit": commit}, b"", body)
        headers = {"ETag": f'"{etag(name, data)}"', "X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
        large = name.endswith(".safetensors")
        if large:
            headers |= {"X-Linked-Etag": f'"{sha256(data)}"', "X-Linked-Size": str(len(data))}
        if self.elsewhere and large:
            return self._send(request, 302, {**headers, "Location": self.elsewhere + request.path}, b"", body)
        status, part = 200, self.false.get(name, data)
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", request.headers.get("Range", ""))
        if asked and self.ranges:
            if int(asked[1]) >= len(part):
                return self._send(request, 416, {"Content-Range": f"bytes */{len(part)}"}, b"", body)
            stop = int(asked[2]) + 1 if asked[2] else len(part)
            headers["Content-Range"] = f"bytes {asked[1]}-{stop - 1}/{len(part)}"
            status, part = 206, part[int(asked[1]) : stop]
        if body and self.cuts:
            sent = part[: self.cuts.pop(0)]
            self.served += len(sent)
            self._send(request, status, headers, sent, body, length=len(part))
            request.close_connection = True
            return
        if body:
            self.served += len(part)
        self._send(request, status, headers, part, body)

    def _send(
        self,
        request: BaseHTTPRequestHandler,
        status: int,
        headers: Mapping[str, str],
        data: bytes,
        body: bool,
        *,
        length: int | None = None,
    ) -> None:
        request.send_response(status)
        for name, value in headers.items():
            request.send_header(name, value)
        request.send_header("Content-Length", str(len(data) if length is None else length))
        request.end_headers()
        if body:
            request.wfile.write(data)
