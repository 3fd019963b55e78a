"""English text in, the same in another language out: by the template that the text was made of.

The source says `f"set {key} to {value}"`, the catalogue `set {key} to {value}` and its translation. So nobody who
writes a message has to think of languages: a finished text leads back to its template, and what stands in its places
is taken over, translated where it is a text of ours itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..model.said import Filled
from .catalogue import Catalogue
from .template import fill

LONGEST = 4000  # characters of a text whose template is looked for
_SENTENCES = re.compile(r"(?<=[.!?…]) (?=\S)")
_LIST = re.compile(r", and |, | and ")
_LETTERS = re.compile(r"[^\W\d_]{2}")
_WORDS = re.compile(r"[^\W\d_]{2,} ")
_WIDE = re.compile(r"(?<=[。；：，、！？（）「」]) | (?=[。；：，、！？（）「」])")
# What stands between parts of a line that were put together, and in Chinese.
_BETWEEN = ((" · ", " · "), ("; ", "；"), (": ", "："), (", ", "，"))


class Translation:
    """One language, from catalogues that are read when they are first needed."""

    def __init__(self, language: str, files: Iterable[Path]) -> None:
        self.chinese = language.startswith("zh")
        self.catalogues = [Catalogue(file) for file in files]
        self.known: dict[str, str] = {}

    def __call__(self, text: str) -> str:
        if isinstance(text, Filled) and (made := self._filled(text)):
            return made
        core = text.strip()
        if core not in self.known:
            self.known[core] = self._of(core) or core
        made = self.known[core]
        return text if made == core else text.replace(core, made, 1)

    def _filled(self, text: Filled) -> str:
        """A text whose templates are known, one or several after the other; "" where one has no translation."""
        rest, parts = text.template.strip(), []
        while rest:
            found = ((one, one.beginning(rest)) for one in self.catalogues)
            catalogue, start = next(((one, start) for one, start in found if start), (None, ""))
            if catalogue is None:
                return ""
            parts.append(catalogue.texts[start])
            rest = rest[len(start) :].strip()
        values = {name: self._value(one) if isinstance(one, str) else one for name, one in text.arguments.items()}
        return self._joined(part.format_map(values) for part in parts)

    def _of(self, text: str) -> str | None:
        """A finished text: as a whole, else sentence by sentence, else by what separates its parts."""
        if len(text) > LONGEST or not _LETTERS.search(text):
            return None
        return self._whole(text) or self._sentences(text) or self._parts(text) or self._whole(text, loose=True)

    def _whole(self, text: str, loose: bool = False) -> str | None:
        """By one template. What stands in its places is no sentence beside another, unless it is taken `loose`."""
        for catalogue in self.catalogues:
            if made := catalogue.exact(text):
                return fill(made, {})
            for template, values in catalogue.made_of(text):
                if loose or not any(map(_SENTENCES.search, values.values())):
                    return fill(template, {name: self._value(value) for name, value in values.items()})
        return None

    def _sentences(self, text: str) -> str | None:
        """The longest runs of sentences that are known; the others stay as they are."""
        parts = _SENTENCES.split(text)
        if len(parts) == 1:
            return None
        made: list[str] = []
        while parts:
            for count in range(len(parts), 0, -1):
                run = " ".join(parts[:count])
                if known := self._whole(run) or (self._parts(run) if count == 1 else None):
                    made.append(known)
                    break
            else:
                count = 1
                made.append(parts[0])
            del parts[:count]
        return self._joined(made)

    def _parts(self, text: str) -> str | None:
        """A line that was put together, where each of its parts is known or holds no words."""
        for separator, chinese in _BETWEEN:
            parts = text.split(separator)
            if len(parts) > 1 and (known := self._each(parts)):
                return (chinese if self.chinese else separator).join(known)
        return None

    def _each(self, parts: Sequence[str]) -> list[str] | None:
        pairs = [(self._of(part), part.strip()) for part in parts]
        if not any(one for one, _ in pairs) or any(one is None and _WORDS.search(part) for one, part in pairs):
            return None
        return [one or part for one, part in pairs]

    def _value(self, value: str) -> str:
        """What stands in a place: a text of ours, a list of them, or a name, which stays as it is."""
        if " " not in value.strip():
            return value
        if made := self._of(value.strip()):
            return value.replace(value.strip(), made, 1)
        known = self._each(_LIST.split(value))
        return ("、" if self.chinese else ", ").join(known) if known else value

    def _joined(self, parts: Iterable[str]) -> str:
        text = " ".join(parts)
        return _WIDE.sub("", text) if self.chinese else text
