"""English text in, the same in another language out: by the template that the text was made of.

The source says `f"set {key} to {value}"`, the catalogue `set {key} to {value}` and its translation. So nobody who
writes a message has to think of languages: a finished text leads back to its template. What stands in a place is a
name, which is taken over, or a text of ours, which is translated; where it is neither, the template was another one.
So a sentence is in the other language or in English, never half in each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from operator import and_
from pathlib import Path

from ..model.said import AsIs, Filled, Joined
from .catalogue import Catalogue
from .template import fill, template

LONGEST = 4000  # characters of a text whose template is looked for
MOST_PARTS = 12  # of a line that is looked at as one that was put together
_MARKS = "。；：，、！？（）「」"  # of Chinese, as wide as a character with its blank
# What stands between parts of a line that were put together, and in Chinese; the same for names in a sentence.
_BETWEEN = ((" · ", " · "), ("; ", "；"), (": ", "："), (", ", "，"))
_AND = " and "
_OR = {"zh": {" or ": " 或 "}, "vi": {" or ": " hoặc "}}
_LISTED = {"zh": {", ": "、", _AND: " 和 "}, "vi": {_AND: " và "}}


class Translation:
    """One language, from catalogues that are read when they are first needed."""

    def __init__(self, language: str, files: Iterable[Path]) -> None:
        self.chinese = language.startswith("zh")
        self.between = {**(dict(_BETWEEN) if self.chinese else {}), **_OR.get(language[:2], {})}
        self.listed = _LISTED.get(language[:2], {})
        self.catalogue = Catalogue(files)
        self.known: dict[str, str | None] = {}
        self.spoken: dict[tuple[type, str], str] = {}  # a line is counted before it is shown

    def __call__(self, text: str) -> str:
        key = (type(text), text)
        if key not in self.spoken:
            self.spoken[key] = text if isinstance(text, AsIs) else self._said(text)
        return self.spoken[key]

    def _said(self, text: str) -> str:
        if isinstance(text, Joined):
            return self._together(text)
        made = self._filled(text) if isinstance(text, Filled) else None
        core = text if made else text.strip()
        made = made or self._of(core)
        return text if made is None else text.replace(core, self._joined([made]), 1)

    def _filled(self, text: Filled) -> str | None:
        """A text whose template is known: that is translated as a text whose places are names."""
        pieces = template(text.template).pieces
        if not any(pieces):  # one place, for a text of its own
            return None
        places_only = not any(map(_has_letters, pieces))
        made = text.template if places_only else None if "{{" in text.template else self._of(text.template.strip())
        if made is None:
            return None
        return made.format_map({name: self._given(value) for name, value in text.arguments.items()})

    def _of(self, text: str) -> str | None:
        """A finished text: as a whole, else sentence by sentence, else by what separates its parts."""
        if text not in self.known:
            unknown = len(text) > LONGEST or not _has_letters(text)
            ways = (self._exact, self._lines, self._whole, self._led, self._sentences, self._parts)
            self.known[text] = None if unknown else next(filter(None, (way(text) for way in ways)), None)
        return self.known[text]

    def _whole(self, text: str) -> str | None:
        """By one template, the longest whose places hold names and texts of ours."""
        if (made := self._exact(text)) or " " not in text:
            return made
        for made_of, translation, values in self.catalogue.made_of(text):
            known = {name: self._place(value) for name, value in values.items()}
            last = made_of.names[-1]
            if made_of.quotes and known[last] is None and len(_sentences(values[last])) == 1:
                known[last] = values[last]
            if None not in known.values():
                return fill(translation, {name: value or "" for name, value in known.items()})
        return None

    def _exact(self, text: str) -> str | None:
        made = self.catalogue.exact(text) or self.catalogue.exact(f"the {text}")
        return fill(made, {}) if made else None

    def _lines(self, text: str) -> str | None:
        """Line by line, where one of them is known."""
        lines = text.split("\n") if "\n" in text else []
        known = [self._of(line.strip()) for line in lines]
        return "\n".join(one or line for one, line in zip(known, lines, strict=True)) if any(known) else None

    def _led(self, text: str) -> str | None:
        """Sentences behind what they are about: "packages, host: …"."""
        lead, colon, rest = text.partition(": ")
        if not colon or not (known := self._each(_listed(lead))) or not (made := self._of(rest)):
            return None
        return f"{'，'.join(known)}：{made}" if self.chinese else f"{', '.join(known)}: {made}"

    def _sentences(self, text: str) -> str | None:
        """The longest runs of sentences that are known; the others stay as they are."""
        parts = _sentences(text)
        if len(parts) == 1:
            return None
        made: list[str] = []
        while parts:
            runs = ((count, " ".join(parts[:count])) for count in range(len(parts), 0, -1))
            known = ((count, self._whole(run) or (self._parts(run) if count == 1 else None)) for count, run in runs)
            count, first = next(((count, one) for count, one in known if one), (1, parts[0]))
            made.append(first)
            del parts[:count]
        return self._joined(made)

    def _parts(self, text: str) -> str | None:
        """A line that was put together of two, each of them known or without words."""
        for separator, chinese in _BETWEEN:
            parts = text.split(separator)
            for at in range(1, len(parts) if len(parts) <= MOST_PARTS else 0):
                ends = [separator.join(parts[:at]), separator.join(parts[at:])]
                if known := self._each(ends):
                    return (chinese if self.chinese else separator).join(known)
        return None

    def _each(self, parts: Sequence[str]) -> list[str] | None:
        known = [self._exact(part) or self._value(part) for part in parts]
        return None if None in known or known == list(parts) else [one or "" for one in known]

    def _place(self, value: str) -> str | None:
        """What stands in a place of a text that is led back; no part of a line that was put together."""
        return self._exact(value) or (None if "; " in value or " [" in value else self._value(value))

    def _value(self, value: str) -> str | None:
        """What stands in a place: a text of ours, a list of them, or a name; None for prose that is not known."""
        core = value.strip()
        if " " not in core:
            return value
        if len(_sentences(core)) > 1:
            return None
        if made := self._whole(core):
            return value.replace(core, made, 1)
        if made := self._of(core):
            return None if self.chinese and _is_prose(made) else value.replace(core, made, 1)
        if len(parts := _listed(core)) > 1 and (known := self._each(parts)):
            return ("、" if self.chinese else ", ").join(known)
        return None if _is_prose(core) else value

    def _given(self, value: object) -> object:
        """What was handed over by itself: whatever is not ours is somebody else's words."""
        if isinstance(value, AsIs | Joined | Filled):
            return self(value)
        return (self._value(value) or value) if isinstance(value, str) else value

    def _together(self, text: Joined) -> str:
        names = text.last == _AND  # of which one alone is no text of ours
        between = self.listed if names else self.between
        *first, end = (str(self._given(part)) if names else self(part) for part in text.parts)
        return self._joined([f"{between.get(text.by, text.by).join(first)}{between.get(text.last, text.last)}{end}"])

    def _joined(self, parts: Iterable[str]) -> str:
        text = " ".join(parts)
        return _tight(text) if self.chinese else text


