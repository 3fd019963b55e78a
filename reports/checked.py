"""A config that was checked, as the formats take it."""

from __future__ import annotations

from collections.abc import Sequence

from ..doctor.model import Config, Report
from ..doctor.model.record import dataclass
from ..doctor.rules import Rule


@dataclass(frozen=True)
class Checked:
    """A report, the rules that were asked (for their documentation) and the text that repairs count offsets in."""

    report: Report
    rules: Sequence[Rule] = ()
    config: Config | None = None
