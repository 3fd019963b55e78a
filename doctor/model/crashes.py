"""What a crash log says: the failure it shows and what explains it."""

from __future__ import annotations

import re

from .record import dataclass

_LIBRARY = re.compile(r"[/\\](?:site|dist)-packages[/\\]|[/\\]lib[/\\]python3?[\d.]*[/\\]|^<frozen ")


@dataclass(frozen=True)
class Frame:
    """One line of a traceback: `code` is the source line as the log shows it, "" where it does not."""

    file: str
    line: int
    function: str
    code: str = ""

    @property
    def is_library(self) -> bool:
        """Whether it is code that was installed, none of the run's own."""
        return _LIBRARY.search(self.file) is not None


@dataclass(frozen=True)
class Failure:
    """An exception with its traceback; `type` as the log writes it, `at` the number of its last line, from 1.

    `cause` is the exception during whose handling this one came.
    """

    type: str
    message: str
    frames: tuple[Frame, ...]
    at: int
    cause: Failure | None = None

    @property
    def name(self) -> str:
        return self.type.rpartition(".")[2]

    @property
    def chain(self) -> tuple[Failure, ...]:
        """This one, then what it came from."""
        return (self, *(self.cause.chain if self.cause is not None else ()))

    @property
    def frame(self) -> Frame | None:
        """The frame that matters: the last one outside of the libraries, else the last one."""
        own = [frame for frame in self.frames if not frame.is_library] or self.frames
        return own[-1] if own else None


@dataclass(frozen=True)
class Known:
    """`error` is the last part of the exception's type, "" for any; `text` is looked for in its message."""

    error: str
    text: str
    cause: str
    do: str
    avoid: str = ""
    rule: str = ""

    def matches(self, failure: Failure) -> bool:
        return self.error in ("", failure.name) and re.search(self.text, failure.message) is not None


@dataclass(frozen=True)
class Signature:
    """How the failure that a rule prevents looks in a log."""

    rule: str
    error: str
    text: str


@dataclass(frozen=True)
class Explanation:
    """What became of a run. `known` and `rules` are empty where the cause is not known; `site` names the component
    whose loading failed, "" where the traceback does not tell. `failure` is None for a log without one.
    """

    failure: Failure | None
    known: Known | None = None
    rules: tuple[str, ...] = ()
    site: str = ""
    others: int = 0


@dataclass(frozen=True)
class Changed:
    """A line that both logs have, with other numbers in it; `at` is its place in the second, from 1."""

    good: str
    bad: str
    at: int


@dataclass(frozen=True)
class Comparison:
    """What tells the log of a failed run from that of one that worked, before its failure. Places count from 1.

    `parted` is the last line that both have (`common`), None where they share none; `then` is what the run that
    worked said next. `warnings` and `others` are lines that only the failed run has. `bad_loss` is where its first
    loss is no finite number; `good_losses` and `bad_losses` are how many losses each log shows.
    """

    parted: int | None
    common: str
    changed: tuple[Changed, ...]
    warnings: tuple[tuple[int, str], ...]
    others: tuple[tuple[int, str], ...]
    then: tuple[str, ...]
    bad_loss: int | None
    good_losses: int
    bad_losses: int
