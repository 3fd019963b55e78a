"""The failures of a log: its tracebacks, and the ends that leave none."""

from __future__ import annotations

import builtins
import re
from collections.abc import Container, Iterator
from itertools import takewhile

from ..model.crashes import Failure
from ..model.record import replace
from . import table
from .lines import NAME, Lines
from .messages import CUT_OFF, LOGGED, MOST_LINES, PROMPT, message
from .streams import streams
from .tracebacks import tracebacks

# What a message of a trainer is called that stands for itself, with no exception.
SAID = "Said"
# A message whose exception is shown elsewhere, or nowhere.
REPORTED = "Reported"
_CODE = r"(?:(?:[Ee]xit|[Rr]eturn) ?[Cc]ode|\b[Ee]xit(?:ed)?(?: with)?(?: code| status)?)[\"']?[:=]? *\(?"


def _code(*codes: int | str) -> str:
    return rf"{_CODE}(?:{'|'.join(map(str, codes))})(?!\d|\.\d|%)"


_CODED = re.compile(rf"{_CODE}-?\d")
# (what it is called here, words of which such a line has one or else an exit code, what the line looks like).
_ENDS = (
    (
        "Killed",
        ("illed", "SIGKILL", "9/KILL", "oom", "OOM"),
        rf"^(?:\S+: (?:line )?\d+: +(?:\d+ )?)?Killed\b|{_code(137, -9)}"
        r"|SIGKILL|code=killed, status=9/KILL|result 'oom-kill'"
        r"|Out of memory: Killed process|Memory cgroup out of memory|killed by the OOM killer|oom-kill:constraint="
        r"|\bOOMKilled\"?: *true|Reason: +OOMKilled|^\[?\d*\]? *\+ +\d+ killed\b|\d+ Killed +\S+$",
    ),
    (
        "OutOfRam",
        ("more memory than is available", "all available RAM"),
        r"Your notebook tried to allocate more memory than is available|after using all available RAM",
    ),
    (
        "SegmentationFault",
        ("egmentation", "SIGSEGV", "segfault"),
        rf"Segmentation fault|segfault at |SIGSEGV|{_code(139, -11)}",
    ),
    ("BusError", ("Bus error", "SIGBUS"), rf"\bBus error\b|SIGBUS|{_code(135, -7)}"),
    (
        "Aborted",
        ("Abort", "SIGABRT", "3221226505", "1073740791"),
        rf"^Aborted\b|SIGABRT|{_code(134, -6)}|\b3221226505\b|-1073740791\b",
    ),
    (
        "IllegalInstruction",
        ("llegal instruction", "SIGILL"),
        rf"^Illegal instruction\b|SIGILL|{_code(132, -4, 3221225501, -1073741795)}",
    ),
    (
        "AccessViolation",
        ("3221225477", "1073741819", "0xC0000005", "0xc0000005", "access violation"),
        r"\b3221225477\b|-1073741819\b|0x[cC]0000005\b|^Windows fatal exception: access violation",
    ),
    (
        "ArithmeticFault",
        ("dumped)", "loating", "SIGFPE"),
        rf"^Floating point exception\b|SIGFPE|{_code(136, -8, 3221225620, -1073741676)}",
    ),
    ("StackOverflow", ("3221225725", "1073741571"), r"\b3221225725\b|-1073741571\b"),
    ("MissingLibrary", ("3221225781", "1073741515"), r"\b3221225781\b|-1073741515\b"),
    ("Interrupted", ("^C",), r"^\^C\s*$"),
)
# Those with which the system ends a process.
ENDS = frozenset(name for name, _, _ in _ENDS) - {"Interrupted"}
_ARGPARSE = re.compile(
    r"^(?P<program>[\w.<>\[\] -]{1,60}: )?error: (?P<message>argument .+|unrecognized arguments: .+"
    r"|the following arguments are required: .+|ambiguous option: .+|one of the arguments .+)$"
)
# Lines of argparse's usage.
_OPTION = re.compile(r"(?:> ?)*\s*\[--?[a-z][\w-]*(?: [^\]]*)?\](?:\s|$)")
_LEAST_OPTIONS = 3
_LOADING = re.compile(r"\bLoading (?:checkpoint shards|weights|pipeline components\.*): +(?!100%)\d+%")
# What a shell or a page adds to a log: nothing, a prompt, and how any language asks to press a key.
_AFTER = re.compile(rf"\s*$|{PROMPT.pattern}|.*\. \. \.\s*$|[>\s`]*$")
# ai-toolkit's words, and ComfyUI's.
_REPORTED = re.compile(r"(?:Error running job:|!!! Exception during processing !!!) (?P<message>.+)$")
# A launcher's own traceback only says that a child failed.
LAUNCHERS = frozenset(("ChildFailedError", "CalledProcessError", "SystemExit", "ExceptionGroup"))
# An exception without its traceback: alone in its line, or in the words of a program that tells of it.
_NAMED = re.compile(rf"(?P<lead>.*?[\]:>|() -] ?|)(?P<type>{NAME})(?:: ?(?P<message>.*)|\(.*|)$")
_BENIGN = re.compile(r"\b(?:warn|debug|retry|ignor|fall|skip)", re.I)
# The last words of pip, npm, git and of loggers: a level where a logger writes it, or an error at a line's beginning.
_LAST_WORDS = re.compile(
    r"(?:[^\"'`=]{0,120}?(?<![^\s\[|:(,<-])(?:ERROR|CRITICAL|FATAL)(?= *[]|:)>]| -+>? | {2})[]|:)>\s-]*"
    r"|(?:.{0,200}?[{\s,])?\"?level\"?[:=] ?\"?(?:error|critical|fatal)\b[\",\s]*"
    r"|E\d{4} \d\d:\d\d:\d\d\S* +\d+ \S+\] *"
    r"|[^a-z]{0,60}?(?:npm error|(?:error|Error|[Ff]atal(?: error)?):|Error (?=no |in |at )) *)"
    r"(?P<message>\S.*)$"
)
_GOES_ON = (": ignored.", ": ignored")  # as the system's loader ends what it calls an error
_ERROR_WORDS = ("ERR", "FATAL", "CRITICAL", "rror:", "atal:", "npm error", "level", "api.py:")
# How programs say in a sentence that they stop.
_GAVE_UP = re.compile(
    r"\W*\[FAIL(?:ED)?\] *(?P<failed>\S.*)$|"
    r"[^A-Za-z]{0,60}(?:\[[^\]]{0,40}\]\W*)*(?P<message>"
    r"(?:(?:[A-Z][a-z]+ )?(?:an )?(?:[Ee]rror|[Ee]xception) (?:occurred|while|during|in|running|loading)\b"
    r"|(?:Caught|Unhandled|Uncaught) (?:error|exception)|[A-Z]\w+(?:Error|Exception) (?:occurred|raised)"
    r"|[Ff]ailed to\b|Unable to\b|Could ?n(?:ot|'t)\b|Cannot\b"
    r"|[Tt]raining (?:has |was )?(?:failed|crashed|aborted|stopped unexpectedly)"
    r"|[Tt]erminated by signal|Terminated\b|Hangup\b|[Ss]egfault\b|\(?core dumped|(?:torch\.)?cuda\.OutOfMemory\b"
    r"|panic: |thread '[^']*' panicked|make: \*\*\*|slurmstepd: |\[?FAIL(?:ED)?\b|- [1-9]\d* failures?$"
    rf"|.{{0,80}}?{_CODE}-?[1-9]\d{{0,4}}(?![\d%]|\.\d)"
    r").*)$"
    r"|.{0,60}?(?:错误|錯誤|失败|失敗|Ошибка|エラー|오류) *[::] *(?P<told>\S.*)$"
    r"|\W*[\u274c\u2717\u2718\u26d4] *(?P<marked>\S.*)$"
    r"|\[(?P<closed>[^\[\]]+ \(0x(?!0+\))[0-9a-fA-F]{8}\).*)\]$"  # Windows Terminal's, in any language
    r"|(?P<refused>.{0,60}(?:\u4e0d\u652f\u6301|\u4e0d\u652f\u63f4|\u5fc5\u987b|\u5fc5\u9808|\u7f3a\u5c11).*)$"
)
_LATEST = 30
_NAMES = (
    *(name for name in dir(builtins) if name.endswith(("Error", "Exception", "Interrupt"))),
    *("torch.OutOfMemoryError", "torch.cuda.OutOfMemoryError", "torch.distributed.DistBackendError"),
    *("torch.AcceleratorError", "safetensors_rust.SafetensorError", "subprocess.CalledProcessError"),
    *("requests.exceptions.HTTPError", "huggingface_hub.errors.", "huggingface_hub.utils._errors."),
)
_ENDINGS = frozenset(name for name, _, _ in _ENDS) | {SAID, REPORTED, CUT_OFF, *LAUNCHERS}
_LEAST_NAME = 3
# Functions that try whether a package is there, and print the traceback of the import that failed.
_TRIES = re.compile(r"_?(?:is|has|check|try)_\w*(?:available|installed|import\w*)$")
# What transformers and diffusers say of an import that failed, and behind it why.
_INNER = re.compile(r"[\s\S]*because of the following error[^\n:]*:\s+(\S[\s\S]*)")


