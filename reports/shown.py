"""A report that shows itself, at a prompt and in a notebook, as the formats do."""

from __future__ import annotations

from collections.abc import Sequence

from ..doctor.model import Config, Report
from ..doctor.rules import Rule
from . import html, terminal, words
from .checked import Checked
from .painting import PAGE, paint


class ShownReport(Report):
    """`rules` are those that were asked, `written` the config as it was read; without them less is shown."""

    rules: Sequence[Rule] = ()
    written: Config | None = None

    def __str__(self) -> str:
        return paint(terminal.lines(self, PAGE, config=self.written)).rstrip("\n")

    def __repr__(self) -> str:
        return f"<Report of {words.clean(self.config)}: {words.verdict(self)}>".replace("\n", " ")

    def _repr_html_(self) -> str:
        return html.fragment(Checked(self, self.rules, self.written))


def shown(one: Checked) -> ShownReport:
    """The same report, which shows itself."""
    made = ShownReport(**vars(one.report))
    vars(made).update(rules=one.rules, written=one.config)
    return made
