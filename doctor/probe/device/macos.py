"""macOS: `mount` and `diskutil info -plist` say what a folder lies on.

Not run on a Mac by its makers: the parsing is tested on texts as documented in diskutil(8) and mount(8).
"""

from __future__ import annotations

import re

from . import Device

DEADLINE = 3.0
_LINE = re.compile(r"^(?P<source>.+?) on (?P<point>/.*) \((?P<kind>[\w.]+)[,)]")


def mounts() -> tuple[tuple[str, str, str], ...]:
    """(mount point, file system, source), the deepest first; empty when `mount` does not answer."""
    return read_mounts((_run("/sbin/mount") or b"").decode("utf-8", "replace"))


def read_mounts(text: str) -> tuple[tuple[str, str, str], ...]:
    lines = (found for line in text.splitlines() if (found := _LINE.match(line)))
    made = [(line["point"], line["kind"], line["source"]) for line in lines]
    return tuple(sorted(made, key=lambda mount: -len(mount[0])))


def device_of(point: str) -> Device | None:
    """The disk behind a mount point, None when diskutil does not know it in time."""
    answer = _run("/usr/sbin/diskutil", "info", "-plist", point)
    return None if answer is None else read_diskutil(answer)


def read_diskutil(plist: bytes) -> Device | None:
    import plistlib
    from xml.parsers.expat import ExpatError

    try:
        told = plistlib.loads(plist)
    except (plistlib.InvalidFileException, ExpatError, ValueError):
        return None
    if not isinstance(told, dict) or told.get("Error"):
        return None
    bus, solid = told.get("BusProtocol"), told.get("SolidState")
    # an APFS volume lies in a container, whose disk is the one that people know
    stores = [store for store in told.get("APFSPhysicalStores") or () if isinstance(store, dict)]
    store = stores[0].get("APFSPhysicalStore") if stores else None
    name = store or told.get("ParentWholeDisk") or told.get("DeviceIdentifier")
    words = ", ".join(str(part) for part in (name, bus) if part)
    virtual = bus in ("Disk Image", "Virtual Interface")
    return Device(words, (not solid) if isinstance(solid, bool) else None, virtual=virtual)


def _run(*command: str) -> bytes | None:
    import subprocess

    try:
        return subprocess.run(command, capture_output=True, timeout=DEADLINE, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