def failures(lines: Lines) -> tuple[Failure, ...]:
    """Every failure of a log, in the order in which they were printed; a chain of exceptions is one, its last."""
    processes = streams(lines)
    found = [failure for process in processes for failure in tracebacks(process)]
    found += [failure for process in processes for failure in _endings(process)]
    printed = [failure for log in (*processes, lines) for failure in _printed(log)]
    found += {failure.at: failure for failure in printed}.values()
    tries = [failure for failure in found if tried(failure)]
    if all(failure in tries or failure.name in (*LAUNCHERS, CUT_OFF, SAID, "Aborted") for failure in found):
        alone = [failure for process in processes for failure in _alone(process)]
        found += [one for one in alone if not any(failure.begin <= one.at <= failure.at for failure in tries)]
    if not found:
        records = {at for at, line in lines.numbered() if LOGGED.match(line)}
        found += [failure for log in processes for failure in _last_words(log, records)] or _last_words(
            lines, records
        )
    end = max((at for at, line in lines.numbered() if line.strip()), default=0)
    found = [_whole(failure) if failure.at == end else failure for failure in found]
    return tuple(sorted((_of(lines, _with_inner(failure)) for failure in found), key=lambda failure: failure.at))


def _of(log: Lines, failure: Failure) -> Failure:
    """It, and what it came from, with the log that it stands in."""
    cause = failure.cause
    return replace(failure, log=log, cause=_of(log, cause) if cause is not None else None)


