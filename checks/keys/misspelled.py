"""The name that was probably meant by a misspelt one."""

from __future__ import annotations

import re
from collections.abc import Iterable


def words(text: str) -> frozenset[str]:
    """The names in a list of them."""
    return frozenset(text.split())


def plain(name: str) -> str:
    """A name without what people write in different ways: case, and the signs between words."""
    return re.sub(r"[\s_.\-]", "", name).lower()


def one_slip(one: str, other: str) -> bool:
    """Whether one letter was left out, added, replaced, or two neighbours were swapped.

    With another digit it is another name: wan22 is no slip of wan21. So it is with another letter in a short word:
    i2v is no slip of t2v.
    """
    pairs = list(zip(re.split(r"[_.:-]", one), re.split(r"[_.:-]", other), strict=False))
    if len(one) == len(other) and any(a != b and len(a) == len(b) <= 3 and sorted(a) != sorted(b) for a, b in pairs):
        return False
    short, long = sorted((one, other), key=len)
    if (
        len(long) - len(short) > 1
        or one == other
        or sorted(filter(str.isdigit, one)) != sorted(filter(str.isdigit, other))
    ):
        return False
    at = next((i for i, (a, b) in enumerate(zip(short, long, strict=False)) if a != b), len(short))
    if len(short) < len(long):
        return short[at:] == long[at + 1 :]
    swapped = short[:at] + short[at + 1 : at + 2] + short[at : at + 1] + short[at + 2 :]
    return short[at + 1 :] == long[at + 1 :] or swapped == long


def likeness(one: str, other: str) -> float:
    """0 to 2: above 1 the names differ by one slip, or only in case and separators."""
    if plain(one) == plain(other):
        return 2.0
    together = len(one) + len(other)
    most = 2 * min(len(one), len(other)) / together if together else 1.0
    if most <= 0.6:  # what cannot be near by its length is not compared
        return 0.0
    lower = one.lower(), other.lower()
    if one_slip(*lower):
        # two letters swapped, one doubled or lost: likelier than one that became another
        same_letters = set(one) == set(other) or sorted(one) == sorted(other)
        return 1.0 + most - (0.0 if same_letters else 0.1)
    from difflib import SequenceMatcher

    matcher = SequenceMatcher(None, *lower)
    if matcher.real_quick_ratio() <= 0.6 or matcher.quick_ratio() <= 0.6:
        return 0.0
    return matcher.ratio() if _other_words_alike(*lower) else 0.0


def _other_words_alike(one: str, other: str) -> bool:
    """Whether two names are alike beyond the words that they share, which may be those of a whole family of names."""
    words, others = one.split("_"), other.split("_")
    rest = (
        "".join(word for word in words if word not in others),
        "".join(word for word in others if word not in words),
    )
    if not all(rest):
        return True
    from difflib import SequenceMatcher

    return SequenceMatcher(None, *rest).ratio() >= 0.5


def meant(value: object, known: Iterable[str]) -> tuple[str | None, str | None]:
    """The spelling that is certainly meant (one slip away from one known name only), and one that may be."""
    if not isinstance(value, str):
        return None, None
    names = sorted(known)
    same = [name for name in names if plain(name) == plain(value)]
    slips = same or [name for name in names if one_slip(value.lower(), name.lower())]
    scored = [(likeness(value, name), name) for name in names]
    score, near = max(scored, default=(0.0, ""))
    return (slips[0] if len(slips) == 1 else None), (near if score > 0.6 else None)
