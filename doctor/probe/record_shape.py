"""Whether a machine file holds what a machine file holds: the first thing that is wrong, by its place in the file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_TEXT, _WHOLE, _NUMBER = (str,), (int,), (int, float)
_NONE = type(None)
# Of every entry in these lists; what may be absent has None among its kinds. Keys of later versions are let through.
_LISTS: Mapping[str, Mapping[str, tuple[type, ...]]] = {
    "gpus": {
        "name": _TEXT,
        "memory_total": _WHOLE,
        "memory_free": _WHOLE,
        "capability": (list, _NONE),
        "driver": (str, _NONE),
        "uuid": (str, _NONE),
    },
    "mounts": {"point": _TEXT, "filesystem": (str, _NONE), "free": (int, _NONE), "refusal": (str, _NONE)},
    "speeds": {
        "path": _TEXT,
        "kind": _TEXT,
        "filesystem": _TEXT,
        "latency": (int, float, _NONE),
        "low": _NUMBER,
        "high": _NUMBER,
    },
}
_SYSTEM: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(("os", "release", "python", "cwd", "home"), _TEXT),
    **dict.fromkeys(("cpus", "memory_total", "memory_available"), _WHOLE),
}
_WORDS = {str: "a text", int: "a whole number", float: "a number", list: "a list", _NONE: "null"}
_CHOICES = {
    ("speeds", "kind"): ("ssd", "hdd", "network", "memory", "slow", "unknown"),
    ("system", "os"): ("linux", "windows", "darwin"),
}


def complaint(record: Mapping[str, Any]) -> str | None:
    """What is wrong with the sections of a machine file ("gpus[0].memory_total is missing"), None when nothing is."""
    system, packages = record.get("system"), record.get("packages")
    if system is not None and (said := _object("system", "system", system, _SYSTEM)):
        return said
    environment = (system or {}).get("environment") or {}
    if not isinstance(environment, Mapping):
        return "system.environment is no object"
    for name, value in environment.items():
        if not isinstance(value, str):
            return f"system.environment.{name} is {value!r}, not a text"
    if packages is not None and not isinstance(packages, Mapping):
        return "packages is no object"
    for section, shape in _LISTS.items():
        entries = record.get(section)
        if entries is None or (section == "gpus" and isinstance(entries, str)):  # why no card is known
            continue
        if not isinstance(entries, list):
            return f"{section} is no list"
        for index, entry in enumerate(entries):
            if said := _object(section, f"{section}[{index}]", entry, shape):
                return said
            pair = entry.get("capability") or (0, 0)
            if section == "gpus" and (len(pair) != 2 or not all(type(part) is int for part in pair)):
                return f"gpus[{index}].capability is {pair!r}, not two whole numbers"
    return None


def _object(section: str, place: str, entry: Any, shape: Mapping[str, tuple[type, ...]]) -> str | None:
    if not isinstance(entry, Mapping):
        return f"{place} is no object"
    for key, kinds in shape.items():
        value = entry.get(key)
        if isinstance(value, kinds) and not isinstance(value, bool):
            choices = _CHOICES.get((section, key))
            if choices is None or value in choices:
                continue
            return f"{place}.{key} is {value!r}, not one of {', '.join(choices)}"
        if key not in entry:
            return f"{place}.{key} is missing"
        wanted = "a number" if float in kinds else _WORDS[kinds[0]]
        return f"{place}.{key} is {value!r}, not {wanted}{' or null' if _NONE in kinds else ''}"
    return None
