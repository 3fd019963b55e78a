"""Which settings of a run will ask for a login. Only whether a token is there is looked at, never the token."""

from __future__ import annotations

from ..model import Run, Schema, Unknown
from ..model.environment import Environment, release
from .world import Stat, World


def probe_logins(
    world: World, run: Run, schema: Schema | Unknown, environment: Environment | Unknown
) -> tuple[str, ...] | Unknown:
    """The settings that are on and for which no token is found, by their keys."""
    hub_key, wandb_key = run.keys.get("checkpoints.push_to_hub", ""), run.keys.get("logging.wandb", "")
    asking = [key for key in (hub_key, wandb_key) if run.setting(key) is True]
    if not asking:
        return ()
    if world.system.recorded is not None:
        return Unknown("a recorded machine does not tell who is logged in")
    root = schema.source if isinstance(schema, Schema) else ""
    if not root:
        return Unknown("ai-toolkit's checkout was not found, whose .env file may hold the tokens")
    home = world.system.home

    def there(*parts: str) -> bool:
        return isinstance(world.stat(world.join(*parts)), Stat)

    place = root
    while not there(place, ".env"):  # python-dotenv looks upwards from run.py
        above = world.parent(place)
        if above == place:
            break
        place = above
    else:
        return ()
    hub = environment.versions.get("huggingface_hub", "") if isinstance(environment, Environment) else ""
    caches = world.variables.get("HF_HOME") or world.join(home, ".cache", "huggingface")
    # from version 1.0 on the trainer's own call is refused, logged in or not
    logged_in = release(hub) < (1,) and there(caches, "token")
    wandb = world.variables.get("WANDB_MODE") in ("offline", "disabled", "dryrun")
    answered = {
        hub_key: "HF_TOKEN" in world.variables or logged_in,
        wandb_key: wandb
        or "WANDB_API_KEY" in world.variables
        or "NETRC" in world.variables
        or there(home, ".netrc")
        or there(home, "_netrc"),
    }
    return tuple(key for key in asking if not answered[key])
