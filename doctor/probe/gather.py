"""Facts on demand: only the probes that the selected rules need are run, each once.

A probe's parameters are `world`, `deep` (whether whole files are read) or names of other facts, as with rules.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

from ..memory import predict, started_with
from ..model import (
    Checkout,
    Config,
    DatasetFolder,
    Facts,
    Files,
    Gpu,
    Hub,
    Memory,
    ModelFolder,
    Run,
    Schema,
    System,
    Unknown,
    Writes,
)
from ..model.environment import Environment
from ..model.facts import NOT_ASKED
from ..model.record import replace
from ..model.script import Script
from ..schema.tables import shipped
from .adapter import probe_adapter
from .dataset import probe_datasets
from .elsewhere import probe_elsewhere
from .environment import probe_environment, probe_logins
from .files import SIZES, probe_files, probe_room, probe_writes
from .host import probe_host
from .hub import claimed, probe_hub
from .hub.client import probe_answers, probe_client
from .installed import probe_installed
from .model import probe_model
from .skeletons import with_skeletons
from .start import probe_earlier, probe_remains, probe_start, probe_starting_lora
from .storage import probe_storage
from .world import World

# the folder of a script that is started, and one that is entered
_ENTERED = re.compile(r"""([\w.~/\\:-]+)[/\\]\w+\.py\b|\bcd[ \t]+["']?([\w.~/\\:-]+)""")
MOST_ENTERED = 20


def _model(world: World, run: Run, hub: Hub | Unknown, deep: bool) -> ModelFolder | Unknown:
    """As the trainer opens it; what is broken in a folder that the hub client filled is left to the rules on hubs."""
    model = probe_model(world, run, hub)
    if isinstance(model, Unknown):
        return model
    if deep:
        model = with_skeletons(world, model)
    return model if isinstance(hub, Unknown) else claimed(model, hub)


def _writes(world: World, run: Run, files: Files, checkout: Checkout | Unknown | None) -> Writes:
    """A checkout that guards the writing of `.aitk_size.json` does not end where it cannot be written."""
    writes = probe_writes(world, run, files)
    if not isinstance(checkout, Checkout) or checkout.size_file is None or checkout.size_file.guard is not None:
        return writes
    return replace(writes, places=tuple(place for place in writes.places if place.what != SIZES))


def near_sources(world: World, config: Config) -> tuple[str, ...]:
    """The folders at, above or in which the trainer's source may lie, the likeliest first.

    Those that a script starts from or enters, that of the config, and the working directory.
    """
    around = (world.parent(world.absolute(config.path)), world.system.cwd)
    found = _ENTERED.findall(config.text) if config.format == "shell" else ()
    named = dict.fromkeys(world.join(base, started or entered) for started, entered in found for base in around)
    return (*list(named)[:MOST_ENTERED], *around)


def _schema(world: World, config: Config) -> Schema | Unknown:
    """What the config's trainer accepts: mined from its checkout where one is at hand, else the table that ships."""
    if config.trainer is None:
        return Unknown("it is not known which trainer the config is for")
    mined = world.schema(config.trainer, near_sources(world, config))
    if isinstance(mined, Unknown):
        return mined
    table = shipped(config.trainer)
    if mined is not None and (table is None or not _started_elsewhere(config, mined, table)):
        return mined
    return table or Unknown(f"zdoctor has no table of the keys of {config.trainer}")


def _started_elsewhere(config: Config, mined: Schema, table: Schema) -> bool:
    """Whether a script starts nothing that lies in this checkout, so that it is meant for another one."""
    started = (
        set(re.findall(r"\w+", config.text)).intersection(table.processes) if config.format == "shell" else set()
    )
    return bool(started) and started.isdisjoint(mined.processes)


def _checkout(schema: Schema) -> Checkout | None:
    """The checkout that the config's schema was mined from; None where there is none at hand."""
    if schema.trainer != "ai-toolkit" or not schema.source:
        return None
    from .source.checkout import read_checkout

    return read_checkout(schema.source, schema.commit)


