"""A new virtual environment beside one that no package mends: of another Python, or of the same with its own set."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from urllib.parse import unquote

from ..doctor.model import Finding, Fix, Gpu, MakeEnvironment, System, Unknown
from ..doctor.model.environment import Environment, Installed, Metadata, release
from ..doctor.packages.indexes import TORCHES, builds, nearest
from ..doctor.packages.names import CORE, modules_of
from ..doctor.rules import repair
from .packages import PYTORCH

_ITS_OWN = ("pip", "uv")  # the tools of an environment, no part of the set that a trainer needs


@repair("PKG013")
def make_it_of_its_python_again(
    finding: Finding, environment: Environment | Unknown, installed: Installed | Unknown, system: System
) -> Iterator[Fix]:
    """The same release of Python, the same versions, from where each came."""
    if isinstance(environment, Unknown) or isinstance(installed, Unknown) or not environment.root:
        return
    own = [one for one in installed.metadata.values() if one.folder.startswith(environment.own)]
    label = environment.versions.get("torch", "").partition("+")[2]
    of_torch = [one for one in own if label and (one.name in TORCHES or one.name.startswith("pytorch_triton"))]
    first = tuple(_exact(one, environment) for one in of_torch)
    wanted = tuple(_exact(one, environment) for one in own if one not in of_torch and one.name not in _ITS_OWN)
    if first or wanted:
        names = [one.name for one in own]
        index = f"{PYTORCH}/{label}" if first else ""
        yield _made(environment, system, environment.release, wanted, first, index, exact=True, names=names)


def _exact(one: Metadata, environment: Environment) -> str:
    """A package as pip freeze has it."""
    name = one.name.replace("_", "-")
    if one.commit:
        return f"{name} @ git+{one.url}@{one.commit}"
    if one.url.startswith("file://") and not one.url.endswith((".whl", ".gz", ".zip")):
        path = unquote(one.url.removeprefix("file://"))
        return f"--editable={path.removeprefix('/') if path[2:3] == ':' else path}"  # /C:/… on Windows
    return f"{name} @ {one.url}" if one.url else f"{name}=={environment.versions.get(one.name, one.version)}"


@repair("PKG007", "PKG018")
def make_one_of_a_fitting_python(
    finding: Finding,
    environment: Environment | Unknown,
    installed: Installed | Unknown,
    gpus: tuple[Gpu, ...] | Unknown,
    system: System,
) -> Iterator[Fix]:
    """Of the release of Python that has wheels of all that the trainer asks for, with just that."""
    if isinstance(environment, Unknown) or isinstance(installed, Unknown) or not environment.root:
        return
    is_about_python = finding.rule == "PKG018" or str(finding.args.get("package")) == "python"
    asked = [one for one in installed.requirements if one.name != "python"]
    if not (is_about_python and installed.nearest and asked) or environment.release.startswith(installed.nearest):
        return
    versions = {one.name: one.versions for one in asked}
    cards = () if isinstance(gpus, Unknown) else gpus
    first, index = _torch(environment, installed.nearest, versions.get("torch", ""), cards, system)
    wanted = tuple(one.line for one in asked if one.name not in TORCHES or not index)
    names = [*versions, *(("torch",) if first else ())]
    yield _made(environment, system, installed.nearest, wanted, first, index, names=names)


def _torch(
    environment: Environment, python: str, asked: str, cards: Sequence[Gpu], system: System
) -> tuple[tuple[str, ...], str]:
    """torch with torchvision for the card from the index that has it: the version of before, where it may stay."""
    if not cards:
        return (("torch",), "") if not asked and environment.has("torch") else ((), "")
    former = environment.versions.get("torch", "")
    fitting = list(builds(cards[0], python, system, asked))
    best = nearest(cards[0], python, system, former) if former else None
    build = best if best in fitting else fitting[0] if fitting else None
    if build is None:
        return (), ""
    return (build.torch, *((build.torchvision,) if build.torchvision else ())), f"{PYTORCH}/{build.index}"


def _made(
    environment: Environment,
    system: System,
    python: str,
    wanted: tuple[str, ...],
    first: tuple[str, ...],
    index: str,
    *,
    exact: bool = False,
    names: Sequence[str],
) -> Fix:
    python = ".".join(map(str, release(python)[:2]))
    path = f"{environment.root}-py{python}"
    modules = tuple(module for name in CORE if name in names for module in modules_of(name))
    step = MakeEnvironment(path, python, wanted, first, index, exact, modules)
    start = system.join(path, *(("Scripts", "python.exe") if system.os == "windows" else ("bin", "python")))
    title = f"make a new environment of Python {python} beside it, and start the trainer with {start}"
    return Fix(title, (step,), "ask")
