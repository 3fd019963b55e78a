"""What dataset folders hold: pictures, their captions, and what is neither."""

from __future__ import annotations

from collections.abc import Mapping

from .record import dataclass, field

FORBIDDEN = "may not be read by this user"


@dataclass(frozen=True)
class Image:
    path: str
    width: int
    height: int
    caption: bool


@dataclass(frozen=True)
class Garbled:
    """A caption that is not UTF-8: the first byte that is none, at `position`, in line `line`.

    `encoding` is the one that it is surely in (by its byte-order mark) or may be in, "" when it cannot be told;
    `text` is it in that encoding.
    """

    path: str
    byte: int
    position: int
    line: int
    encoding: str = ""
    text: str = ""


@dataclass(frozen=True)
class DatasetFolder:
    """What a dataset folder holds, as the trainer walks it.

    `unreadable` are image files that cannot be decoded, with the reason; `more` counts images that were not looked
    into. `others` counts the files of other kinds by extension, captions left out; `unlisted` the folders inside that
    could not be listed, `captions` the files beside pictures that may be their captions, by extension. `blank` counts
    the captions with nothing in them; `garbled` are those that are not UTF-8. `is_file`: a file stands in its place,
    and it is no JSON list of pictures. `denied`: this user may not list the folder itself.
    """

    key: str
    path: str
    images: tuple[Image, ...]
    unreadable: Mapping[str, str] = field(default_factory=dict)
    more: int = 0
    others: Mapping[str, int] = field(default_factory=dict)
    unlisted: int = 0
    captions: Mapping[str, int] = field(default_factory=dict)
    blank: int = 0
    garbled: tuple[Garbled, ...] = ()
    is_file: bool = False
    denied: bool = False

    @property
    def forbidden(self) -> bool:
        """Whether this user may read nothing of it: not the folder, or none of its pictures."""
        return self.denied or (
            bool(self.unreadable)
            and not self.images
            and not self.more
            and all(why == FORBIDDEN for why in self.unreadable.values())
        )
