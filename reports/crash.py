"""What a crash log says, as a person reads it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ..doctor.model.crashes import Comparison, Explanation, Failure, Ran
from ..doctor.model.record import dataclass
from ..doctor.model.said import AsIs
from ..doctor.model.shell import quoted
from .painting import Line, Wrapped

MOST_MESSAGE = 600
MOST_LINES = 12


@dataclass(frozen=True)
class Told:
    """A rule as an explanation names it. `confirmed` is what a check of the config says of it, None where there was
    none or it could not tell; `said` are its words."""

    name: str
    title: str
    cause: str = ""
    repair: str = ""
    confirmed: bool | None = None
    said: str = ""


def lines(told: Explanation, rules: Mapping[str, Told], *, config: str | None = None) -> Iterator[Line]:
    """The explanation. `rules` are those that it names."""
    failure = told.failure
    if failure is None and told.others:
        count = f"{told.others} tracebacks stand" if told.others > 1 else "One traceback stands"
        yield Wrapped(f"The log shows no failure that ended the run. {count} in it, and the run went on.", "")
        return
    if failure is None and told.worked:
        yield [("", "The log shows no failure: no traceback, and no process that was killed.")]
        return
    if failure is None:
        yield Wrapped(
            "No line of this text is known as a failure, and it shows neither a step nor a good end. What became of "
            "the run is not known.",
            "",
        )
        if told.warned is not None:
            yield Wrapped(told.warned.cause, "warns: ", "bold")
            yield Wrapped(told.warned.do, "do:    ", "green")
        if told.ends is not None:
            yield Wrapped(told.ends.cause, "ends:  ", "bold")
            yield Wrapped(told.ends.do, "do:    ", "green")
        yield []
        yield from _pasted(told)
        return
    yield from _failure(failure, told.site)
    yield []
    if told.known is not None:
        yield Wrapped(told.cause, "cause: " if told.certain else "maybe: ", "bold")
        if not told.certain:
            yield Wrapped(
                "These words have several causes, and this text does not tell which it is. The first error or "
                "warning above them, and the place in the code, tell more than the words.",
                "but:   ",
                "magenta",
            )
        yield Wrapped(told.do, "do:    ", "green")
        if told.known.also:
            yield Wrapped(told.known.also, "or:    ", "bold")
        if told.known.avoid:
            yield Wrapped(told.known.avoid, "not:   ", "yellow")
    elif told.rules:
        lead = rules[told.rules[0]]
        yield Wrapped(lead.cause, "cause: ", "bold")
        yield Wrapped(lead.repair, "do:    ", "green")
    else:
        yield from _unknown(told)
    for id in told.rules:
        rule = rules[id]
        yield Wrapped(f"{id} {rule.name}: {rule.title}", "rule:  ", "cyan")
        if rule.said:
            yield Wrapped(f"{config}: {rule.said}", "       ")
    if told.rules and not any(rules[id].said for id in told.rules):
        yield [("bold", f"next: zdoctor check {quoted(config or 'CONFIG')} --select {','.join(told.rules)}")]
    if told.ran is not None:
        yield Wrapped(_how_far(told.ran), "ran:   ", "bold")
    if told.others:
        yield []
        count = f"{told.others} other failures" if told.others > 1 else "1 other failure"
        yield [("dim", f"The log holds {count}; this one ended the run.")]


def _how_far(ran: Ran) -> str:
    done, of, steps = ran.done, ran.of, ran.unit == "steps"
    if done == of:
        return (
            f"All {of} steps were done before it failed: the training was complete. Look in the output folder for "
            "the LoRA or its last checkpoint before you train again."
            if steps
            else f"All {of} epochs were done before it failed: the training was complete. Look in the output folder "
            "for the LoRA or its last checkpoint before you train again."
        )
    if done == 0:
        return (
            f"The run ended before the first of its {of} steps was done."
            if steps
            else f"The run ended before the first of its {of} epochs was done."
        )
    return f"The run had done {done} of {of} steps." if steps else f"The run had done {done} of {of} epochs."


def _unknown(told: Explanation) -> Iterator[Line]:
    """What somebody who knows the trainer needs to tell more."""
    place = "The place above is where the run's own code was at work. " if told.failure and told.failure.frame else ""
    yield Wrapped(
        f"This failure is not known to zdoctor. {place}To ask, paste what follows; look through it for names first.",
        "cause: ",
        style="magenta",
    )
    yield []
    yield from _pasted(told)


def _pasted(told: Explanation) -> Iterator[Line]:
    if told.versions:
        yield Wrapped(", ".join(f"{name} {version}" for name, version in told.versions.items()), "versions: ")
    yield [("dim", "```")]
    for line in told.excerpt.splitlines():
        yield [("", AsIs(line))]
    yield [("dim", "```")]


def _failure(failure: Failure, site: str) -> Iterator[Line]:
    message = failure.message if len(failure.message) <= MOST_MESSAGE else failure.message[: MOST_MESSAGE - 1] + "…"
    named = f"{failure.type}: {message}" if message else failure.type
    exception = failure.frames or failure.name.endswith(("Error", "Exception", "Interrupt"))
    text = "A traceback that is cut off" if failure.type == "CutOff" else named if exception else message
    yield Wrapped(text, "", "bold red")
    frame = failure.frame
    place = f"line {failure.at} of the log"
    if frame is not None:
        where = f"{place}; {frame.file}:{frame.line}"
        where += f" in {frame.function}" if frame.function else ""
        yield Wrapped(where + (f", while {site} was loaded" if site else ""), "  ", "dim")
        if frame.code:
            yield [("dim", AsIs(f"    {frame.code}"))]
    else:
        yield [("dim", f"  {place}")]


def comparison_lines(seen: Comparison) -> Iterator[Line]:
    """What tells a failed run from one that worked, by their logs."""
    if seen.parted is None:
        yield [("", "The two logs have no line in common: they are of different programs, or one is cut off.")]
        return
    if not (seen.changed or seen.warnings or seen.others or seen.bad_loss):
        yield [("", "Up to the failure the two logs say the same, but for times, bars and losses.")]
    if seen.bad_loss is not None:
        yield [("bold red", f"Line {seen.bad_loss} of the failed run is the first loss that is no finite number.")]
    yield from _numbered("Only the failed run warns:", seen.warnings, "yellow")
    if seen.changed:
        yield [("bold", "The same line with other numbers (worked, then failed):")]
        for change in seen.changed[:MOST_LINES]:
            yield Wrapped(AsIs(change.good), "         ", "dim")
            yield Wrapped(AsIs(change.bad), f"  {change.at:>6} ")
        yield from _rest(len(seen.changed))
    yield from _numbered("Only the failed run says:", seen.others, "")
    yield []
    yield Wrapped(AsIs(seen.common), f"last line in common ({seen.parted}): ", "bold")
    for line in seen.then:
        yield Wrapped(AsIs(line), "  the run that worked went on: ", "green")
    if seen.good_losses or seen.bad_losses:
        yield [("dim", f"losses shown: {seen.good_losses} where it worked, {seen.bad_losses} where it failed")]


def _numbered(title: str, said: Sequence[tuple[int, str]], style: str) -> Iterator[Line]:
    if said:
        yield [("bold", title)]
        for at, line in said[:MOST_LINES]:
            yield Wrapped(AsIs(line), f"  {at:>6} ", style)
        yield from _rest(len(said))


def _rest(count: int) -> Iterator[Line]:
    if count > MOST_LINES:
        yield [("dim", f"         and {count - MOST_LINES} more")]
