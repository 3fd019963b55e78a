"""The user's state folder: the journal of what was changed, and which config each directory was last checked with.

It lies where the system keeps such things (`~/.local/state/zdoctor`, `%LOCALAPPDATA%\\zdoctor`), never beside the
user's files; the environment variable ZDOCTOR_STATE names another folder.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from pathlib import Path

REMEMBERED = 500


def state_folder() -> Path:
    """The absolute path of the state folder. It need not exist."""
    chosen = os.environ.get("ZDOCTOR_STATE")
    if chosen:
        return Path(os.path.expanduser(chosen)).absolute()
    if sys.platform == "linux":  # as platformdirs says, whose import takes longer than all else here
        chosen = os.environ.get("XDG_STATE_HOME", "").strip()
        return Path(chosen or os.path.expanduser("~/.local/state")) / "zdoctor"
    from platformdirs import user_state_path

    return user_state_path("zdoctor", appauthor=False)


def recall() -> str | None:
    """The config that the working directory was last checked with, as it was named then; None when it is gone."""
    config = _read(state_folder()).get(str(Path.cwd()))
    return config if config is not None and Path(config).is_file() else None


def remember(config: str) -> None:
    """Note the config for the working directory."""
    folder = state_folder()
    known = _read(folder)
    key = str(Path.cwd())
    if known.get(key) == config:
        return
    known.pop(key, None)
    known[key] = config
    kept = dict(list(known.items())[-REMEMBERED:])
    keep(folder / "configs.json", json.dumps(kept, indent=1).encode("ascii"))


def keep(file: Path, data: bytes) -> None:
    """Write a note, whole or not at all. Where the state folder cannot be written, nothing is noted."""
    temporary = file.with_name(f"{file.stem}-{os.urandom(4).hex()}.part")
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary.write_bytes(data)
        temporary.replace(file)
    except OSError:
        with suppress(OSError):
            temporary.unlink()


def _read(state: Path) -> dict[str, str]:
    try:
        if not (state / "configs.json").is_file():
            return {}
        known = json.loads((state / "configs.json").read_text(encoding="ascii"))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(known, dict):
        return {}
    return {key: value for key, value in known.items() if isinstance(value, str)}
