"""A training script in the place of a config: it names no run, and what it says is found in its syntax tree."""

from __future__ import annotations

from ..configs.python_tree import Unparsable, parsed
from ..configs.reading import Reading, failed
from ..model import Config, Problem, Where
from ..model.record import replace
from ..model.script import SCRIPT


def read(config: Config) -> Reading:
    """Without runs; `problem` when this Python cannot parse it."""
    config = replace(config, trainer=SCRIPT)
    if config.problem is not None:
        return failed(config, config.problem)
    try:
        parsed(config.text)
    except Unparsable as error:
        where = Where(config.path, error.line or 1, error.column or 1)
        return failed(config, Problem(str(error), where))
    return Reading(config, reason="a script is checked and probed, not trained by zdoctor")
