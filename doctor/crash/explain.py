"""From a failure to its cause: the rules' own signatures first, then what is known beyond them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from ..model.crashes import Explanation, Failure, Known, Signature
from ..model.record import replace
from ..model.script import SCRIPT
from ..model.trainer import OF_RUNNER
from ..trainers import trainers
from . import table
from .asserted import asserted
from .complaints import complaint
from .cut_off import cut_off
from .failures import ENDS, LAUNCHERS, REPORTED, SAID, failures
from .fault import fault
from .likely import likely
from .lines import Lines, clean
from .lookups import lookup
from .messages import CERTAIN, CUT_OFF
from .nothing import nothing
from .options import given_options, refused_options
from .out_of_memory import out_of_memory
from .own import own
from .phrases import Entries, phrases
from .question import excerpt, versions
from .raised import by_source
from .ran import ran
from .refusals import refused
from .specific import closest, fitting
from .survived import READING, killed, outlived, went_on
from .versions import by_version
from .widths import by_widths

# The part of the model whose move to the device failed says which files are the bad ones.
_SITES = (
    ("T5", re.compile(r"t5xxl|\bt5\b", re.I)),
    ("CLIP", re.compile(r"clip_l\b", re.I)),
    ("the text encoder", re.compile(r"text_encoder|qwen", re.I)),
    ("the VAE", re.compile(r"\bvae\b|\bae\.to\b|autoencoder", re.I)),
    ("the transformer", re.compile(r"transformer|unet|\bdit\b|flux\.to|model\.to", re.I)),
)
_LOADED = re.compile(r"Loaded (Flux|AE|CLIP-L|T5xxl):\s+(?:\w+\.py:\d+\s+)?_IncompatibleKeys\(missing_keys=\['")
_LOADED_PARTS = {"Flux": "the transformer", "AE": "the VAE", "CLIP-L": "CLIP", "T5xxl": "T5"}
# Rules whose finding is about one component.
_SITED = frozenset(("MDL001", "MDL002", "HUB001", "MDL004"))
# What a process says whose partner died is no cause.
_PARTNER = re.compile(
    r"NCCL (?:communicator was aborted|error: remote process exited|operation .* timed out)"
    r"|remote process exited or there was a network error|Connection (?:closed|reset) by peer|Broken pipe"
)
_WORKER = re.compile(r"Caught \w+ in DataLoader worker process")
_WARNED = re.compile(r"\bWARN(?:ING)?\b|Warning: |\bwarnings?\.warn|\b[Ff]alling back\b|\b(?:skipp|retrying|ignor)")
_UNSET = re.compile(r"referenced before assignment|not associated with a value|'NoneType' object")
_LATE = 4000
_ABOVE = 8
_FAR_ABOVE = 20  # where a trainer's banner stands between a name that was left unset and why
_JUST_ABOVE = 3
_LATEST = 40
_LAST = 10  # of what a text ends with
_LONGEST = 1000


def explain(text: str, signatures: Iterable[Signature]) -> Explanation:
    """The last failure of the log that ended the run, explained. Pure: nothing is read but `text`."""
    lines = clean(text)
    found = failures(lines)
    ended = [failure for failure in found if not outlived(failure, found, lines)]
    if found and not ended:  # what was survived hides no words that come after it
        later = failures(lines.after(found[-1].at))
        ended = [failure for failure in later if not outlived(failure, later, lines)]
    survived = [failure for failure in found if failure not in ended]
    failure = _named_above(lines, _decisive(ended), survived) if ended else None
    installed = versions(lines)
    known = (refused_options(failure) or _known(failure, installed, lines)) if failure is not None else None
    signed = tuple(signatures)
    rules = _rules(failure, signed, _trainer(found)) if failure is not None else ()
    if failure is None or (not _tries_another(failure) and _says_little(failure, known, rules)):
        told = table.known if known is None else table.beyond_general
        above = _above(lines, failure) if failure is not None and failure.name == CUT_OFF else None
        failure, known = next(_phrases(lines, failure, told, survived), above or (failure, known))
        known = _closer(known, failure, installed, lines) if failure is not None else None
        rules = _rules(failure, signed, _trainer(found)) if failure is not None else ()
    elif known is not None and known.vague and (above := _above(lines, failure)) and not above[1].vague:
        # an exception without frames right before it, from which it came
        failure = failure if failure.cause is not None else replace(failure, cause=above[0])
        known = _closer(above[1], above[0], installed, lines)
    if failure is None:
        worked = bool(found) or went_on([line for line in lines if not READING.search(line)], 1)
        said = None if worked else complaint(lines, None)
        failure, known = said or (None if worked else _bare(lines), None)
        if failure is None:
            warned = None if worked else next((known for _, known in phrases(lines, table.warned)), None)
            at = None if worked or warned is not None else _ends(lines)
            return Explanation(None, None, (), "", len(found), installed, excerpt(lines, None), worked, warned, at)
    if known is None and not rules:
        failure, known = complaint(lines, failure) or (failure, known)
    if known is None or table.is_general(known):  # no entry knows it: what its package's source says of it
        known = None if rules else by_source(failure) or lookup(failure) or known or refused(failure)
    known = out_of_memory(known, failure, lines)
    if known is not None and known.messenger:
        known = given_options(failure) or known
    if known is not None and known.rule:
        rules = tuple(dict.fromkeys((known.rule, *(rules if not known.alone else ()))))
    elif known is not None and (known.alone or known.line or failure.name == SAID):
        rules = ()
    others = sum(other is not failure and _is_cause(other) for other in found)
    site = _site(failure) or _lacking(lines) if _SITED & {*rules[:1]} else ""
    shown, far = excerpt(lines, failure), ran(lines.last(_LATE))
    return Explanation(failure, known, rules, site, others, installed, shown, ran=far)


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


def _known(failure: Failure, installed: Mapping[str, str], lines: Lines) -> Known | None:
    chain = failure.chain[:1] if _tries_another(failure) else failure.chain
    told = [known for part in chain if (known := _closer(closest(part), part, installed, lines)) is not None]
    if len(told) > 1 and _UNSET.search(failure.message):  # a handler lacked it, as the first came too early
        told = told[1:]
    return next((known for known in told if not known.vague), told[0] if told else None)


def _tries_another(failure: Failure) -> bool:
    """Whether it is an import without its end, tried because another one failed, which then ended nothing."""
    code = next((frame.code for frame in reversed(failure.frames) if frame.code), "")
    came = failure.cause is not None and failure.cause.name in ("ImportError", "ModuleNotFoundError")
    return came and failure.name == CUT_OFF and code.startswith(("from ", "import "))


def _closer(known: Known | None, failure: Failure, installed: Mapping[str, str], lines: Lines) -> Known | None:
    """Where no more is known than a failure's shape: which versions have the name that it is about."""
    if not (known is None or known.vague or table.is_general(known)):
        return known
    before = lines.between(failure.begin - _JUST_ABOVE - 1, failure.begin)
    told = (
        by_version(failure, installed)
        or likely(failure)
        or by_widths(failure)
        or own(failure)
        or cut_off(failure, before)
        or asserted(failure)
    )
    return told or fault(failure) or nothing(failure) or known


