"""A text with places for what is filled in, and the way back: from a finished text to what was filled in."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

COUNT = "number"  # the name of places that hold nothing but a whole number
LEAD = 12  # characters of a text that may end with somebody else's words


_OPEN, _CLOSE = "\ue000", "\ue001"  # braces that are meant as such


class Template:
    """`pieces` are its plain texts, `names` the places between them; one that `quotes` ends with anybody's words."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.names: list[str] = []
        self.places: list[str] = []  # as they are written: "{value!r}"
        first, *others = text.replace("{{", _OPEN).replace("}}", _CLOSE).split("{")
        self.pieces = [first]
        for one in others:
            place, end, piece = one.partition("}")
            name = place.partition(":")[0].partition("!")[0]
            if end and name.isidentifier():
                self.names.append(name)
                self.places.append(f"{{{place}}}")
                self.pieces.append(piece)
            else:  # a brace of a text without places
                self.pieces[-1] += "{" + one
        self.pieces = [one.replace(_OPEN, "{").replace(_CLOSE, "}") for one in self.pieces]
        self.plain = sum(map(len, self.pieces))
        self.quotes = self.plain >= LEAD and "".join(self.pieces[-2:]).endswith((": ", ": ."))

    def values(self, text: str) -> dict[str, str] | None:
        """What stands in each place of a text that was made of this template; None for any other text.

        Linear in the text: of several ways to share it out, the one that ends each value first.
        """
        if not self.names or not self.plain:
            return None
        first, *between, last = self.pieces
        at, end = len(first), len(text) - len(last)
        if end < at or not text.startswith(first) or not text.endswith(last):
            return None
        found: dict[str, str] = {}
        for name, piece in zip(self.names, between, strict=False):
            until = text.find(piece, at, end)
            if until < 0 or found.setdefault(name, text[at:until]) != text[at:until]:
                return None
            at = until + len(piece)
        if found.setdefault(self.names[-1], text[at:end]) != text[at:end]:
            return None
        return found if found.get(COUNT, "0").replace(",", "").isdecimal() else None


template = cache(Template)


def fill(pattern: str, values: Mapping[str, str]) -> str:
    """A template with values that are finished texts, whatever format it asks for; a place without one stays."""
    made = template(pattern)
    places = zip(made.names, made.places, made.pieces[1:], strict=True)
    return made.pieces[0] + "".join(values.get(name, place) + piece for name, place, piece in places)
