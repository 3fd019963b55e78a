"""A command of a script, and its words with their places."""

from __future__ import annotations

from typing import Literal

from ..model.record import dataclass

Shell = Literal["bash", "powershell", "cmd"]


@dataclass(frozen=True)
class Word:
    """One word as the program gets it, and the characters `start:end` of the file that it was written as.

    `style` is the quote that it is in as a whole, "" for none; `plain` is false where variables are in it. What only
    the shell itself can tell, such as a variable that nobody sets, stays as it is written; then `known` is false, and
    `many` is true where that may be several words, or none.
    """

    text: str
    start: int
    end: int
    style: str = ""
    plain: bool = True
    known: bool = True
    many: bool = False


@dataclass(frozen=True)
class Command:
    """One command. `broken` is where its line was meant to go on and does not.

    `visible` is the CUDA_VISIBLE_DEVICES that the text sets for it, ALL where it takes the variable away. `moved` is
    true where the text has left the folder that it was started in, `files` are those behind < and >.
    """

    words: tuple[Word, ...]
    shell: Shell
    broken: int | None = None
    visible: str | None = None
    moved: bool = False
    files: tuple[str, ...] = ()

    @property
    def start(self) -> int:
        return self.words[0].start
