"""What the trainer of a config accepts: mined from its checkout where one is at hand, else the table that ships."""

from __future__ import annotations

from ..model import Config, Schema, Unknown
from ..schema.tables import shipped
from .world import World


def probe_schema(world: World, config: Config) -> Schema | Unknown:
    """The keys of the config's trainer. A checkout counts that the config lies in, or that lies beside it."""
    if config.trainer is None:
        return Unknown("it is not known which trainer the config is for")
    mined = world.schema(config.trainer, (world.parent(world.absolute(config.path)), world.system.cwd))
    if mined is not None:
        return mined
    return shipped(config.trainer) or Unknown(f"zdoctor has no table of the keys of {config.trainer}")
