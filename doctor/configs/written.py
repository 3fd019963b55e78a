"""Written values by key, each as the type that is asked for; which were asked for is noted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from ..model import Value
from ..model.record import dataclass, field, replace

MOST = 1e18  # what is larger counts or measures nothing


@dataclass(frozen=True)
class Dialect:
    """How a trainer makes values of what is written.

    `arrives` is what of a key's written value reaches it, None for nothing. Where all arrives as `words` of a command
    line, texts are numbers and numbers texts. `on` are the texts for which a flag is on: without any, every text.
    """

    arrives: Callable[[str, Any], Any] = lambda key, value: value
    words: bool = False
    on: tuple[str, ...] = ()


YAML = Dialect()


@dataclass(frozen=True)
class Written:
    """Written values by their key. A value of the wrong type reads as the default: rules of their own speak of it.

    Of several keys the first one from which a value arrives counts. `read` are the keys that were asked for, and
    `places` what stands in front of each key that is asked for: it is looked for in the first of them first.
    """

    settings: Mapping[str, Value]
    dialect: Dialect = YAML
    read: set[str] = field(default_factory=set)
    places: tuple[str, ...] = ("",)

    def below(self, *keys: str) -> Written:
        """The values in mappings or lists, by their keys there, the nearest of these first; "" is the whole."""
        return replace(self, places=tuple(f"{key}/" if key else "" for key in keys))

    def key(self, key: str) -> str:
        """The whole key: the nearest one that is written, else the nearest."""
        keys = [place + key for place in self.places]
        return next((one for one in keys if one in self.settings), keys[0])

    def arrived(self, key: str) -> Any:
        """What arrives of a value; this alone is no reading."""
        whole = self.key(key)
        return self.dialect.arrives(whole, self.settings[whole].value) if whole in self.settings else None

    def has(self, key: str) -> bool:
        """Whether anything but null arrives; this alone is no reading."""
        return self.arrived(key) is not None

    def count(self, key: str) -> int | None:
        """How many entries a list has, None where none is written; this alone is no reading of them."""
        listed = self.settings[key].value if key in self.settings else None
        return len(listed) if isinstance(listed, list) else None

    def raw(self, *keys: str, default: Any = None) -> Any:
        """What arrives of the value; `default` where that is nothing."""
        first = None
        for key in keys:
            for place in self.places:
                whole = place + key
                self.read.add(whole)
                if first is None and whole in self.settings:
                    first = self.dialect.arrives(whole, self.settings[whole].value)
        return default if first is None else first

    def text(self, *keys: str, default: str = "") -> str:
        value = self.raw(*keys)
        if self.dialect.words and isinstance(value, int | float) and not isinstance(value, bool):
            return str(value)
        return value if isinstance(value, str) and value else default

    def maybe(self, *keys: str) -> str | None:
        return self.text(*keys) or None

    def flag(self, *keys: str, default: bool = False) -> bool:
        # the trainers ask for truth, so the text "false" is true where it arrives
        value = self.raw(*keys)
        if value is not None and self.dialect.on:
            return str(value).lower() in self.dialect.on
        return default if value is None else bool(value)

    def number(self, *keys: str, default: float = 0.0) -> float:
        value = self.raw(*keys)
        if not self.dialect.words:
            return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else default
        try:
            made = default if isinstance(value, bool) else float(value)
        except (TypeError, ValueError, OverflowError):
            return default
        return made if abs(made) < MOST else default

    def whole(self, *keys: str, default: int = 0) -> int:
        value = self.raw(*keys)
        value = value if type(value) is int else self.number(*keys, default=default)
        return int(value) if abs(value) < MOST and value == value // 1 else default

    def mapping(self, *keys: str) -> Mapping[str, Any]:
        value = self.raw(*keys)
        return value if isinstance(value, dict) else {}

    def entries(self, *keys: str) -> list[Any]:
        value = self.raw(*keys)
        return value if isinstance(value, list) else []

    def names(self, key: str) -> tuple[str, ...]:
        """The entries of a list, or of a text that commas divide."""
        value = self.raw(key) or ""
        return tuple(str(one).strip() for one in (value if isinstance(value, list) else str(value).split(",")))

    def pairs(self, key: str) -> dict[str, str]:
        """`name=value` entries, as in network_args."""
        value = self.raw(key)
        entries = value if isinstance(value, list) else [value]
        return dict(entry.split("=", 1) for entry in entries if isinstance(entry, str) and "=" in entry)

    def unread(self) -> Iterator[str]:
        """The keys that were asked for neither themselves nor as a part of what holds them.

        A mapping or list of which nothing was asked for is one key.
        """
        touched = set[str]()
        for key in self.read:
            while (key := key.rpartition("/")[0]) and key not in touched:
                touched.add(key)
        for key, written in self.settings.items():
            parents = above(key)
            if not self.read.isdisjoint((key, *parents)) or (
                key in touched and isinstance(written.value, dict | list)
            ):
                continue
            if all(one in touched for one in parents if one in self.settings):
                yield key


class Setting(NamedTuple):
    """Where a field of the recipe is written, and how that is read; `default` None: what `read` has without one."""

    key: str
    read: Callable[..., Any] = Written.maybe
    default: Any = None

    def of(self, w: Written) -> Any:
        return self.read(w, self.key) if self.default is None else self.read(w, self.key, default=self.default)


def fields_of(w: Written, settings: Mapping[str, Setting]) -> dict[str, Any]:
    """The values of fields by the settings that say them."""
    return {name: setting.of(w) for name, setting in settings.items()}


def above(key: str) -> list[str]:
    """The keys of all that holds it."""
    return [key[:end] for end, character in enumerate(key) if character == "/"]
