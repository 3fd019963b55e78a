"""Step: packages of a virtual environment are brought to what is asked for, with what they need, by pip.

pip works out what has to change, and installs that into a folder of ours beside the environment; the files of the
former versions are then moved aside and the new ones to where they belong, so that each can be taken back. The
environment imports what was asked for before the step counts as done.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from itertools import chain, count
from pathlib import Path
from typing import Any

from ...model import InstallPackages
from ...model.environment import plain
from ...packages.names import modules_of
from ...packages.requirements import requirement
from ..actions.build import move, put, scratch
from ..actions.errors import ApplyError
from ..actions.journal import Journal
from ..actions.paths import QUARANTINE, is_real_folder, lies
from .needs import Needs, Work

_COMPILED = "__pycache__"
_SHARED = ("bin", "Scripts", "share", "etc", "include")  # of an environment, by all of its packages
_IMPORT = "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)"
# torch answers to everything until a card computes: "no kernel image is available" comes from the first kernel
_COMPUTE = "import torch\nfor card in range(torch.cuda.device_count()): torch.ones(2, device=card).sum().item()"


def describe(step: InstallPackages) -> str:
    return f"install {step.wanted} into {step.path}, and what pip finds that it needs"


def precheck(step: InstallPackages, path: Path, needs: Needs) -> None:
    if not (path / "pyvenv.cfg").is_file():
        raise ApplyError(f"{path} is no virtual environment")
    needs.room(path / "lib")
    _pip(step)


def perform(steps: Sequence[InstallPackages], path: Path, work: Work) -> None:
    journal, first = work.journal, steps[0]
    wanted = [step.wanted for step in steps]
    if work.meter.watcher is not None:
        work.meter.watcher(0, 0, f"asking pip what {', '.join(wanted)} takes")
    exact = _resolved(first, wanted)
    stage = scratch(journal, _free(path / f".zdoctor-new-{journal.id}"))
    if work.meter.watcher is not None:
        work.meter.watcher(0, 0, f"installing {', '.join(exact)}")
    into = ["install", "--quiet", "--no-deps", "--ignore-installed", "--prefix", str(stage)]
    _run(first, [*into, *_of_index(first), *exact])
    site = next((found for found in stage.rglob("site-packages") if is_real_folder(found)), None)
    if site is None:
        raise ApplyError(f"pip installed nothing of {', '.join(exact)}")
    kept = _free(path / QUARANTINE / journal.id)
    old = path / site.relative_to(stage)
    new = {_name_of(info) for info in site.glob("*.dist-info")}
    for info in sorted(old.glob("*.dist-info")):
        if _name_of(info) in new:
            for file in list(_owned(info, path)):
                move(journal, file, kept / file.relative_to(path))
    _merge(journal, stage, path, kept)
    _require_imports(first, wanted)


def _free(path: Path) -> Path:
    """A name that nothing has yet: one transaction may install from several indexes."""
    names = (path.with_name(f"{path.name}-{number}") for number in count(2))
    return next(one for one in chain((path,), names) if not lies(one))


def _name_of(info: Path) -> str:
    return plain(info.name.removesuffix(".dist-info").rpartition("-")[0])


def _pip(step: InstallPackages) -> list[str]:
    """The pip that works on an environment: its own, else that of the Python that runs zdoctor."""
    if any(Path(step.path).glob("[Ll]ib/**/site-packages/pip/__init__.py")):
        return [step.python, "-m", "pip"]
    if find_spec("pip") is None:
        raise ApplyError(f"neither {step.path} nor the Python that runs zdoctor has pip")
    return [sys.executable, "-m", "pip", "--python", step.python]


def _of_index(step: InstallPackages) -> list[str]:
    return ["--index-url", step.index] if step.index else []


def _run(step: InstallPackages, words: Sequence[str]) -> str:
    """pip's output. Raises ApplyError with its own reason."""
    own = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", "PYTHONSAFEPATH": "1"}
    command, environment = [*_pip(step), *words], {**os.environ, **own}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace")
    except OSError as error:
        raise ApplyError(f"{step.python} does not start: {error.strerror}") from error
    if done.returncode:
        told = [line.removeprefix("ERROR: ") for line in done.stderr.splitlines() if line.startswith("ERROR: ")]
        raise ApplyError(f"pip: {told[-1] if told else done.stderr.strip()[-300:]}")
    return done.stdout


def _resolved(step: InstallPackages, wanted: Sequence[str]) -> list[str]:
    """What pip would install for these, exactly; these themselves where it takes them for installed."""
    report = ["install", "--dry-run", "--quiet", "--report", "-", *_of_index(step), *wanted]
    told = json.loads(_run(step, report))
    return [_exact(one, wanted) for one in told["install"]] or list(wanted)


def _exact(one: dict[str, Any], wanted: Sequence[str]) -> str:
    name, version = one["metadata"]["name"], one["metadata"]["version"]
    if not one.get("is_direct"):
        return f"{name}=={version}"
    asked = {found.name: text for text in wanted if (found := requirement(text)) is not None}
    return asked.get(plain(name), f"{name}=={version}")


def _owned(info: Path, root: Path) -> Iterator[Path]:
    """The fewest files and folders that hold what one package was installed with, and nothing of another."""
    try:
        lines = (info / "RECORD").read_text("utf-8", "surrogateescape").splitlines()
    except OSError as error:
        raise ApplyError(f"{info} has no list of its files; install that package by hand") from error
    named = [re.sub(r'^"(.*?)".*$|^([^,]*),.*$', lambda found: found[1] or found[2] or "", line) for line in lines]
    files = {Path(os.path.normpath(info.parent / name)) for name in named if name}
    inside = {file for file in files if root in file.parents and lies(file)}
    above = {folder for file in inside for folder in file.parents}

    def whole(path: Path) -> bool:
        if not is_real_folder(path):
            return path in inside
        return path in above and all(child.name == _COMPILED or whole(child) for child in path.iterdir())

    def fewest(path: Path) -> Iterator[Path]:
        for child in sorted(path.iterdir()):
            if child in inside or (child in above and child not in shared and whole(child)):
                yield child
            elif child in above and is_real_folder(child):
                yield from fewest(child)

    shared = {info.parent, *info.parent.parents, *(root / name for name in _SHARED)}
    yield from fewest(root)


def _merge(journal: Journal, new: Path, old: Path, kept: Path) -> None:
    """Put everything in one folder to where it belongs in another; what lies there in its place is moved aside."""
    for child in sorted(new.iterdir()):
        target = old / child.name
        if is_real_folder(child) and is_real_folder(target):
            _merge(journal, child, target, kept / child.name)
            continue
        if lies(target):
            move(journal, target, kept / child.name)
        put(journal, child, target)


def _require_imports(step: InstallPackages, wanted: Sequence[str]) -> None:
    """The environment's own Python imports what was asked for, and a new torch computes on each card."""
    names = [one.name for one in map(requirement, wanted) if one is not None]
    modules = [module for name in names for module in modules_of(name)]
    _try(step, [_IMPORT, *modules], f"cannot import {' and '.join(modules)} after it")
    if "torch" in names:
        _try(step, [_COMPUTE], "has a torch that does not compute on every card here")


def _try(step: InstallPackages, code: Sequence[str], failure: str) -> None:
    """Code run by the environment's own Python. Raises ApplyError with the end of what it said."""
    done = subprocess.run([step.python, "-c", *code], capture_output=True, text=True, errors="replace")
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no reason was given"]
        raise ApplyError(f"{step.python} {failure}: {last[0]}")
