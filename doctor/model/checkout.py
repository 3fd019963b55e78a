"""What was changed in a trainer's checkout, and how its source loads a model, read from syntax trees."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from .record import dataclass, field
from .run import Where


@dataclass(frozen=True)
class Edit:
    """The characters `start:end` of a source file, which read `old`, and what should stand there."""

    start: int
    end: int
    old: str
    new: str


@dataclass(frozen=True)
class Patch:
    """A change that circulates against "Cannot copy out of meta tensor". `code` is its own line; `edit` makes it fail
    fast, None where that takes more than a few words.
    """

    kind: Literal["random-weights", "mismatch-ignored", "meta-skipped", "to-empty"]
    where: Where
    function: str
    code: str
    edit: Edit | None = None


@dataclass(frozen=True)
class SizeFile:
    """Where the trainer writes `.aitk_size.json`; `guard` puts a try around it, None when there is one."""

    where: Where
    guard: Edit | None


@dataclass(frozen=True)
class Checkout:
    """An ai-toolkit checkout. `generation`: "A" loads Z-Image's transformer by from_pretrained (to 2026-07-12), "B"
    by a loader of its own, "" is neither. `single_files`: it loads Z-Image from one file, too. `json_captions`: it
    takes the caption out of a .json file (to 2026-06-06). `unmended` names what a later commit
    mended. `unparsed` are files that this Python cannot parse, with the reason; what they hold is not known.
    """

    root: str
    commit: str
    generation: Literal["A", "B", ""]
    single_files: bool = False
    json_captions: bool = False
    unmended: frozenset[str] = frozenset()
    patches: tuple[Patch, ...] = ()
    size_file: SizeFile | None = None
    is_git: bool = False
    unparsed: Mapping[str, str] = field(default_factory=dict)
