"""What a crash log says: the failure it shows and what explains it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache, cached_property, lru_cache
from string import digits
from typing import Protocol

from .literals import literals
from .record import dataclass, field
from .trainer import takes_in

_LIBRARY = re.compile(
    r"[/\\](?:site|dist)-packages[/\\]|[/\\]lib[/\\]python3?[\d.]*[/\\]|^<frozen |^[A-Za-z]:.*\\[Ll]ib\\"
)

# Where what a pattern finds stands in an entry's words, and as much of it as is told.
_PLACE = re.compile(r"\{(\w+)\}(?=(\.?))")
_MOST = 200
# How far from a failure its log is looked into: back to what the run said of itself, on to the launcher's last word.
_BEFORE, _AFTER = 1000, 100


class Log(Protocol):
    """The lines of a log, by their numbers."""

    def between(self, first: int, last: int | None = None) -> Sequence[str]:
        """The lines after the number `first` and before `last`."""
        ...


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

    `begin` is the number of its first line; `cause` is the exception during whose handling this one came, `log` what
    it stands in.
    """

    type: str
    message: str
    frames: tuple[Frame, ...]
    at: int
    cause: Failure | None = None
    begin: int = 0
    log: Log | None = None

    @cached_property
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

    def around(self) -> tuple[str, str]:
        """The lines around it as one text, each a word further and, as a window breaks lines amid a word, without."""
        near = self.log.between(self.begin - _BEFORE, self.at + _AFTER) if self.log is not None else ()
        return " ".join(" ".join(near).split()), "".join(near)


@dataclass(frozen=True)
class Known:
    """What a failure means, what to do and what to avoid, and how it is known.

    `error` is the last part of the exception's type, "" for any; `text` is looked for in its message, `where` in its
    frames, `seen` in the log around it, where {name} is what the group of that name in `text` has found.

    `line` is for what a trainer prints without an exception: words that the line has, at least `least` times.
    `words` name the failure by themselves, so that it is known where a log shows no exception, too; without `text`
    they are what the message is searched for. `alone` tells that this is another failure than the rules with the same
    words look for (where it names a rule, than the others); `messenger`, that it only came after another one,
    `vague`, that its words have several causes: it is told as the likely one (but where it is `sure`, as what it says
    is true wherever they stand), and the exception from which it came tells more. `also` are other causes of the same
    words, and what tells them from that one. `source` is the address of a text of it, `sample` such a text, where
    `words` and `line` are none. {name} in `cause` and `do` stands for what the group of that name in `text` finds, or
    the group name2, as a pattern has each name once.
    """

    cause: str
    do: str
    avoid: str = ""
    also: str = ""
    error: str = ""
    text: str = ""
    rule: str = ""
    where: str = ""
    seen: str = ""
    line: str = ""
    least: int = 1
    alone: bool = False
    words: tuple[str, ...] = ()
    messenger: bool = False
    vague: bool = False
    sure: bool = False
    source: str = ""
    sample: str = ""

    @property
    def pattern(self) -> str:
        return self.text or "|".join(map(re.escape, self.words))

    @property
    def needed(self) -> tuple[str, ...]:
        """Texts of which each message that it matches has one, as it stands or on one line; none where any may."""
        if self.line:
            return (self.line,)
        return literals(self.text) if self.text else self.words

    def matches(self, failure: Failure) -> bool:
        if self.line:
            return failure.name == "Said" and self.line in failure.message and _in(self.text, failure.message)
        if not _named(self.error, failure) or (failure.name == "Reported" and not (self.text or self.words)):
            return False
        if not (_in(self.text, failure.message) if self.text else _spoken(self.words, failure.message)):
            return False
        if self.where and not any(_in(self.where, f"{f.file} {f.function} {f.code}") for f in failure.frames):
            return False
        return self.is_seen(failure)

    def is_seen(self, failure: Failure) -> bool:
        """Whether the log around the failure has what this entry is told by."""
        return not self.seen or self._seen(failure) is not None

    def _seen(self, failure: Failure) -> re.Match[str] | None:
        groups = _groups(_found(self.text, failure.message)) if "{" in self.seen else {}
        seen = _PLACE.sub(lambda place: re.escape(groups[place[1]]) if place[1] in groups else place[0], self.seen)
        return next((found for near in failure.around() if (found := re.search(seen, near)) is not None), None)

    def filled(self, words: str, failure: Failure) -> str:
        """`words` of this entry, with what its patterns find in the failure and around it."""
        parts = (part for part in failure.chain if "{" in words and (part.name == "Said" or self.matches(part)))
        found = next((found for part in parts if (found := _found(self.text, part.message)) is not None), None)
        seen = self._seen(failure) if self.seen and "{" in words else None
        groups = {**_groups(seen), **_groups(found)}
        return _PLACE.sub(lambda at: _short(groups.get(at[1], "")).removesuffix(at[2]) or "what it names", words)


