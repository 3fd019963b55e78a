"""What a crash log says, as a person reads it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..doctor.model.crashes import Comparison, Explanation, Failure
from ..doctor.model.shell import quoted
from .terminal import Line, paint, wrap

MOST_MESSAGE = 600
MOST_LINES = 12


def render(
    told: Explanation,
    rules: Mapping[str, tuple[str, str]],
    *,
    config: str | None = None,
    confirmed: Mapping[str, str] | None = None,
    part: bool = False,
    width: int = 100,
    color: bool = False,
) -> str:
    """The explanation. `rules` gives the name and the title of each rule; `confirmed` what a check of `config` with
    these rules said of each ("found", "passed", or why it is not known); `part` tells that only the end of the log
    was read."""
    return paint(_explanation(told, rules, config, confirmed or {}, part, min(width, 110)), color, width)


def _explanation(
    told: Explanation,
    rules: Mapping[str, tuple[str, str]],
    config: str | None,
    confirmed: Mapping[str, str],
    part: bool,
    width: int,
) -> Iterator[Line]:
    failure = told.failure
    if failure is None and told.others:
        count = f"{told.others} tracebacks stand" if told.others > 1 else "One traceback stands"
        yield from wrap(
            f"The log shows no failure that ended the run. {count} in it, and the run went on.", width, ""
        )
        return
    if failure is None:
        yield [("", "The log shows no failure: no traceback, and no process that was killed.")]
        return
    yield from _failure(failure, told.site, part, width)
    yield []
    if told.known is not None:
        yield from wrap(told.known.cause, width, "cause: ", style="bold")
        yield from wrap(told.known.do, width, "do:    ", style="green")
        if told.known.avoid:
            yield from wrap(told.known.avoid, width, "not:   ", style="yellow")
    elif not told.rules:
        yield from wrap(
            "This failure is not known to zdoctor. The place above is where the run's own code was at work.",
            width,
            "cause: ",
            style="magenta",
        )
    for rule in told.rules:
        name, title = rules.get(rule, (rule, ""))
        yield from wrap(f"{rule} {name}: {title}", width, "rule:  ", style="cyan")
        if rule in confirmed:
            yield from wrap(f"{config}: {confirmed[rule]}", width, "       ")
    if told.rules and not confirmed:
        yield [("bold", f"next: zdoctor check {quoted(config or 'CONFIG')} --select {','.join(told.rules)}")]
    if told.others:
        yield []
        count = f"{told.others} other failures" if told.others > 1 else "1 other failure"
        yield [("dim", f"The log holds {count}; this one ended the run.")]


def _failure(failure: Failure, site: str, part: bool, width: int) -> Iterator[Line]:
    message = failure.message if len(failure.message) <= MOST_MESSAGE else failure.message[: MOST_MESSAGE - 1] + "…"
    named = f"{failure.type}: {message}" if message else failure.type
    text = "A traceback that is cut off" if failure.type == "CutOff" else named if failure.frames else message
    yield from wrap(text, width, "", style="bold red")
    frame = failure.frame
    place = f"line {failure.at} of the end of the log" if part else f"line {failure.at} of the log"
    if frame is not None:
        where = f"{place}; {frame.file}:{frame.line}"
        where += f" in {frame.function}" if frame.function else ""
        yield from wrap(where + (f", while {site} was loaded" if site else ""), width, "  ", style="dim")
        if frame.code:
            yield [("dim", f"    {frame.code}")]
    else:
        yield [("dim", f"  {place}")]


def render_comparison(seen: Comparison, *, width: int = 100, color: bool = False) -> str:
    """What tells a failed run from one that worked, by their logs."""
    return paint(_comparison(seen, min(width, 110)), color, width)


def _comparison(seen: Comparison, width: int) -> Iterator[Line]:
    if seen.parted is None:
        yield [("", "The two logs have no line in common: they are of different programs, or one is cut off.")]
        return
    if not (seen.changed or seen.warnings or seen.others or seen.bad_loss):
        yield [("", "Up to the failure the two logs say the same, but for times, bars and losses.")]
    if seen.bad_loss is not None:
        yield [("bold red", f"Line {seen.bad_loss} of the failed run is the first loss that is no finite number.")]
    yield from _lines("Only the failed run warns:", [(at, line) for at, line in seen.warnings], width, "yellow")
    if seen.changed:
        yield [("bold", "The same line with other numbers (worked, then failed):")]
        for change in seen.changed[:MOST_LINES]:
            yield from wrap(change.good, width, "         ", style="dim")
            yield from wrap(change.bad, width, f"  {change.at:>6} ")
        yield from _rest(len(seen.changed))
    yield from _lines("Only the failed run says:", [(at, line) for at, line in seen.others], width, "")
    yield []
    yield from wrap(seen.common, width, f"last line in common ({seen.parted}): ", style="bold")
    for line in seen.then:
        yield from wrap(line, width, "  the run that worked went on: ", style="green")
    if seen.good_losses or seen.bad_losses:
        yield [("dim", f"losses shown: {seen.good_losses} where it worked, {seen.bad_losses} where it failed")]


def _lines(title: str, lines: list[tuple[int, str]], width: int, style: str) -> Iterator[Line]:
    if lines:
        yield [("bold", title)]
        for at, line in lines[:MOST_LINES]:
            yield from wrap(line, width, f"  {at:>6} ", style=style)
        yield from _rest(len(lines))


def _rest(count: int) -> Iterator[Line]:
    if count > MOST_LINES:
        yield [("dim", f"         and {count - MOST_LINES} more")]
