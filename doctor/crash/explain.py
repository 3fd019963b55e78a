"""From a log to its explanation: the failure that ended the run, the rules' signatures, and what is known beyond."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ..model.crashes import Explanation, Failure, Known, Signature
from ..model.record import replace
from ..model.script import SCRIPT
from ..model.trainer import OF_RUNNER
from ..trainers import trainers
from . import table
from .complaints import complaint
from .component import component
from .decisive import decisive, is_cause, named_above
from .failures import LAUNCHERS, REPORTED, SAID, failures
from .knowing import ABOVE, closer, is_messenger, known_of, said_above, tries_another
from .lines import Lines, clean
from .lookups import lookup
from .messages import CUT_OFF
from .options import given_options, refused_options
from .out_of_memory import out_of_memory
from .phrases import Entries, phrases
from .question import excerpt, versions
from .raised import by_source
from .ran import ran
from .refusals import refused
from .survived import READING, killed, outlived, went_on

_WARNED = re.compile(r"\bWARN(?:ING)?\b|Warning: |\bwarnings?\.warn|\b[Ff]alling back\b|\b(?:skipp|retrying|ignor)")
_LATE = 4000
_LATEST = 40
_LAST = 10  # of what a text ends with
_LONGEST = 1000


def explain(text: str, signatures: Iterable[Signature]) -> Explanation:
    """The last failure of the log that ended the run, explained. Pure: nothing is read but `text`."""
    lines = clean(text)
    found = failures(lines)
    ended = _ended(found, lines)
    survived = [failure for failure in found if failure not in ended]
    installed, signed, trainer = versions(lines), tuple(signatures), _trainer(found)
    failure = named_above(lines, decisive(ended), survived) if ended else None
    known = (refused_options(failure) or known_of(failure, installed, lines)) if failure is not None else None
    rules = _rules(failure, signed, trainer)
    if failure is None or (not tries_another(failure) and _says_little(failure, known, rules)):
        failure, known = _by_words(lines, failure, known, survived)
        known = closer(known, failure, installed, lines) if failure is not None else None
        rules = _rules(failure, signed, trainer)
    elif known is not None and known.vague and (above := said_above(lines, failure)) and not above[1].vague:
        # an exception without frames right before it, from which it came
        failure = failure if failure.cause is not None else replace(failure, cause=above[0])
        known = closer(above[1], above[0], installed, lines)
    worked = failure is None and (bool(found) or went_on([line for line in lines if not READING.search(line)], 1))
    if failure is None and not worked:
        failure, known = complaint(lines, None) or (_bare(lines), None)
    if failure is None:
        return _of_no_failure(lines, len(found), installed, worked=worked)
    if known is None and not rules:
        failure, known = complaint(lines, failure) or (failure, None)
    known = _more(known, failure, rules, lines)
    rules = _told_rules(known, failure, rules)
    others = sum(other is not failure and is_cause(other) for other in found)
    site, far = component(failure, rules, lines), ran(lines.last(_LATE))
    return Explanation(failure, known, rules, site, others, installed, excerpt(lines, failure), ran=far)


def _ended(found: Sequence[Failure], lines: Lines) -> list[Failure]:
    """The failures that the run did not go on after."""
    ended = [failure for failure in found if not outlived(failure, found, lines)]
    if not found or ended:
        return ended
    later = failures(lines.after(found[-1].at))  # what was survived hides no words that come after it
    return [failure for failure in later if not outlived(failure, later, lines)]


def _by_words(
    lines: Lines, failure: Failure | None, known: Known | None, survived: Sequence[Failure]
) -> tuple[Failure | None, Known | None]:
    """What the log says elsewhere that tells more than its failure, or that of a failure and of what is known."""
    told = table.known if known is None else table.beyond_general
    above = said_above(lines, failure) if failure is not None and failure.name == CUT_OFF else None
    return next(_phrases(lines, failure, told, survived), above or (failure, known))


def _of_no_failure(lines: Lines, found: int, installed: Mapping[str, str], *, worked: bool) -> Explanation:
    warned = None if worked else next((known for _, known in phrases(lines, table.warned)), None)
    at = None if worked or warned is not None else _ends(lines)
    return Explanation(None, None, (), "", found, installed, excerpt(lines, None), worked, warned, at)


def _more(known: Known | None, failure: Failure, rules: Sequence[str], lines: Lines) -> Known | None:
    """Where no entry knows it, what its package's source says of it; where one does, what the log tells beside."""
    if known is None or table.is_general(known):
        known = None if rules else by_source(failure) or lookup(failure) or known or refused(failure)
    known = out_of_memory(known, failure, lines)
    return given_options(failure) or known if known is not None and known.messenger else known