def _above(lines: Lines, failure: Failure) -> tuple[Failure, Known] | None:
    """What the lines right before a failure say, and what they are known for."""
    first = failure.begin - 1 - (_FAR_ABOVE if failure.name == UnboundLocalError.__name__ else _ABOVE)
    rest, count = lines.after(first), len(lines.between(first, failure.begin))
    found = phrases(Lines(rest[:count], rest.numbers[:count]), table.known)
    return next((one for one in found if not one[1].vague), found[0] if found else None)


def _named_above(lines: Lines, failure: Failure, survived: Sequence[Failure]) -> Failure:
    """A traceback without its end, with the exception that stands alone above it, as where a title goes first."""
    if failure.cause is not None or (failure.name != CUT_OFF and failure.message):
        return failure
    first = max([failure.begin - _ABOVE - 1, *(one.at for one in survived if one.at < failure.begin)])
    above = lines.between(first, failure.begin)
    named = [
        said
        for line in above
        if (said := CERTAIN.match(line.strip())) is not None
        and (said["message"] or said["type"] == MemoryError.__name__)
        and failure.name in (CUT_OFF, said["type"])
    ]
    return replace(failure, type=named[-1]["type"], message=named[-1]["message"] or "") if named else failure


def _messenger(failure: Failure) -> bool:
    """Whether it is known as one that only comes after another."""
    if not any(known.messenger for known in fitting(failure)):
        return False
    known = _known(failure, {}, Lines(()))
    return known is not None and known.messenger


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
    speaks = found and failure is not None and not (killed(failure) or _messenger(failure))
    first = failure.begin - _ABOVE if speaks and failure is not None else 0
    for said, known in phrases(lines.last(_LATE), told):
        if (found and known.messenger) or (speaks and (said.at < first or _WARNED.search(said.message))):
            continue
        after = lines.between(said.at)
        if said.at == 1:  # what a text is headed with comes not before what follows
            after = [line for line in after if not READING.search(line)]
        over = any(other.begin <= said.at <= other.at for other in survived) or went_on(after, 1)
        if not over:
            yield said, known