def tried(failure: Failure) -> bool:
    """Whether a library looked for a package, did without it, and only told of that.

    A traceback begins in the function that caught its exception, so that one which ended the run begins further out.
    """
    first = failure.frames[0] if failure.frames else None
    missing = failure.name in ("ImportError", "ModuleNotFoundError")
    return missing and first is not None and first.is_library and _TRIES.match(first.function) is not None


def _whole(failure: Failure) -> Failure:
    """With the whole name of an exception in which the log is cut off; where too little of it is left, without."""
    if failure.message or failure.name in _ENDINGS:
        return failure
    if len(failure.name) < _LEAST_NAME:
        return replace(failure, type=CUT_OFF) if failure.frames else failure
    begun = [name for name in _NAMES if name.startswith(failure.type)]
    return replace(failure, type=begun[0]) if len(begun) == 1 else failure


def _with_inner(failure: Failure) -> Failure:
    """With what it came from, where only its own words tell that."""
    inner = _INNER.search(failure.message) if failure.cause is None else None
    if inner is None:
        return failure
    return replace(failure, cause=Failure(REPORTED, inner[1], failure.frames, failure.at, begin=failure.begin))


def _alone(lines: Lines) -> Iterator[Failure]:
    """Exceptions whose traceback the log does not show."""
    for at in lines.holding(
        "Error", "Exception", "Interrupt", ".error", ".exc", "Timeout", ".Broken", ".OutOf", "cv2.", "pybind11_state"
    ):
        named = _NAMED.match(lines[at])
        if named is not None and not _BENIGN.search(named["lead"]):
            text, end = named["message"] or "", at + 1
            if not named["lead"]:
                text, end = message(lines, at, text)
            elif len(led := _led(lines, at, named["lead"])) > 1:
                text, end = message(led, 0, text)
                end += at
            yield Failure(named["type"], text, (), lines.numbers[end - 1], begin=lines.numbers[at])