def _has_letters(text: str) -> bool:
    return text.upper() != text.lower()


def _sentences(text: str) -> list[str]:
    made: list[str] = []
    ended = True
    for word in text.split(" "):
        if ended and word:
            made.append(word)
        elif made:
            made[-1] += f" {word}"
        else:
            made.append(f" {word}")
        ended = word.endswith((".", "!", "?", "…"))
    return made


def _listed(text: str) -> list[str]:
    return text.replace(", and ", ", ").replace(" and ", ", ").split(", ")


def _is_prose(text: str) -> bool:
    """Whether it has two words of English in a row that are no quotation, path or name."""
    for mark in "`'\"":
        parts = text.split(mark)
        text = " ".join(parts[::2]) if len(parts) % 2 else text
    plain = [len(word) > 1 and word.isalpha() and word.isascii() and word.islower() for word in text.split()]
    return any(map(and_, plain, plain[1:]))


def _tight(text: str) -> str:
    """Chinese without the blanks of English between its sentences and words."""
    first, *words = text.split(" ")
    made = [first]
    for before, word in pairwise((first, *words)):
        left, right = before[-1:], word[:1]
        wide = left and right and (left in _MARKS or right in _MARKS or min(left, right) > "\u2e7f")
        made.append(word if wide else f" {word}")
    return "".join(made)
