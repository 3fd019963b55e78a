"""A machine as data: answer from a machine file (`recorder` writes one).

{"schema": "zdoctor.machine/1", "about": "where this record comes from",
 "host": {"shared_memory": 67108864, "open_files": 1024},      limits, as doctor/model/host.py names them
 "live": false,       true: what is not recorded is asked of this machine (a partial record)
 "complete": true,    true: a path that is not recorded does not exist; false: it is unknown
 "system": {…}, "gpus": [{…}] or "why unknown", "packages": {"torch": "2.13.0"},
 "metadata": [{"name": "torch", "version": "2.13.0", "folder": "…", "requires": ["sympy>=1.13"]}],
 "mounts": [{"point": "/kaggle/input", "filesystem": "ext4", "free": 0, "refusal": "read-only file system"}],
 "elsewhere": ["/mnt/data/hf/hub"],      folders in well-known places of other disks, which may be hub caches
 "speeds": [{"path": "/kaggle", "kind": "ssd", "filesystem": "ext4", "latency": 1e-4, "low": …, "high": …}],
 "files": {"/a/b.txt": {"text": "…"}, "/a/c.png": {"size": 9, "image": [768, 1024]}, "/a/d": {"link": "b.txt"},
           "/a/w.safetensors": {"tensors": {"name": ["BF16", [2, 3]]}, "digests": ["sha256:…"]},
           "/a/e": {"folder": true}, "/a/gone": null}}
"""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from ..files import fingerprints
from ..model import Gpu, Host, Schema, Speed, System, Unknown
from ..model.environment import Metadata, plain
from ..model.record import dataclass, field, replace
from .from_json import Malformed, from_json
from .world import Mount, Stat, World
from .world.safetensors import BITS

SCHEMA = "zdoctor.machine/1"


class MachineError(Exception):
    """A machine file that cannot be used."""


@dataclass(frozen=True)
class _Point:
    """What is said of a folder and of all below it; `mount` is the mount point, where that is another."""

    point: str
    filesystem: str = "unknown"
    free: int | None = None
    refusal: str | None = None
    mount: str | None = None


@dataclass(frozen=True)
class _Machine:
    """A machine file. What is None is asked of this machine where the record is `live`."""

    about: str = "a recorded machine"
    live: bool = False
    complete: bool = True
    now_ns: int = 2**62
    system: System | None = None
    gpus: tuple[Gpu, ...] | str | None = None
    host: Host | None = None
    packages: Mapping[str, str] | None = None
    metadata: tuple[Metadata, ...] | None = None
    mounts: tuple[_Point, ...] = ()
    elsewhere: tuple[str, ...] | None = None
    speeds: tuple[Speed, ...] = ()
    files: Mapping[str, Mapping[str, Any] | None] = field(default_factory=dict)


Said = TypeVar("Said", _Point, Speed)