def _led(lines: Lines, at: int, lead: str) -> list[str]:
    """The lines from `at` on that begin with the same lead, without it."""
    alike = takewhile(lambda line: line.startswith(lead), lines[at : at + MOST_LINES])
    return [line[len(lead) :] for line in alike]


def _last_words(lines: Lines, records: Container[int]) -> Iterator[Failure]:
    """What programs say of their own end, in words that tell no exception; it ends where a logger begins a record."""
    said = [at for at in lines.holding(*_ERROR_WORDS) if not lines[at].endswith(_GOES_ON)]
    told = {at: found for at in said if (found := _LAST_WORDS.match(lines[at])) is not None}
    told = told or {at: found for at in _latest(lines) if (found := _GAVE_UP.match(lines[at])) is not None}
    if told:
        begin = end = max(told)
        while begin - 1 in told:
            begin -= 1
        words = "\n".join(next(filter(None, told[at].groups())) for at in range(begin, end + 1))
        after = range(end + 1, min(len(lines), end + MOST_LINES))
        stop = next((at for at in after if lines.numbers[at] in records), len(lines))
        text = message(lines if stop == len(lines) else lines[:stop], end, words)[0]
        yield Failure(REPORTED, text, (), lines.numbers[end], begin=lines.numbers[begin])


def _latest(lines: Lines) -> list[int]:
    """The last lines that say something and say it as no warning."""
    said = [at for at in range(max(0, len(lines) - 10 * _LATEST), len(lines)) if lines[at].strip()]
    return [at for at in said[-_LATEST:] if not _BENIGN.search(lines[at])]


def _said(lines: Lines, at: int, name: str, words: str) -> Failure:
    return Failure(name, words, (), lines.numbers[at], begin=lines.numbers[at])


def _endings(lines: Lines) -> Iterator[Failure]:
    """Every line that tells of an end, as a failure without frames."""
    coded = [at for at in lines.holding("xit", "eturn code", "eturn Code", "eturncode") if _CODED.search(lines[at])]
    for name, words, pattern in _ENDS:
        for at in sorted({*lines.holding(*words), *coded}):
            if re.search(pattern, lines[at]):
                yield _said(lines, at, name, lines[at].strip())
    for at in lines.holding("error: "):
        if (refused := _ARGPARSE.match(lines[at])) is not None:
            yield _said(lines, at, "ArgumentError", (refused["program"] or "") + refused["message"])
    if (shown := _usage(lines)) is not None:
        yield _said(lines, shown, "UsageShown", lines[shown].strip("> "))
    for at in lines.holding("Error running job: ", "!!! Exception during processing !!! "):
        if (reported := _REPORTED.search(lines[at])) is not None:
            yield _said(lines, at, REPORTED, reported["message"])


def _usage(lines: Lines) -> int | None:
    """The last line, where the log ends amid the options that a program prints as it refuses its command line."""
    last = range(max(0, len(lines) - _LATEST // 2), len(lines))
    shown = [at for at in last if _OPTION.match(lines[at])]
    return shown[-1] if len(shown) >= _LEAST_OPTIONS else None


def _printed(lines: Lines) -> Iterator[Failure]:
    """What trainers print in place of an exception, bars among it, and a log that ends amid loading."""
    last = next((at for at in range(len(lines) - 1, -1, -1) if not _AFTER.match(lines[at])), 0)
    if lines and _LOADING.search(lines[last]):
        yield _said(lines, last, "EndsLoading", lines[last].strip())
    for known in table.lines():
        places = [at for at in lines.holding(known.line) if re.search(known.text, lines[at])]
        if len(places) >= known.least:
            yield _said(lines, places[-1], SAID, lines[places[-1]].strip())
