"""A patient: a healthy setup of a trainer in a folder, with the machine that it lies on, to be spoiled and repaired.

The folder holds everything that a run reads and writes (`job/` with the config and the pictures, `hf/` with the hub
cache, `home/`); what this machine lacks (cards, packages, disks) is recorded. Models are real in names and structure,
and a few thousand numbers large, or files with a true header before a hole.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.doctor.probe.recorded import RecordedWorld
from zdoctor.doctor.probe.world import World
from zdoctor.tests.machines import GIB, PACKAGES, gpu, speed

LARGE = 1 << 20  # bytes from which on a file is a header before a hole, shared by all patients


class Impossible(Exception):
    """A fault that has no place to be planted: another fault took it."""


@dataclass
class Patient:
    """Where the patient lies, the name of its config, and what of its machine is recorded."""

    root: Path
    config: str
    gpus: list[dict[str, Any]] | str = field(default_factory=lambda: [gpu("NVIDIA RTX A6000", 48.0, 47.0, (8, 6))])
    packages: dict[str, str] = field(default_factory=lambda: dict(PACKAGES))
    mounts: list[dict[str, Any]] = field(default_factory=list)
    kind: str = "ssd"
    memory: int = 251 * GIB
    environment: dict[str, str] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)

    def take(self, what: str) -> None:
        """Claim what only one fault can spoil."""
        if what in self.taken:
            raise Impossible(what)
        self.taken.add(what)

    def card(self, **changes: Any) -> None:
        """Record another card."""
        for name in changes:
            self.take(f"card {name}")
        assert isinstance(self.gpus, list)
        self.gpus = [{**self.gpus[0], **changes}]

    def package(self, name: str, version: str | None) -> None:
        """Record another version of a package, or that it is not installed."""
        self.take(f"package {name}")
        self.packages.pop(name)
        if version is not None:
            self.packages[name] = version

    @property
    def job(self) -> Path:
        return self.root / "job"

    @property
    def path(self) -> Path:
        return self.job / self.config

    def file(self, name: str) -> Path:
        """A file or folder of the job that must be there."""
        path = self.job / name
        if not os.path.lexists(path):
            raise Impossible(name)
        return path

    def edit(self, old: str, new: str, name: str = "") -> None:
        """Replace the one place where `old` stands in the config, or in another file of the job."""
        path = self.file(name or self.config)
        data = path.read_bytes()
        if data.count(old.encode()) != 1:
            raise Impossible(old)
        path.write_bytes(data.replace(old.encode(), new.encode()))

    def behind(self, line: str, new: str, name: str = "") -> None:
        """Put lines behind the one line that holds `line`, at its indentation."""
        path = self.file(name or self.config)
        lines = path.read_text(encoding="utf-8").split("\n")
        at = [number for number, text in enumerate(lines) if line in text]
        if len(at) != 1:
            raise Impossible(line)
        indent = lines[at[0]][: len(lines[at[0]]) - len(lines[at[0]].lstrip(" -"))].replace("-", " ")
        lines[at[0] + 1 : at[0] + 1] = [indent + text for text in new.split("\n")]
        path.write_text("\n".join(lines), encoding="utf-8")

    def refuse(self, folder: str, reason: str | None = "read-only file system", free: int = 900 * 10**9) -> None:
        """Record a mount at a folder of the patient that refuses to be written, or has only so many bytes free."""
        self.mounts.append({"point": str(self.root / folder), "filesystem": "ext4", "free": free, "refusal": reason})

    def world(self) -> World:
        """The patient's machine, its files asked of this one."""
        home = str(self.root / "home")
        environment = {"HF_HOME": str(self.root / "hf"), "HOME": home, **self.environment}
        live = LiveWorld(environment, cwd=str(self.job), home=home)
        everywhere = {"point": str(self.root), "filesystem": "ext4", "free": 900 * 10**9, "refusal": None}
        system = {"os": "linux", "release": "Linux 6.8", "python": "3.11.9", "cwd": str(self.job), "home": home}
        record = {
            "schema": "zdoctor.machine/1",
            "live": True,
            "system": {
                **system,
                "cpus": 8,
                "memory_total": self.memory,
                "memory_available": int(self.memory * 0.85),
                "environment": environment,
            },
            "gpus": self.gpus,
            "packages": self.packages,
            "metadata": [{"name": name, "version": version, "folder": ""} for name, version in self.packages.items()],
            "mounts": [everywhere, *self.mounts],
            "elsewhere": [],
            "speeds": [speed("/", self.kind, 1e-4, *((2e9, 3e9) if self.kind == "ssd" else (20.0, 40.0)))],
        }
        return RecordedWorld(record, live)


