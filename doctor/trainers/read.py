"""Reading a trainer's config: bytes in, records out. Nothing here opens a file."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from ..configs.reading import Beside, Found, Reading, failed, nothing, text_of
from ..model import Problem, Where
from ..model.record import replace
from .dialects import DIALECTS, dialect_of, recognise

__all__ = ["Beside", "Found", "Reading", "read_config"]


def read_config(
    path: str, data: bytes, environment: Mapping[str, str], *, trainer: str | None = None, beside: Beside = nothing
) -> Reading:
    """Read a config file's bytes as the trainer would; never raises for what is in them.

    Whose config it is shows in its keys, unless `trainer` says so. `environment` holds the variables that the trainer
    would see, `beside` finds the files that the config names. What the trainer's own reader would refuse is
    `config.problem`; then there are no runs.
    """
    config = text_of(path, data)
    if config.format == "python":
        from .script import read

        return read(config)
    dialect = recognise(config.text, config.format) if trainer is None else dialect_of(trainer)
    if dialect is not None:
        config = replace(config, trainer=dialect.trainer)
    if config.problem is not None:
        return failed(config, config.problem)
    own = DIALECTS[0]
    if trainer is not None and dialect is not own and recognise(config.text, config.format) is own:
        # no other trainer has its outermost keys, and each would pass over nearly all that is inside
        message = f"By its keys this is a config of {own.trainer}, and --trainer says {trainer}. Leave --trainer out."
        return failed(config, Problem(message, Where(path, 1, 1), "foreign"))
    # what is nobody's may be a config of the most used trainer with a slip in its outermost keys
    module = importlib.import_module(f".{(dialect or DIALECTS[0]).module}", __package__)
    reading: Reading = module.read(config, environment, beside)
    return reading