def _told_rules(known: Known | None, failure: Failure, rules: tuple[str, ...]) -> tuple[str, ...]:
    """The rule of what is known first; none where that is another failure than the rules look for."""
    if known is not None and known.rule:
        return tuple(dict.fromkeys((known.rule, *(rules if not known.alone else ()))))
    return () if known is not None and (known.alone or known.line or failure.name == SAID) else rules


def _ends(lines: Lines) -> Known | None:
    """What the last line that tells of it says that the program was at."""
    last = [line for line in lines if line.strip()][: -_LAST - 1 : -1]
    return next((known for line in last for known in table.ends() if any(word in line for word in known.words)), None)


def _bare(lines: Lines) -> Failure | None:
    """A line that is what a package raises, with no word that tells of a failure."""
    last = range(max(0, len(lines) - _LATEST), len(lines))
    latest = {lines[at].strip(): lines.numbers[at] for at in last if 0 < len(lines[at]) <= _LONGEST}
    said = (Failure(SAID, line, (), at, begin=at) for line, at in reversed(latest.items()))
    return next((one for one in said if not _WARNED.search(one.message) and by_source(one) is not None), None)


def _says_little(failure: Failure, known: Known | None, rules: Sequence[str]) -> bool:
    """Whether other words of the log may tell more than this failure does."""
    if known is not None:
        little = failure.name == REPORTED and table.is_general(known)
        return known.messenger or failure.name == CUT_OFF or little
    return not (failure.frames or rules or failure.name == "ArgumentError")


def _phrases(
    lines: Lines, failure: Failure | None, told: Entries, survived: Sequence[Failure]
) -> Iterator[tuple[Failure, Known]]:
    """What is known by its words alone, where the run did not go on after them, nor survived the failure they are of.

    Where the log has a failure, the words of a launcher say no more than that; where it has one that speaks for
    itself, what was warned of, or stands far above, is of something else.
    """
    found = failure is not None and failure.name not in (*LAUNCHERS, CUT_OFF)
    speaks = found and failure is not None and not (killed(failure) or is_messenger(failure))
    first = failure.begin - ABOVE if speaks and failure is not None else 0
    for said, known in phrases(lines.last(_LATE), told):
        if (found and known.messenger) or (speaks and (said.at < first or _WARNED.search(said.message))):
            continue
        after = lines.between(said.at)
        if said.at == 1:  # what a text is headed with comes not before what follows
            after = [line for line in after if not READING.search(line)]
        over = any(other.begin <= said.at <= other.at for other in survived) or went_on(after, 1)
        if not over:
            yield said, known


def _rules(failure: Failure | None, signatures: Sequence[Signature], trainer: str) -> tuple[str, ...]:
    """The rules that know this failure, the one that knows most of its message first."""
    hits = [
        (known, signature.rule)
        for part in (failure.chain if failure is not None else ())
        for signature in signatures
        if signature.suits(trainer) and (known := signature.fits(part)) is not None
    ]
    return tuple(dict.fromkeys(rule for _, rule in sorted(hits, key=lambda hit: -hit[0])))


def _trainer(found: Sequence[Failure]) -> str:
    """Whose code the frames are of; "" where there is none but of libraries."""
    frames = [frame for failure in found for part in failure.chain for frame in part.frames]
    files = "\n".join(frame.file for frame in frames)
    own = any(not frame.is_library for frame in frames)
    trained = (one.name for one in (OF_RUNNER, *trainers()) if one.in_logs and re.search(one.in_logs, files))
    return next(trained, SCRIPT if own else "")
