"""Write a machine file: every answer that a check asked for, so that it replays elsewhere."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ..model import Gpu, Host, Speed, Unknown
from ..model.cards import VISIBLE
from ..model.environment import Metadata
from .image import IMAGES
from .recorded import SCHEMA
from .world import Mount, Stat, World


class Recorder(World):
    """A world that remembers every answer of another one. `record` is the machine file that replays them."""

    def __init__(self, world: World) -> None:
        self.beside = world
        self.system = world.system
        self.variables = world.variables
        self._files: dict[str, Any] = {}
        self._mounts: dict[str, Any] = {}
        self._speeds: dict[str, Any] = {}
        self._packages: dict[str, str] = {}
        self._metadata: Mapping[str, Metadata] = {}
        self._gpus: Any = None
        self._host: Host | Unknown = Unknown("not asked")
        self._elsewhere: tuple[str, ...] = ()

    def stat(self, path: str) -> Stat | Unknown | None:
        answer = super().stat(path)
        if answer is None:
            self._files[path] = None
        elif isinstance(answer, Unknown):
            self._files[path] = {"unknown": answer.reason}
        else:
            kinds = {"link": {"link": answer.target}, "folder": {"folder": True}, "file": {"size": answer.size}}
            kinds["other"] = {"size": answer.size, "other": True}
            self._entry(path).update(kinds[answer.kind], modified_ns=answer.modified_ns)
        return answer

    def names(self, folder: str) -> tuple[str, ...] | Unknown:
        answer = super().names(folder)
        if not isinstance(answer, Unknown):
            self._entry(folder).update(folder=True, names=list(answer))
        elif "EACCES" in answer.reason:
            self._entry(folder).update(folder=True, unlisted=answer.reason)
        return answer

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes | Unknown:
        answer = super().read(path, start, length)
        # A picture's header is enough: nobody hands on the pictures themselves.
        if not isinstance(answer, Unknown) and not (len(answer) > 64 and path.lower().endswith(IMAGES)):
            final = self.resolve(path)[0]
            entry = self._entry(final)
            if "size" not in entry:
                self.stat(final)
            ranges = [r for r in entry.get("ranges", []) if r[0] != start]
            kept = _veiled(answer) if self._is_caption(path) else answer
            entry["ranges"] = [*ranges, [start, base64.b64encode(kept).decode()]]
        return answer

    def _is_caption(self, path: str) -> bool:
        """Whether a picture of the same name lies beside it, in a folder that was listed."""
        stem, _, ending = self.name(path).rpartition(".")
        names = self._files.get(self.parent(path), {}).get("names", ())
        return f".{ending}".lower() not in IMAGES and any(
            name.rpartition(".")[0] == stem and name.lower().endswith(IMAGES) for name in names
        )

    def digests(self, wanted: Mapping[str, str]) -> Mapping[str, str | Unknown]:
        answers = super().digests(wanted)
        for path, answer in answers.items():
            if not isinstance(answer, Unknown):
                self._entry(self.resolve(path)[0]).setdefault("digests", []).append(answer)
        return answers

    def _entry(self, path: str) -> Any:
        self._files[path] = entry = self._files.get(path) or {}
        return entry

    def refusal(self, folder: str) -> str | Unknown | None:
        answer = super().refusal(folder)
        self.mount(folder)
        if not isinstance(answer, Unknown):
            self._mounts.setdefault(folder, {"point": folder})["refusal"] = answer
        return answer

    def mount(self, path: str) -> Mount | Unknown:
        answer = super().mount(path)
        if isinstance(answer, Mount):
            entry = self._mounts.setdefault(path, {"point": path})
            entry.update(filesystem=answer.filesystem, free=answer.free, mount=answer.point)
            if answer.read_only:
                entry.setdefault("refusal", "read-only file system")
        return answer

    def speed(self, files: Sequence[str]) -> Speed | Unknown:
        answer = super().speed(files)
        if isinstance(answer, Speed):
            self._speeds[answer.path] = asdict(answer)
        return answer

    def elsewhere(self, places: Sequence[str]) -> tuple[str, ...]:
        self._elsewhere = super().elsewhere(places)
        return self._elsewhere

    def gpus(self) -> tuple[Gpu, ...] | Unknown:
        answer = super().gpus()
        self._gpus = answer.reason if isinstance(answer, Unknown) else [asdict(card) for card in answer]
        if not isinstance(answer, Unknown) and "GPU-" not in self.system.environment.get(VISIBLE, ""):
            for card in self._gpus:
                del card["uuid"]  # nobody hands on the number of a card that nothing names by it
        return answer

    def host(self) -> Host | Unknown:
        self._host = super().host()
        return self._host

    def packages(self) -> dict[str, str]:
        self._packages = super().packages()
        return self._packages

    def metadata(self, folders: Sequence[str]) -> Mapping[str, Metadata]:
        self._metadata = super().metadata(folders)
        return self._metadata

    def record(self, about: str) -> dict[str, Any]:
        """Everything that was asked, as it was answered: `redact` makes it fit to be shown."""
        system = {k: v for k, v in asdict(self.system).items() if k != "recorded"}
        system["environment"] = dict(system["environment"])
        return {
            "schema": SCHEMA,
            "about": about,
            "live": False,
            "complete": False,
            "now_ns": self.now_ns(),
            "system": system,
            "gpus": self._gpus,
            "host": None if isinstance(self._host, Unknown) else asdict(self._host),
            "packages": self._packages,
            "metadata": [asdict(one) for one in self._metadata.values()],
            "mounts": list(self._mounts.values()),
            "elsewhere": list(self._elsewhere),
            "speeds": list(self._speeds.values()),
            "files": self._files,
        }


def _veiled(caption: bytes) -> bytes:
    """A caption whose words cannot be read: as long, as blank, and UTF-8 or not, as it was."""
    try:
        caption.decode()
    except UnicodeDecodeError:
        return re.sub(rb"[A-Za-z0-9]", b"x", caption)
    return re.sub(rb"\S", b"x", caption)
