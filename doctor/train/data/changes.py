"""What of the datasets is no longer as it was when the run was saved."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from .items import Item


def captions_of(items: Iterable[Item]) -> dict[str, str]:
    """Of each picture in its order, by the sha256 of its bytes, what tells its captions from others."""
    found: dict[str, set[str]] = {}
    for item in items:
        found.setdefault(item.picture.digest, set()).add(item.caption)
    return {
        digest: hashlib.sha256("\0".join(sorted(captions)).encode("utf-8", "replace")).hexdigest()[:16]
        for digest, captions in found.items()
    }


def changes(before: Mapping[str, str], now: Mapping[str, str], step: int) -> str:
    """What to say of pictures and captions (as `captions_of`) that changed since the run was saved after `step`."""
    counts = {
        "new": len(now.keys() - before.keys()),
        "gone": len(before.keys() - now.keys()),
        "with another caption": sum(now.get(digest, caption) != caption for digest, caption in before.items()),
    }
    told = ", ".join(f"{what}: {count}" for what, count in counts.items() if count)
    moved = list(before) != list(now)
    if not told and not moved:
        return ""
    said = f"pictures {told}" if told else "the same pictures under other names"
    order = " From here on the pictures come in another order." if moved else ""
    return f"The datasets have changed since the run was saved at step {step} ({said}).{order}"