def _decisive(found: Sequence[Failure]) -> Failure:
    """The last failure with a traceback: what follows it are the launcher's words about a process that ended."""
    found = [failure for failure in found if not _messenger(failure)] or found
    told = [
        f for f in found if (f.frames and f.name not in LAUNCHERS and f.name != CUT_OFF) or f.name == "ArgumentError"
    ]
    causes = [f for f in told if f.name == "ArgumentError" or _is_cause(f)]
    if causes or told:
        return (causes or told)[-1]
    cut = max((failure.at for failure in found if failure.name == CUT_OFF), default=0)
    said = [failure.at for failure in found if failure.name == SAID]
    kinds: tuple[Callable[[Failure], bool], ...] = (
        lambda f: _alone(f) and f.at > cut and not any(f.begin <= at <= f.at for at in said),
        lambda f: f.name in (SAID, REPORTED),
        killed,
        lambda f: f.name == CUT_OFF,
    )
    for kind in kinds:
        kept = [failure for failure in found if kind(failure)]
        if kept:
            return kept[-1]
    return found[-1]


def _alone(failure: Failure) -> bool:
    """An exception without its traceback."""
    return not failure.frames and failure.name not in (*ENDS, *LAUNCHERS, SAID, REPORTED, "Interrupted", CUT_OFF)


def _is_cause(failure: Failure) -> bool:
    """A traceback that speaks of itself, not of a child, a partner or a worker."""
    words = (_PARTNER.search(part.message) or _WORKER.match(part.message) for part in failure.chain)
    return bool(failure.frames) and failure.name not in LAUNCHERS and not any(words)


def _rules(failure: Failure, signatures: Sequence[Signature], trainer: str) -> tuple[str, ...]:
    """The rules that know this failure, the one that knows most of its message first."""
    hits = [
        (known, signature.rule)
        for part in failure.chain
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


def _lacking(lines: Sequence[str]) -> str:
    """The component of which sd-scripts has said that keys are missing."""
    parts = set(_LOADED.findall("\n".join(lines)))
    return _LOADED_PARTS.get(parts.pop(), "") if len(parts) == 1 else ""


def _site(failure: Failure) -> str:
    """The component, by the innermost line of code outside of the libraries that names one."""
    for frame in reversed([frame for frame in failure.frames if not frame.is_library]):
        for name, pattern in _SITES:
            if pattern.search(frame.code):
                return name
    return ""
