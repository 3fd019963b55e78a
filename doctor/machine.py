"""Which machine a command looks at: this one, or the one in a machine file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .model.errors import UserError
from .probe.live import LiveWorld
from .probe.world import World


def world_of(
    machine: str | None, *, deep: bool = False, progress: Any = None, trainer_source: str | None = None
) -> World:
    """The live machine, or the one in a machine file. Raises UserError for a file or checkout that is none.

    `deep`: it keeps receipts of the files that it hashes, and tells `progress` (bytes done, in all, file name).
    """
    if trainer_source is not None:
        _require_checkout(trainer_source)
    live = _deep_world(progress, trainer_source) if deep else LiveWorld(trainer_source=trainer_source)
    if machine is None:
        return live
    from .probe.recorded import MachineError, RecordedWorld

    try:
        if Path(machine).exists() and not Path(machine).is_file():
            raise MachineError("it is not a file")
        text = Path(machine).read_text(encoding="utf-8")
        if not text.strip():
            raise MachineError("it is empty")
        record = json.loads(text)
        if not isinstance(record, dict):
            raise MachineError("it is not a JSON object")
        return RecordedWorld(
            record, live if record.get("live") else None, sources=live if trainer_source is not None else None
        )
    except FileNotFoundError:
        raise UserError(f"{machine}: there is no such file.", "zdoctor facts -o me.json writes one.") from None
    except RecursionError:
        raise UserError(f"{machine} is no machine file: it is nested too deeply.") from None
    except (OSError, ValueError, TypeError, KeyError, MachineError) as error:
        raise UserError(f"{machine} is no machine file: {error}.", "zdoctor facts -o me.json writes one.") from None


def _deep_world(progress: Any, trainer_source: str | None) -> LiveWorld:
    from .state import state_folder
    from .state.receipts import Receipts

    return LiveWorld(receipts=Receipts(state_folder()), progress=progress, trainer_source=trainer_source)


def _require_checkout(folder: str) -> None:
    """Raises UserError for a folder that is no checkout of a trainer that zdoctor knows."""
    from .schema.checkouts import recognised
    from .trainers import NAMES

    if not Path(folder).is_dir():
        raise UserError(f"{folder}: there is no such folder.", "Name the top folder of the checkout.")
    if recognised(Path(folder)) is None:
        known = ", ".join(NAMES)
        raise UserError(f"{folder} is no checkout of a trainer that zdoctor knows ({known}).", "Name its top folder.")
