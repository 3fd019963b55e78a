"""What a run finds beside it: the Python that will run it with its packages, and the logins it needs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from ..model import Run, Schema, Unknown
from ..model.environment import Environment, release
from ..model.record import replace
from ..model.shell import quoted
from ..packages.launcher import PLAIN
from ..trainers import named as named_trainer
from .launchers import launchers, on_path
from .packages import versions_on
from .search_path import home_of, search_path_of
from .world import Mount, Stat, World

# As trainers' READMEs, installers and portable builds name the folder of their Python; ai-toolkit's interface takes
# .venv before venv (ui/cron/pythonPath.ts).
_VENVS = (".venv", "venv", "env", ".pixi/envs/default", "python_embeded", "python_embedded")
_OF_OURS = re.compile(r"\.?v?env-py3\.\d+")  # that a repair made beside one of these
_THIS = "it runs zdoctor"
_ACTIVE = ("VIRTUAL_ENV", "CONDA_PREFIX")
_RELEASE = re.compile(r"^version(?:_info)?\s*=\s*(\d+\.\d+(?:\.\d+)?)", re.M)
_OF_CONDA = re.compile(r"python-(3\.\d+(?:\.\d+)?)-.*\.json")
_OF_DLL = re.compile(r"python3(\d+)\.(?:dll|_pth)")


def probe_environment(world: World, run: Run, schema: Schema | Unknown) -> Environment | Unknown:
    """The Python that will run it, and what it lies on."""
    found = _found(world, run, schema)
    if isinstance(found, Unknown) or not found.own:
        return found
    mount = world.mount(found.own)
    return replace(found, filesystem=mount.filesystem) if isinstance(mount, Mount) else found


def _found(world: World, run: Run, schema: Schema | Unknown) -> Environment | Unknown:
    """The Python that has the trainer's own packages: the one that asks, the active one, or one of its checkout.

    Where none has them, it is the one in the checkout; without a trainer the active one, else the one that asks.
    """
    here = world.system.interpreter
    trainer = named_trainer(run.trainer)
    marks = () if trainer is None else trainer.packages
    active = [] if run.by_runner else list(_active(world))
    if run.by_runner or marks or not run.trainer:
        versions = world.packages()
        this = _this(world, here, versions)
        if not run.trainer:
            return active[0] if active else this
        if all(mark in versions for mark in marks):
            return this
    root = schema.source if isinstance(schema, Schema) else ""
    own = list(_of_checkout(world, root, trainer.entries)) if root and trainer is not None and marks else []
    for environment in (*active, *own) if marks else ():
        if all(mark in environment.versions for mark in marks) and not environment.base_gone:
            return environment
    if own:
        return own[0]
    python = "path\\to\\python" if world.system.os == "windows" else "path/to/python"
    return Unknown(
        f"the packages that {run.trainer} will use were not found; {here or 'this Python'} does not have them. "
        f"Start zdoctor with the Python that runs {run.trainer}: {python} -m zdoctor check"
        f"{' ' + quoted(run.config) if run.config else ''}"
    )


def _this(world: World, here: str, versions: Mapping[str, str]) -> Environment:
    """The Python that runs zdoctor."""
    folders, root = world.search_path(), world.parent(world.parent(here))
    marks = [isinstance(world.stat(world.join(root, name)), Stat) for name in ("pyvenv.cfg", "conda-meta") if here]
    own = (one for one in folders if world.name(one) == "site-packages" and world.system.is_inside(one, root))
    return Environment(
        here or "this Python",
        versions,
        world.system.python,
        folders,
        found_by=_THIS if here else "",
        root=root if marks[:1] == [True] else "",
        own=next(own, "") if any(marks) else "",
    )


def _active(world: World) -> Iterator[Environment]:
    for name in _ACTIVE:
        folder = world.variables.get(name)
        if folder and (found := of_folder(world, folder)) is not None:
            yield replace(found, found_by=f"active: {name} names it")


def _of_checkout(world: World, root: str, entries: Sequence[str]) -> Iterator[Environment]:
    """The one that a start script of a checkout starts, then those in it and beside it."""
    scripts = list(launchers(world, root, entries))
    for script, python in scripts:
        folder = world.parent(python)
        place = world.parent(folder) if world.name(folder).lower() in ("scripts", "bin") else folder
        if python != PLAIN and (found := of_folder(world, place)) is not None:
            yield replace(found, found_by=f"{script} starts it")
    past = next((script for script, python in scripts if python == PLAIN), "") if world.system.os == "windows" else ""
    first, is_stub = on_path(world) if past else ("", False)
    for one in _inside(world, root):
        yield replace(one, past=past, on_path=first, is_stub=is_stub)


def _inside(world: World, root: str) -> Iterator[Environment]:
    """The environments in a checkout, then those in the folder that it lies in."""
    for place in (root, world.parent(root)):
        made = [name for name in world.names_in(place) if _OF_OURS.fullmatch(name)]
        every = {name: of_folder(world, world.below(place, name)) for name in (*_VENVS, *made)}
        there = {name: found for name, found in every.items() if found is not None}
        for name, found in there.items():
            others = "".join(f"; {other} lies there, too" for other in there if other != name)
            yield replace(found, found_by=f"it lies {'in' if place == root else 'beside'} the checkout{others}")


def of_folder(world: World, folder: str) -> Environment | None:
    """The Python environment in a folder, None where there is none."""
    text = world.read(world.join(folder, "pyvenv.cfg"), 0, 1 << 16)
    settings = text.decode("utf-8", "replace") if isinstance(text, bytes) else ""
    if world.system.os == "windows":
        packages, told = world.join(folder, "Lib", "site-packages"), _RELEASE.search(settings)
        python = world.join(folder, *(("Scripts",) if settings else ()), "python.exe")
        if not world.is_folder(packages):
            return None
        version = told[1] if told else _release_in(world, folder)
    else:
        library = world.join(folder, "lib")
        versions = [name for name in world.names_in(library) if re.fullmatch(r"python3\.\d+", name)]
        if not versions:
            return None
        packages, python = world.join(library, versions[-1], "site-packages"), world.join(folder, "bin", "python")
        version = versions[-1].removeprefix("python")
    folders = search_path_of(world, folder, settings, version, packages)
    return Environment(
        python,
        versions_on(world, folders),
        version,
        folders,
        _base_gone(world, python, settings),
        root=folder if settings else "",
        own=packages,
    )


def _release_in(world: World, folder: str) -> str:
    """The release of a Python of Windows, as conda notes it or its own library is named; "" where nothing tells."""
    for name in world.names_in(world.join(folder, "conda-meta")):
        if told := _OF_CONDA.fullmatch(name):
            return told[1]
    found = (_OF_DLL.fullmatch(name) for name in world.names_in(folder))
    return next((f"3.{one[1]}" for one in found if one), "")


def _base_gone(world: World, python: str, settings: str) -> str:
    """The interpreter that a virtual environment was made of, where it is no longer there; "" where it is."""
    home = home_of(settings)
    if not home:
        return ""
    if world.system.os == "windows":
        base = world.join(home, "python.exe")
        return base if world.stat(base) is None and world.stat(home) is None else ""
    link = world.stat(python)
    final, stat = world.resolve(python) if isinstance(link, Stat) and link.kind == "link" else (python, link)
    return final if isinstance(link, Stat) and stat is None else ""


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