def _script(world: World, config: Config) -> Script | Unknown:
    from .source.script import probe_script

    return probe_script(world, config)


def _memory(
    run: Run,
    model: ModelFolder,
    datasets: tuple[DatasetFolder, ...] | Unknown,
    system: System,
    gpus: tuple[Gpu, ...],
    environment: Environment | Unknown,
) -> Memory | Unknown:
    return predict(started_with(environment, run), model, datasets, system, gpus)


Probe = Callable[..., Any]
PROBES: Mapping[str, Probe] = {
    "system": lambda world: world.system,
    "gpus": lambda world: world.gpus(),
    "packages": lambda world: world.packages(),
    "host": probe_host,
    "environment": probe_environment,
    "installed": probe_installed,
    "logins": probe_logins,
    "files": probe_files,
    "elsewhere": probe_elsewhere,
    "writes": _writes,
    "hub": lambda world, run, deep: probe_hub(world, run, deep=deep),
    "client": probe_client,
    "answers": probe_answers,
    "model": _model,
    "adapter": probe_adapter,
    "starting_lora": probe_starting_lora,
    "start": probe_start,
    "earlier": probe_earlier,
    "remains": probe_remains,
    "datasets": probe_datasets,
    "room": probe_room,
    "storage": probe_storage,
    "memory": _memory,
    "schema": _schema,
    "checkout": _checkout,
    "script": _script,
    "microstep": lambda world: Unknown("no step was tried: that is what zdoctor probe does"),
    "lora": lambda world: Unknown("no LoRA was named"),
    "lora_values": lambda world: Unknown("no LoRA was named"),
}

# what of this machine says nothing of a run that is for another one
_OF_THIS_MACHINE = ("gpus", "host", "client", "answers", "hub", "memory", "room", "storage", "writes")


def gather(
    world: World,
    config: Config,
    run: Run | Unknown,
    needed: Iterable[str],
    *,
    shared: dict[str, Any] | None = None,
    before: Facts | None = None,
    deep: bool = False,
) -> Facts:
    """The facts named in `needed`, with what they rest on; those in `before` are taken from there.

    `shared` carries the facts that do not depend on the run from one run of a config to the next.
    """
    asked = {} if before is None else {name: fact for name, fact in vars(before).items() if fact is not NOT_ASKED}
    known: dict[str, Any] = {**asked, **(shared or {}), "world": world, "deep": deep, "config": config, "run": run}

    def establish(name: str) -> Any:
        if name in known:
            return known[name]
        if name in _OF_THIS_MACHINE and (why := establish("elsewhere")) and isinstance(why, str):
            known[name] = Unknown(why)
        else:
            known[name] = _probe(PROBES[name], establish)
            if shared is not None and name in ("system", "gpus", "host", "packages", "schema", "checkout"):
                shared[name] = known[name]
        return known[name]

    for name in needed:
        establish(name)
    return Facts(**{name: fact for name, fact in known.items() if name not in ("world", "deep")})


def _probe(probe: Probe, establish: Callable[[str], Any]) -> Any:
    arguments: dict[str, Any] = {}
    for name, takes_unknown in _parameters(probe):
        value = establish(name)
        if isinstance(value, Unknown) and not takes_unknown:
            return value
        arguments[name] = value
    try:
        return probe(**arguments)
    except Exception as error:  # a probe never stops the others; its facts are unknown, with the reason
        return Unknown(f"{getattr(probe, '__name__', 'a probe')} failed: {type(error).__name__}: {error}")


@cache
def _parameters(probe: Probe) -> tuple[tuple[str, bool], ...]:
    """(name, whether Unknown is accepted) of the positional parameters that a caller must give."""
    code = probe.__code__  # to import inspect takes longer than most probes
    required = code.co_varnames[: code.co_argcount - len(probe.__defaults__ or ())]
    return tuple((name, "Unknown" in str(probe.__annotations__.get(name))) for name in required)
