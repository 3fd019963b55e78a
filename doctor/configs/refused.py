"""What a trainer's room says of a run that zdoctor's own runner would not obey."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Sequence

from ..errors import UserError
from ..model import Run, Schema, Unknown
from ..model.record import replace
from .words import same, short
from .written import Written, above

_INDEX = re.compile(r"/\d+(?=/)")
# The key or field that is at fault, and a sentence about it without its full stop.
Reason = tuple[str, str]


def known(run: Run, schema: Schema | Unknown) -> Schema:
    """The schema of the run's trainer. Raises UserError where it is not known."""
    if isinstance(schema, Unknown):
        raise UserError(f"the settings of {run.trainer} are not known: {schema.reason}.")
    return schema


def said(run: Run, reasons: Iterable[Reason]) -> list[str]:
    """Each reason once, as a sentence with its place."""
    places = ((what, run.where(name)) for name, what in reasons)
    return list(
        dict.fromkeys(f"{what}{'' if at.line is None else f' ({at.path}:{at.line})'}." for what, at in places)
    )


def raise_unsupported(sentences: Sequence[str]) -> None:
    """Raises UserError where there are any."""
    if sentences:
        raise UserError("zdoctor train would not obey all of this config:\n  " + "\n  ".join(sentences))


def converted(
    run: Run,
    w: Written,
    schema: Schema | Unknown,
    reasons: Iterable[Reason],
    as_trained: Callable[[], Run],
    differences: Callable[[Run, Written], Iterable[str]],
    without_effect: Callable[[str], bool],
) -> Run:
    """The run as zdoctor's runner takes it. Raises UserError with every setting that it would not obey."""
    refused = said(run, reasons)
    try:
        made = as_trained()
    except (KeyError, SyntaxError, ValueError):  # of what is refused anyway
        raise_unsupported(refused)
        raise
    differing = list(differences(run, w))
    others, idle = unread_settings(run, w, known(run, schema), without_effect)
    raise_unsupported([*said(run, others), *refused])
    return replace(made, differences=(*differing, *idle), read=frozenset(w.read))


def unread_settings(
    run: Run, w: Written, schema: Schema, without_effect: Callable[[str], bool]
) -> tuple[list[Reason], list[str]]:
    """Of the settings that nothing asked `w` for: those to be refused, and one sentence of those without effect.

    One at its default is neither. `without_effect` says of a key whether what is learnt is the same either way.
    """
    refused: list[Reason] = []
    idle: list[str] = []
    for key in w.unread():
        value = w.arrived(key)
        name = key.rpartition("/")[2]
        found = schema.key(_INDEX.sub("/*", key), run.process_type) or schema.key(name, run.process_type)
        if value is None or same(value, found.default if found is not None else None):
            continue
        if without_effect(key):
            idle.append(name)
        else:
            leave = f"leave it at {short(found.default)}" if found is not None and found.default else "leave it out"
            instead = leave if found is None else f"{leave}, or train with {schema.trainer}"
            refused.append((key, f"{name} {short(value)} is not supported; {instead}"))
    names = ", ".join(dict.fromkeys(idle))
    return refused, [f"without effect on what is learnt: {names}"] if names else []


def one_of(key: str, name: str, value: str | None, known: Container[str | None], words: str) -> Iterator[Reason]:
    """The reason against a value that is none of those known, which are called by `words`."""
    if value not in known:
        yield key, f"{name} {value} is not supported; use {words}"


def is_unknown(key: str, schema: Schema) -> bool:
    """Whether the trainer looks at nothing of this name there."""
    path = _INDEX.sub("/*", key)
    sections = ((schema.section(at), path.removeprefix(f"{at}/").partition("/")[0]) for at in ("", *above(path)))
    return any(section is not None and name not in section for section, name in sections)
