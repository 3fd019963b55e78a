"""A config that was checked, as the formats take it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..doctor.model import Config, Report
from ..doctor.model.record import dataclass
from ..doctor.rules import Rule


@dataclass(frozen=True)
class Checked:
    """A report, the rules that were asked (for their documentation) and the text that repairs count offsets in."""

    report: Report
    rules: Sequence[Rule] = ()
    config: Config | None = None


def exit_code(reports: Iterable[Report]) -> int:
    """That of several: 1 where one has an error, else the largest."""
    codes = {report.exit_code for report in reports}
    return 1 if 1 in codes else max(codes)