@dataclass(frozen=True)
class Signature:
    """How the failure that a rule prevents looks in a log, and in the logs of which trainers (none: of all)."""

    rule: str
    error: str
    text: str
    trainers: tuple[str, ...] = ()

    def suits(self, trainer: str) -> bool:
        return not trainer or takes_in(self.trainers, trainer)

    def fits(self, failure: Failure) -> int | None:
        """How many characters of the message are its words; None where it is another failure."""
        named = _named(self.error.rpartition(".")[2], failure) and (bool(self.text) or failure.name != "Reported")
        found = _found(self.text, failure.message) if named else None
        return None if found is None else len(found[0])


def _named(error: str, failure: Failure) -> bool:
    """A message that was only reported may be of any exception."""
    return error in ("", failure.name) or failure.name == "Reported"


def _spoken(words: Sequence[str], text: str) -> bool:
    """Whether the text has one of the words, or there are none. A pattern of them would take a while to compile."""
    return not words or any(word in told for word in words for told in _told(text))


def _in(pattern: str, text: str) -> bool:
    return _found(pattern, text) is not None


def _found(pattern: str, text: str) -> re.Match[str] | None:
    whole, first = _told(text)
    needed = literals(pattern)
    if needed and not any(word in whole or word in first for word in needed):
        return None
    compiled = _compiled(pattern)
    return compiled.search(whole) or compiled.search(first)


@cache  # there are more of them than re keeps
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _groups(found: re.Match[str] | None) -> dict[str, str]:
    """What the groups of a pattern have found; name2 is another place of name, as a pattern has each once."""
    groups: dict[str, str] = {}
    for name, value in found.groupdict("").items() if found is not None else ():
        groups[name.rstrip(digits)] = groups.get(name.rstrip(digits)) or value
    return groups


def _short(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= _MOST else f"{words[:_MOST]}…"


@lru_cache(maxsize=16)  # hundreds of entries look into the same message
def _told(text: str) -> tuple[str, str]:
    """Messages are broken into lines by their writers, and by panels as wide as the window; of those of one line the
    log does not show the end."""
    return " ".join(text.split()), text.partition("\n")[0]


@dataclass(frozen=True)
class Ran:
    """How far a training came: how many of its "steps" or "epochs" (`unit`) were done, of how many.

    `resumed` tells that none of them was since it was started again.
    """

    unit: str
    done: int
    of: int
    resumed: bool = False


@dataclass(frozen=True)
class Explanation:
    """What became of a run. `known` and `rules` are empty where the cause is not known; `site` names the component
    whose loading failed, "" where the traceback does not tell. `failure` is None for a log without one; `worked`
    tells that such a log shows steps or a good end. `versions` are those that the log tells of; `excerpt` is the
    failure as it shows it, with nothing of its user. `warned` is what a line only warns of, where nothing failed,
    `ends` what the program was at where the text ends without a failure; `ran` is how far the training came before
    its failure, where the log shows that for certain.
    """

    failure: Failure | None
    known: Known | None = None
    rules: tuple[str, ...] = ()
    site: str = ""
    others: int = 0
    versions: Mapping[str, str] = field(default_factory=dict)
    excerpt: str = ""
    worked: bool = False
    warned: Known | None = None
    ends: Known | None = None
    ran: Ran | None = None

    @property
    def explained(self) -> bool:
        """Whether the log tells what became of the run: a cause, a rule that knows it, or that it worked."""
        return self.known is not None or bool(self.rules) or (self.failure is None and self.worked)

    @property
    def certain(self) -> bool:
        """Whether the words have but this cause, and not several of which it is the most usual."""
        return self.known is None or self.known.sure or not self.known.vague

    @property
    def cause(self) -> str:
        return self._filled(self.known.cause) if self.known is not None else ""

    @property
    def do(self) -> str:
        return self._filled(self.known.do) if self.known is not None else ""

    def _filled(self, words: str) -> str:
        known, failure = self.known, self.failure
        return words if known is None or failure is None else known.filled(words, failure)


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