class RecordedWorld(World):
    """A machine answered from a record. Where this is partial, what it is silent on is asked of the `live` one."""

    def __init__(self, record: Mapping[str, Any], live: World | None = None) -> None:
        if record.get("schema") != SCHEMA:
            raise MachineError(f"its schema is {record.get('schema')!r}, not {SCHEMA!r}")
        source = f"recorded: {record.get('about', _Machine.about)}"
        card = {"index": 0, "capability": None, "driver": "unknown", "source": source}
        try:
            told = from_json(_Machine, record, defaults={Gpu: card, Speed: {"source": source, "latency": None}})
        except Malformed as error:
            raise MachineError(str(error)) from None
        self._told = told
        self.beside = live if told.live else None
        self._here = live or World()
        self._files: Mapping[str, Any] = told.files
        self._headers: dict[int, tuple[bytes, int]] = {}
        self.system = self._live_system() if told.system is None else replace(told.system, recorded=told.about)
        self.variables = self.system.environment if self.beside is None else self.beside.variables
        self._folders = self._index()

    def _live_system(self) -> System:
        if self.beside is None:
            raise MachineError("it records no system")
        system = self.beside.system
        if self._told.gpus is None:
            return system
        # what chooses among this machine's cards says nothing about the recorded ones
        return replace(system, environment={k: v for k, v in system.environment.items() if not k.startswith("CUDA_")})

    def now_ns(self) -> int:
        return self._told.now_ns if self.beside is None else self.beside.now_ns()

    def _index(self) -> dict[str, set[str]]:
        """The names in every folder that the recorded paths imply."""
        folders: dict[str, set[str]] = {}
        for path, entry in self._files.items():
            if entry is None:
                continue
            if entry.get("folder"):
                folders.setdefault(path, set()).update(entry.get("names", ()))
            child = path
            while (parent := self.parent(child)) != child:
                names = folders.setdefault(parent, set())
                if self.name(child) in names:
                    break
                names.add(self.name(child))
                child = parent
        return folders

    def stat(self, path: str) -> Stat | Unknown | None:
        if path in self._files:
            entry = self._files[path]
            if entry is None:
                return None
            if "unknown" in entry:
                return Unknown(entry["unknown"])
            times = (int(entry.get("modified_ns", 0)), int(entry.get("modified_ns", 0)))
            if "link" in entry:
                return Stat("link", len(entry["link"]), *times, target=entry["link"])
            if entry.get("folder"):
                return Stat("folder", 0, *times)
            return Stat("other" if entry.get("other") else "file", self._size(entry), *times)
        if path in self._folders and self.beside is None:
            return Stat("folder")
        inner = self._through_link(path)
        if inner is not None:
            return self.stat(inner)
        return None if self.beside is None and self._told.complete else super().stat(path)

    def _through_link(self, path: str) -> str | None:
        """`path` with a linked parent folder replaced by its target."""
        if not self._files:
            return None
        child = path
        for _ in range(40):
            parent = self.parent(child)
            if parent == child:
                return None
            entry = self._files.get(parent)
            if entry is not None and "link" in entry:
                target = self.target(parent, entry["link"])
                return self.absolute(self.join(target, path[len(parent) + 1 :]))
            child = parent
        return None

    def names(self, folder: str) -> tuple[str, ...] | Unknown:
        entry = self._files.get(folder)
        if entry is not None and "unlisted" in entry:
            return Unknown(entry["unlisted"])
        if folder in self._folders and self.beside is None:
            return tuple(sorted(self._folders[folder]))
        inner = self._through_link(self.join(folder, "")) if self.beside is None else None
        return super().names(folder) if inner is None else self.names(inner)

    def _final(self, path: str) -> tuple[str, Any]:
        """What is recorded of the file that a path leads to, None where nothing is, and its own path."""
        for _ in range(40):
            entry = self._files.get(path)
            inner = self._through_link(path) if entry is None else None
            if entry is not None and "link" in entry:
                path = self.target(path, entry["link"])
            elif inner is not None:
                path = inner
            else:
                return path, entry
        return path, None

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes | Unknown:
        path, entry = self._final(path)
        if entry is None:
            return super().read(path, start, length)
        size = self._size(entry)
        stop = size if length is None else min(size, start + length)
        if "ranges" in entry:
            for begin, coded in entry["ranges"]:
                data = base64.b64decode(coded)
                if begin <= start and stop <= begin + len(data):
                    return data[start - begin : stop - begin]
            return Unknown(f"{path}: bytes {start}-{stop} are not in the recording")
        data = self._content(entry)
        if stop > len(data) and len(data) < size:
            if start >= len(data):
                return Unknown(f"{path}: bytes {start}-{stop} are not in the recording")
            return data[start:]
        return data[start:stop]

    def digests(self, wanted: Mapping[str, str]) -> Mapping[str, str | Unknown]:
        live = {path: kind for path, kind in wanted.items() if self.beside is not None and path not in self._files}
        told = {path: self._digest(path, kind) for path, kind in wanted.items() if path not in live}
        return {**super().digests(live), **told}

    def _digest(self, path: str, kind: str) -> str | Unknown:
        entry = self._final(path)[1] or {}
        for digest in entry.get("digests", ()):
            if str(digest).startswith(kind + ":"):
                return str(digest)
        content = self._content(entry)
        if not {"text", "json"} & entry.keys() or len(content) != self._size(entry):
            return Unknown("its digest is not in the recording")
        return f"{kind}:{fingerprints.of_bytes(content, kind)}"

    def _size(self, entry: Mapping[str, Any]) -> int:
        if "size" in entry:
            return int(entry["size"])
        return len(self._content(entry)) + (self._header(entry)[1] if "tensors" in entry else 0)

    def _content(self, entry: Mapping[str, Any]) -> bytes:
        if "text" in entry:
            return str(entry["text"]).encode()
        if "json" in entry:
            return json.dumps(entry["json"]).encode()
        if "tensors" in entry:
            return self._header(entry)[0]
        if "image" in entry:
            width, height = entry["image"]
            size = struct.pack(">I4sIIBBBBB", 13, b"IHDR", width, height, 8, 2, 0, 0, 0)
            return b"\x89PNG\r\n\x1a\n" + size + b"\0" * 4
        return b""

    def _header(self, entry: Mapping[str, Any]) -> tuple[bytes, int]:
        """As `_header_of` its tensors, made once: every look at the file asks."""
        if id(entry) not in self._headers:
            self._headers[id(entry)] = _header_of(entry["tensors"])
        return self._headers[id(entry)]

    def refusal(self, folder: str) -> str | Unknown | None:
        found = self._nearest({mount.point: mount for mount in self._told.mounts}, folder)
        return super().refusal(folder) if found is None else found.refusal

    def mount(self, path: str) -> Mount | Unknown:
        found = self._nearest({mount.point: mount for mount in self._told.mounts}, path)
        if found is not None:
            read_only = "read-only" in (found.refusal or "")
            return Mount(found.mount or found.point, found.filesystem, read_only, found.free)
        return super().mount(path)

    def speed(self, files: Sequence[str]) -> Speed | Unknown:
        found = self._nearest({speed.path: speed for speed in self._told.speeds}, files[0]) if files else None
        return super().speed(files) if found is None else found

    def _nearest(self, said: Mapping[str, Said], path: str) -> Said | None:
        """What is recorded of the deepest folder that holds `path`."""
        sep = self.flavour.sep
        holding = [root for root in said if path == root or path.startswith(root.rstrip("/\\") + sep)]
        return said[max(holding, key=len)] if holding else None

    def schema(self, trainer: str, near: Sequence[str]) -> Schema | Unknown | None:
        # a checkout that was named lies on this machine, whatever machine is checked
        return self._here.schema(trainer, () if self.beside is None else near)

    def elsewhere(self, places: Sequence[str]) -> tuple[str, ...]:
        told = self._told.elsewhere
        return super().elsewhere(places) if told is None else told

    def gpus(self) -> tuple[Gpu, ...] | Unknown:
        cards = self._told.gpus
        if cards is None:
            return super().gpus()
        if isinstance(cards, str):
            return Unknown(cards)
        return tuple(replace(card, index=index) for index, card in enumerate(cards))

    def host(self) -> Host | Unknown:
        told = self._told.host
        return super().host() if told is None else told

    def search_path(self) -> tuple[str, ...]:
        return super().search_path() if self._told.packages is None else ()

    def packages(self) -> dict[str, str]:
        told = self._told.packages
        return super().packages() if told is None else {plain(name): version for name, version in told.items()}

    def metadata(self, folders: Sequence[str]) -> Mapping[str, Metadata]:
        told = self._told.metadata
        return super().metadata(folders) if told is None else {one.name: one for one in told}


def _header_of(tensors: Mapping[str, Any]) -> tuple[bytes, int]:
    """A safetensors file up to its data, and the bytes of that, for tensors given as {name: [dtype, shape]}."""
    offset, header = 0, {}
    for name, (dtype, shape) in tensors.items():
        size = math.prod(map(int, shape)) * BITS[dtype] // 8
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text, offset