def copy(sound: Path, to: Path) -> None:
    """The patient as it was, in a folder of its own; large files are shared, and what nobody spoiled there stays."""
    wanted, there = tree(sound), tree(to)
    spoiled = {name for name in {*wanted, *there} if wanted.get(name) != there.get(name)}
    for name in sorted(spoiled & there.keys(), reverse=True):  # a folder comes after what lies in it
        if there[name][0] != "folder":
            (to / name).unlink()
        elif wanted.get(name, ("",))[0] != "folder":
            (to / name).rmdir()
    for name in sorted(spoiled & wanted.keys()):
        if wanted[name][0] == "folder":
            (to / name).mkdir(parents=True, exist_ok=True)
        elif wanted[name][0] == "link":
            (to / name).symlink_to(os.readlink(sound / name))
        else:
            _copied(str(sound / name), str(to / name))
    for name in wanted:  # the newest is looked for by time
        shutil.copystat(sound / name, to / name, follow_symlinks=False)


def _copied(source: str, to: str) -> None:
    if os.path.getsize(source) >= LARGE:
        os.link(source, to)
    else:
        shutil.copy2(source, to)


def tree(folder: Path) -> dict[str, tuple[object, ...]]:
    """Every path with its kind, mode and content; of large files, which nobody edits, which file it is."""
    found: dict[str, tuple[object, ...]] = {}
    for path in _walk(folder):
        info = path.lstat()
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = ("link", os.readlink(path))
        elif path.is_dir():
            found[name] = ("folder", info.st_mode)
        elif info.st_size >= LARGE:
            found[name] = ("file", info.st_mode, info.st_ino, info.st_size, info.st_mtime_ns)
        else:
            found[name] = ("file", info.st_mode, path.read_bytes(), info.st_mtime_ns)
    return found


def _walk(folder: Path) -> Iterator[Path]:
    for root, folders, files in os.walk(folder):
        yield from (Path(root) / name for name in (*folders, *files))


def weights(tensors: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> bytes:
    """A safetensors file of bfloat16 tensors, {name: shape}, whose numbers are small and not all the same."""
    header: dict[str, object] = {"__metadata__": {"format": "pt", **(metadata or {})}}
    offset = 0
    for name, shape in tensors.items():
        size = 2
        for side in shape:
            size *= side
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    numbers = b"".join(struct.pack("<H", 0x3C00 + n % 97) for n in range(128))
    return struct.pack("<Q", len(text)) + text + (numbers * (offset // len(numbers) + 1))[:offset]


def picture(side: tuple[int, int], shade: int = 128) -> bytes:
    """A whole PNG picture of one grey."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = (b"\0" + bytes([shade]) * side[0]) * side[1]
    header = struct.pack(">IIBBBBB", *side, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def dataset(folder: Path, side: tuple[int, int] = (256, 256), count: int = 6, caption: str = ".txt") -> None:
    folder.mkdir(parents=True)
    for number in range(count):
        (folder / f"{number:02d}.png").write_bytes(picture(side, 100 + number))
        (folder / f"{number:02d}{caption}").write_text(f"testarossa, picture {number}\n", encoding="utf-8")


def spoil(path: Path, change: Callable[[bytes], bytes]) -> None:
    """Put another file in the place of the one that a path leads to."""
    real = Path(os.path.realpath(path))
    if not real.is_file():
        raise Impossible(str(path))
    data = change(real.read_bytes())
    real.unlink()
    real.write_bytes(data)


def cached(hub: Path, repo: str, files: Mapping[str, bytes], commit: str = "a1" * 20) -> Path:
    """A repository as the hub client lays it out; returns its snapshot folder."""
    root = hub / f"models--{repo.replace('/', '--')}"
    snapshot = root / "snapshots" / commit
    listing: dict[str, dict[str, object]] = {}
    for name, data in files.items():
        git = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
        listing[name] = {"size": len(data), "blob_id": git}
        blob = root / "blobs" / git
        if name.endswith(".safetensors"):
            sha = hashlib.sha256(data).hexdigest()
            listing[name] |= {"lfs_sha256": sha, "lfs_size": len(data)}
            blob = root / "blobs" / sha
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(data)
        link = snapshot / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(blob, link.parent))
    (root / "refs").mkdir()
    (root / "refs" / "main").write_text(commit, encoding="ascii")
    (root / "trees").mkdir()
    tree = {"format_version": 1, "files": listing}
    (root / "trees" / f"{commit}.json").write_text(json.dumps(tree), encoding="utf-8")
    return snapshot


Plant = Callable[[Patient], None]


@dataclass(frozen=True)
class Fault:
    """One way to spoil a patient. It is found by a finding of one of `rules` that holds `about`, in text or place."""

    name: str
    rules: tuple[str, ...]
    about: str
    plant: Plant
