"""A config on the machine that was asked for: what check, fix, train and facts all begin with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..examine.examination import Examination, examine_config
from ..model.record import replace
from ..rules import all_rules
from ..rules.selection import select
from .machine_file import world_of


def examined(
    config: str,
    *,
    machine: str | None = None,
    selected: Sequence[str] = (),
    ignored: Sequence[str] = (),
    deep: bool = False,
    trainer: str | None = None,
    trainer_source: str | None = None,
    progress: Any = None,
    as_runner: bool = False,
    to_repair: bool = False,
) -> Examination:
    """Check with everything it rests on; `check` is the short form. `as_runner`: see `examine_config`.

    `to_repair` refuses a machine that cannot be repaired. The report holds what was asked for, to be asked for again.
    Where only some rules were asked for, nobody knows whether `zdoctor train` would start.
    """
    rules = select(all_rules(), selected, ignored)
    world = world_of(machine, deep=deep, progress=progress, trainer_source=trainer_source, to_repair=to_repair)
    seen = examine_config(config, world, rules, deep=deep, trainer=trainer, as_runner=as_runner)
    words = (("machine", machine), ("trainer", trainer), ("trainer-source", trainer_source))
    options = tuple((name, value) for name, value in words if value is not None)
    report = replace(seen.report, options=options)
    if selected or ignored:
        report = replace(report, trainable=False, held_back=())
    return replace(seen, report=report)
