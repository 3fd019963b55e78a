"""What a run finds beside it: the packages of its Python, by their *.dist-info folders, and the logins it needs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ..model import Run, Schema, Unknown
from ..model.environment import Environment, release
from ..model.pattern import pattern
from ..model.shell import quoted
from ..trainers import named as named_trainer
from .world import Stat, World

NAMES = (
    *("torch", "diffusers", "transformers", "bitsandbytes", "lion_pytorch", "prodigyopt", "dadaptation", "wandb"),
    "huggingface_hub",
)
_METADATA = pattern(r"(?P<name>.+?)-(?P<version>[^-]+)(-py[\d.]+)?\.(dist|egg)-info")
_BUILD = pattern(rb"^__version__ = '([^']+)'", re.M)


def named(entries: Iterable[str], names: Sequence[str]) -> dict[str, str]:
    """The versions of the packages among `names` whose metadata is among the entries of a folder."""
    wanted = {_plain(name): name for name in names}
    found: dict[str, str] = {}
    for entry in entries:
        metadata = _METADATA.fullmatch(entry)
        key = wanted.get(_plain(metadata["name"])) if metadata else None
        if metadata and key is not None:
            found.setdefault(key, metadata["version"])
    return found


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "_", name).lower()


def build(version: str, source: object) -> str:
    """The version of torch as its own version.py has it, which names the build; `version` where it has none."""
    found = _BUILD.search(source) if isinstance(source, bytes) else None
    return found.group(1).decode("ascii", "replace") if found else version


def probe_environment(world: World, run: Run, schema: Schema | Unknown) -> Environment | Unknown:
    """The Python that has the trainer's own packages: the one that asks, else the venv of the trainer's checkout."""
    here = world.system.interpreter
    trainer = named_trainer(run.trainer)
    marks = () if trainer is None else trainer.packages
    if run.by_runner or marks:
        versions = world.packages((*NAMES, *marks))
        if all(mark in versions for mark in marks):
            return Environment(here or "this Python", versions)
    root = schema.source if isinstance(schema, Schema) else ""
    for python, folder in _of_checkout(world, root) if root and marks else ():
        entries = world.names(folder)
        versions = {} if isinstance(entries, Unknown) else named(entries, (*NAMES, *marks))
        if all(mark in versions for mark in marks):
            if "torch" in versions:
                source = world.read(world.join(folder, "torch", "version.py"), 0, 4096)
                versions["torch"] = build(versions["torch"], source)
            return Environment(python, versions)
    python = "path\\to\\python" if world.system.os == "windows" else "path/to/python"
    return Unknown(
        f"the packages that {run.trainer} will use were not found; {here or 'this Python'} does not have them. "
        f"Start zdoctor with the Python that runs {run.trainer}: {python} -m zdoctor check {quoted(run.config)}"
    )


def _of_checkout(world: World, root: str) -> Iterable[tuple[str, str]]:
    """The virtual environments in a folder: (interpreter, its folder of packages)."""
    for name in ("venv", ".venv"):
        if world.system.os == "windows":
            venv = world.join(root, name)
            yield world.join(venv, "Scripts", "python.exe"), world.join(venv, "Lib", "site-packages")
            continue
        for library in world.names_in(world.join(root, name, "lib")):
            if library.startswith("python3."):
                folder = world.join(root, name, "lib", library, "site-packages")
                yield world.join(root, name, "bin", "python"), folder


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
