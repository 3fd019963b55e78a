"""The record of a trainer: how it is recognised, where its code lies, and what it does that others do not."""

from __future__ import annotations

from .record import dataclass


@dataclass(frozen=True)
class Trainer:
    """One trainer. Each room of `doctor/trainers` holds the records of its own, which that folder's `__init__` lists.

    Recognising: `reader` is the module with `read(config, environment, beside) -> Reading`, `called` are other words
    for `--trainer`. Of `marks`, any one set of keys is enough, in lower case and without leading dashes. `in_logs` is
    a pattern of the files in its tracebacks, `failures` the module with what its logs say.

    Its code: `marker` is a file that only its checkout has, `miner` is "module:function" from a checkout to a Schema,
    `table` the one that ships. `editor` is "module:function" from a Schema to what an editor is told of its files; ""
    where they hold its options and no more. `packages` are what it imports or installs as itself, and hardly anything
    else: where they are, it can run.

    `recipe` is the module that puts its runs into what zdoctor's runner takes (`refusals`, `as_trained`,
    `differences`); "" where the reader has done all.
    """

    name: str
    reader: str
    marks: tuple[frozenset[str], ...]
    marker: str
    miner: str
    table: str
    packages: tuple[str, ...]
    in_logs: str
    failures: str
    recipe: str = ""
    editor: str = ""
    called: tuple[str, ...] = ()


def any_of(*marks: str) -> tuple[frozenset[str], ...]:
    """Sets of keys, each written as "one+other"."""
    return tuple(frozenset(mark.split("+")) for mark in marks)
