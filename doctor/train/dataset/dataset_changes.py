"""A resumed run says what of its datasets has changed since it was saved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...files import fingerprints
from .training_items import TrainingItem

OFTEN = "shown more or less often"
PARTS = ("with another caption", "with another control image", "with another mask", OFTEN)


def dataset_fingerprint(items: Iterable[TrainingItem]) -> dict[str, str]:
    """Returns what tells each image from itself with other PARTS, by the sha256 of its bytes, in order.

    The parts stand with blanks between them, the last one the number of its items.
    """
    found: dict[str, list[TrainingItem]] = {}
    for item in items:
        found.setdefault(item.picture.digest, []).append(item)
    told = {
        digest: [fingerprints.of_texts(*sorted(texts)) for texts in _parts(same)] for digest, same in found.items()
    }
    return {digest: " ".join([*parts, str(len(found[digest]))]) for digest, parts in told.items()}


def dataset_changes(before: Mapping[str, str], now: Mapping[str, str], step: int) -> str:
    """Returns what to say of images that changed since the run was saved after `step`, or "".

    Parts that an older state does not have count as unchanged.
    """
    both = [(before[digest].split(), now[digest].split()) for digest in before if digest in now]
    counts = {"new": len(now.keys() - before.keys()), "gone": len(before.keys() - now.keys())}
    for place, what in enumerate(PARTS):
        counts[what] = sum(len(was) > place and was[place] != is_[place] for was, is_ in both)
    told = ", ".join(f"{what}: {count}" for what, count in counts.items() if count)
    moved = list(before) != list(now) or counts[OFTEN] > 0
    if not told and not moved:
        return ""
    said = f"pictures {told}" if told else "the same pictures under other names"
    order = " From here on the pictures come in another order." if moved else ""
    return f"The datasets have changed since the run was saved at step {step} ({said}).{order}"


def _parts(items: Iterable[TrainingItem]) -> tuple[set[str], ...]:
    """The captions, control images and masks of these items."""
    captions, controls, masks = set(), set(), set()
    for item in items:
        captions.add(item.written)
        controls.add("".join(control.digest for control in item.picture.controls))
        masks.add("" if item.mask is None else item.mask.digest)
    return captions, controls, masks
