"""Written values by key, each as the type that is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..model import Value
from ..model.record import dataclass, replace


def with_leaves(key: str, value: Value) -> dict[str, Value]:
    """A setting as readers hand it on: with each of its values by a key of its own where it is a mapping."""
    inside = value.value if isinstance(value.value, dict) else {}
    return {key: value, **{f"{key}/{name}": replace(value, value=one) for name, one in inside.items()}}


@dataclass(frozen=True)
class Written:
    """Written values by their key. A value of the wrong type reads as the default: CFG004 speaks of it."""

    settings: Mapping[str, Value]

    def raw(self, key: str) -> Any:
        found = self.settings.get(key)
        return None if found is None else found.value

    def text(self, key: str, default: str) -> str:
        value = self.raw(key)
        return value if isinstance(value, str) and value else default

    def maybe(self, key: str) -> str | None:
        return self.text(key, "") or None

    def flag(self, key: str, default: bool = False) -> bool:
        # the trainer asks for truth, so the text "false" is true
        value = self.raw(key)
        return default if value is None else bool(value)

    def number(self, key: str, default: float) -> float:
        value = self.raw(key)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else default

    def whole(self, key: str, default: int) -> int:
        value = self.raw(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1:
            return default
        return int(value) if abs(value) < 1e18 else default

    def mapping(self, key: str) -> Mapping[str, Any]:
        value = self.raw(key)
        return value if isinstance(value, dict) else {}

    def entries(self, key: str) -> list[Any]:
        value = self.raw(key)
        return value if isinstance(value, list) else []
