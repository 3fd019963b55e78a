"""Which machine a command looks at: this one, or the one in a machine file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..probe.live import LiveWorld
from ..probe.world import World


def world_of(
    machine: str | None,
    *,
    deep: bool = False,
    progress: Any = None,
    trainer_source: str | None = None,
    to_repair: bool = False,
) -> World:
    """The live machine, or the one in a machine file. Raises UserError for a file or checkout that is none.

    `to_repair`: and for a machine of which there is only the record.
    `deep`: it keeps receipts of the files that it hashes, and tells `progress` (bytes done, in all, file name).
    """
    if trainer_source is not None:
        _require_checkout(trainer_source)
    live = _deep_world(progress, trainer_source) if deep else LiveWorld(trainer_source=trainer_source)
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
        raise UserError(f"{machine}: there is no such file.", "zdoctor facts -o me.json writes one.") from None
    except RecursionError:
        raise UserError(f"{machine} is no machine file: it is nested too deeply.") from None
    except (OSError, ValueError, TypeError, KeyError, MachineError) as error:
        raise UserError(f"{machine} is no machine file: {error}.", "zdoctor facts -o me.json writes one.") from None
    if to_repair and world.live is None:
        raise UserError("a recorded machine can be looked at, not repaired.", "Leave --apply or --machine out.")
    return world


def _deep_world(progress: Any, trainer_source: str | None) -> LiveWorld:
    from ..state import state_folder
    from ..state.receipts import Receipts

    return LiveWorld(receipts=Receipts(state_folder()), progress=progress, trainer_source=trainer_source)


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
