"""Entries by the words that a text must have for them: most of two thousand are never looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ..model.crashes import Known

_HEAD = 4  # letters by which a text is asked for all words at once; shorter words are looked for one by one


class ByWords:
    """Entries in their order, each found by any of its words; one without words in every text."""

    def __init__(self, entries: Sequence[Known], words: Callable[[Known], Sequence[str]]) -> None:
        self._entries = entries
        self._always: set[int] = set()
        self._places: dict[str, list[int]] = {}
        for place, entry in enumerate(entries):
            for word in words(entry):
                self._places.setdefault(word, []).append(place)
            if not words(entry):
                self._always.add(place)
        self._short = [word for word in self._places if len(word) < _HEAD]
        self._by_head: dict[str, list[str]] = {}
        for word in self._places:
            if len(word) >= _HEAD:
                self._by_head.setdefault(word[:_HEAD], []).append(word)

    def said(self, text: str) -> list[str]:
        """The words that the text has."""
        once = "\n".join(dict.fromkeys(text.split("\n")))  # a long log says the same again and again
        heads = self._by_head.keys() & {once[at : at + _HEAD] for at in range(len(once))}
        asked = (word for head in heads for word in self._by_head[head])
        return [word for word in (*self._short, *asked) if word in text]

    def having(self, words: Iterable[str]) -> list[Known]:
        """The entries with any of these words, and those without."""
        places = self._always.union(*(self._places[word] for word in words))
        return [self._entries[place] for place in sorted(places)]
