"""A config on the machine that was asked for, this one or a recorded one: what several commands begin with."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..configs.reading import text_of
from ..errors import UserError
from ..examine.config_file import load
from ..examine.examination import Examination, examine_config
from ..model.findings import HERE
from ..model.record import replace
from ..probe.live import LiveWorld, shell_here
from ..probe.world import World
from ..state import state_folder
from ..trainers.read import recognise
from .settings_file import Settings, settings_for

WRITES_ONE = "zdoctor facts --keep-paths -o me.json writes one."
ENVIRONMENT = ""  # instead of a config: the environment alone
LORA_TYPED = "zdoctor check lora.safetensors --base MODEL"
_WEIGHTS = (".safetensors", ".pt", ".pth", ".ckpt", ".bin")


def examined(
    config: str,
    *,
    machine: str | None = None,
    selected: Sequence[str] = (),
    ignored: Sequence[str] = (),
    deep: bool = False,
    online: bool = False,
    trainer: str | None = None,
    trainer_source: str | None = None,
    base: str | None = None,
    progress: Any = None,
    as_runner: bool = False,
    to_repair: bool = False,
    worlds: dict[str | None, World] | None = None,
    text: bytes | None = None,
    prove: bool = True,
    active: str | None = None,
    meant: bool = False,
) -> Examination:
    """Check with everything it rests on; `check` is the short form. `as_runner`: see `examine_config`.

    What is asked here stands above what the settings file of the config says. A machine file is that of `machine`,
    of the settings file where that is None; HERE is none, and says like `meant` that the run is for
    this one. `config` may be ENVIRONMENT. `to_repair` refuses a machine
    that cannot be repaired. The report holds what was asked for, to be asked for again. `worlds` are the machines
    that were looked at for other configs, by their files, and are not looked at anew.
    `active`: as if that virtual environment were the active one.
    Where only some rules were asked for, nobody knows whether `zdoctor train` would start.
    """
    settings = settings_for(config)
    rules = settings.rules(selected, ignored)
    if is_lora(config) and not as_runner:
        machine = HERE  # such a file is the same on every machine
    recorded = settings.machine if machine is None and not as_runner else machine if machine != HERE else None
    worlds = {} if worlds is None else worlds
    if recorded not in worlds:
        worlds[recorded] = world_of(
            recorded,
            deep=deep,
            online=online,
            progress=progress,
            trainer_source=trainer_source,
            to_repair=to_repair,
            active=active,
        )
    world = worlds[recorded]
    world.is_meant = meant or machine == HERE
    if config == ENVIRONMENT:
        from ..examine.environment import examine_environment

        seen = examine_environment(world, rules, trainer or settings.trainer)
    elif is_lora(config) and not as_runner:
        from ..examine.lora import examine_lora

        seen = examine_lora(config, world, rules, base, progress)
    else:
        if base is not None:
            raise UserError("--base is the model of a LoRA, and no LoRA was named.", LORA_TYPED)
        whose = trainer or _whose(config, settings, text)
        seen = examine_config(config, world, rules, text, deep=deep, trainer=whose, as_runner=as_runner, prove=prove)
    elsewhere = None if machine == HERE and settings.machine is None else machine
    words = (("machine", elsewhere), ("trainer", trainer), ("trainer-source", trainer_source), ("base", base))
    options = tuple((name, value) for name, value in words if value is not None)
    report = replace(seen.report, options=options, settings=settings.told, shell=shell_here())
    if selected or ignored:
        report = replace(report, trainable=False, held_back=())
    return replace(seen, report=report)


def is_lora(config: str) -> bool:
    """Whether what was named is a file of weights, which is looked at as a LoRA, and no config."""
    return config.lower().endswith(_WEIGHTS)


def _whose(config: str, settings: Settings, text: bytes | None) -> str | None:
    """The trainer of the settings file, for a config whose own keys do not say whose it is."""
    if settings.trainer is None:
        return None
    read = text_of(config, load(config) if text is None else text)
    return None if recognise(read.text, read.format) else settings.trainer


def world_of(
    machine: str | None,
    *,
    deep: bool = False,
    online: bool = False,
    progress: Any = None,
    trainer_source: str | None = None,
    to_repair: bool = False,
    active: str | None = None,
) -> World:
    """The live machine, or the one in a machine file. Raises UserError for a file or checkout that is none.

    `to_repair`: and for a machine of which there is only the record.
    `deep`: it keeps receipts of the files that it hashes, and tells `progress` (bytes done, in all, file name).
    `online`: the hub may be asked.
    """
    if trainer_source is not None:
        _require_checkout(trainer_source)
    receipts = None
    if deep:
        from ..state.receipts import Receipts

        receipts = Receipts(state_folder())
    variables = None if active is None else {**os.environ, "VIRTUAL_ENV": active}
    live = LiveWorld(variables, receipts=receipts, progress=progress, trainer_source=trainer_source, online=online)
    if machine is None:
        return live
    from ..probe.recorded import MachineError, RecordedWorld

    try:
        if Path(machine).exists() and not Path(machine).is_file():
            raise MachineError("it is not a file")
        text = Path(machine).read_text(encoding="utf-8")
        if not text.strip():
            raise MachineError("it is empty")
        record = json.loads(text)
        if not isinstance(record, dict):
            raise MachineError("it is not a JSON object")
        world = RecordedWorld(record, live)
    except FileNotFoundError:
        raise UserError(f"{machine}: there is no such file.", WRITES_ONE) from None
    except RecursionError:
        raise UserError(f"{machine} is no machine file: it is nested too deeply.") from None
    except (OSError, ValueError, TypeError, KeyError, MachineError) as error:
        raise UserError(f"{machine} is no machine file: {error}.", WRITES_ONE) from None
    if to_repair and world.beside is None:
        raise UserError("a recorded machine can be looked at, not repaired.", "--machine here repairs on this one.")
    return world


def _require_checkout(folder: str) -> None:
    """Raises UserError for a folder that is no checkout of a trainer that zdoctor knows."""
    from ..schema.checkouts import recognised
    from ..trainers import names

    if recognised(existing_folder(folder)) is None:
        known = ", ".join(names())
        raise UserError(f"{folder} is no checkout of a trainer that zdoctor knows ({known}).", "Name its top folder.")


def existing_folder(checkout: str) -> Path:
    if not Path(checkout).is_dir():
        raise UserError(f"{checkout}: there is no such folder.", "Name the top folder of the checkout.")
    return Path(checkout)
