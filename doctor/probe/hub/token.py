"""Where the hub client finds its token; what it says is read for nothing but whether it is empty.

Source: huggingface_hub, utils/_auth.py and utils/_headers.py.
"""

from __future__ import annotations

from ...model import Run
from ..world import Stat, World

_VARIABLES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
_ELSEWHERE = ("HF_OIDC_RESOURCE", "COLAB_RELEASE_TAG")  # it is fetched, or asked of the notebook's secrets
_DISABLED = "HF_HUB_DISABLE_IMPLICIT_TOKEN"


def token_of(world: World, run: Run) -> str | None:
    """The variable or the file that holds a token, "" where there is none; None where it may come from elsewhere."""
    given = world.variables
    if world.system.recorded is not None or any(given.get(name) for name in _ELSEWHERE):
        return None
    if any("token" in key.rpartition("/")[2] for key in run.settings) or _has_dotenv(world, run):
        return None
    if given.get(_DISABLED, "").upper() in ("1", "ON", "YES", "TRUE"):
        return ""
    for name in _VARIABLES:
        if given.get(name, "").strip():
            return name
    caches = given.get("XDG_CACHE_HOME") or world.join(world.system.home, ".cache")
    home = given.get("HF_HOME") or world.join(caches, "huggingface")
    file = given.get("HF_TOKEN_PATH") or world.join(home, "token")
    return file if isinstance(world.stat(file), Stat) and world.read(file, 0, 1) != b"" else ""


def _has_dotenv(world: World, run: Run) -> bool:
    """Whether a .env file lies where trainers look for one: from their checkout, or the config, upwards."""
    for place in (world.system.cwd, world.parent(world.absolute(run.config))):
        above = ""
        while place != above:
            if isinstance(world.stat(world.join(place, ".env")), Stat):
                return True
            place, above = world.parent(place), place
    return False
