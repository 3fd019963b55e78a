"""Whether a config is for another machine than the one that looks at it."""

from __future__ import annotations

import re

from ..model import Files, Run, Schema, Unknown
from ..model.environment import Environment
from ..model.paths import DRIVE, PLACEHOLDER
from .world import World

# below these each machine has folders of its own
_HOLD_OTHERS = ("home", "Users", "mnt", "media", "Volumes")
_SETTINGS = (".toml", ".json", ".yaml", ".txt")  # which a config may have beside it wherever it is looked at


def probe_elsewhere(
    world: World, run: Run, files: Files, environment: Environment | Unknown, schema: Schema | Unknown
) -> str:
    """How it shows that the run is for another machine, "" where nothing says so.

    It names places that are not on this one (/workspace, C:\\, the home of somebody else), nothing of what it names
    is here, and neither is the trainer. What is recorded was named as the machine of the run; so may this one be.
    """
    own = isinstance(environment, Environment) or (isinstance(schema, Schema) and schema.source)
    if world.is_meant or world.system.recorded is not None or run.by_runner or not run.trainer or own:
        return ""
    inputs = {text: entry for text, entry in files.entries.items() if text != run.output_folder}
    if any(entry.kind in ("file", "folder") and not text.endswith(_SETTINGS) for text, entry in inputs.items()):
        return ""
    roots = [root for text, entry in inputs.items() if entry.is_gone and (root := _strange_root(world, text))]
    if not roots:
        return ""
    return f"{roots[0]} is not on this machine, and {run.trainer} was not found on it: the config is for another one"


def _strange_root(world: World, path: str) -> str:
    """The beginning of an absolute path, of which this machine has nothing; "" for any other path."""
    if PLACEHOLDER.search(path):
        return ""
    if DRIVE.match(path):
        root = path[:3] if path[1] == ":" else path
        return root if world.system.os != "windows" or world.stat(world.absolute(root)) is None else ""
    parts = re.match(rf"/(?:(?:{'|'.join(_HOLD_OTHERS)})/)?[^/]+(?=/)", path)
    return parts[0] if parts is not None and world.stat(world.absolute(parts[0])) is None else ""
