"""Step: packages of a virtual environment are brought to what is asked for, with what they need, by pip or uv.

Whichever made the environment works out what has to change, and installs that into a folder of ours beside it; the
files of the former versions are then moved aside and the new ones to where they belong, so that each can be taken
back. The environment imports what was asked for before the step counts as done.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from itertools import chain, count
from pathlib import Path

from ...model import InstallPackages
from ...model.amounts import amount
from ...model.environment import plain
from ...model.record import dataclass
from ...packages.names import modules_of
from ...packages.requirements import requirement
from ..actions.build import move, put, scratch
from ..actions.errors import ApplyError
from ..actions.journal import Journal
from ..actions.paths import QUARANTINE, is_real_folder, lies
from .needs import Needs, Work

_COMPILED = "__pycache__"
_OF_UV = re.compile(r"^uv\s*=", re.M)  # in the pyvenv.cfg of what it made
_WOULD_INSTALL = re.compile(r"^ [+~] ([\w.-]+)==(\S+)( \(from)?", re.M)  # lines of uv pip install --dry-run
_CONNECTION = re.compile(r"connection broken by [^\n]*?(?:>|\)|'): ([^'\n]+)'")
_LOCK = ".lock"  # that uv leaves in each folder that it installs into
PATIENCE = 10.0  # seconds for an index to say how long a file is
_SHARED = ("bin", "Scripts", "share", "etc", "include")  # of an environment, by all of its packages
_IMPORT = "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)"
# torch answers to everything until a card computes: "no kernel image is available" comes from the first kernel
_COMPUTE = "import torch\nfor card in range(torch.cuda.device_count()): torch.ones(2, device=card).sum().item()"


@dataclass(frozen=True)
class Change:
    """A package that will be installed: `text` is what is asked for exactly, `address` "" where nobody tells it."""

    name: str
    version: str
    text: str
    address: str = ""


def describe(step: InstallPackages) -> str:
    return f"install {step.wanted} into {step.path}, and what it needs"


def preview(steps: Sequence[InstallPackages], path: Path) -> Iterator[str]:
    """What would change, package by package, and the bytes to fetch. Asks the index."""
    first = steps[0]
    precheck(first, path, Needs())
    changes = resolved(first, [step.wanted for step in steps])
    yield from told(
        changes, {_name_of(info): _version_of(info) for site in _sites(path) for info in site.glob("*.dist-info")}
    )


def told(changes: Sequence[Change], before: Mapping[str, str]) -> Iterator[str]:
    """Each change as a diff has it, and the bytes of all."""
    for change in changes:
        former = before.get(plain(change.name), "")
        yield from [f"-{change.name} {former}"] if former else []
        yield f"+{change.name} {change.version}"
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor() as several:
        sizes = list(several.map(_size_of, (change.address for change in changes)))
    known = [size for size in sizes if size is not None]
    if known:
        more = (
            f", and {len(sizes) - len(known)} whose size the index does not tell" if len(known) < len(sizes) else ""
        )
        yield f"{amount(sum(known))} to fetch (told by the index; less where pip has kept it){more}"


def _size_of(address: str) -> int | None:
    """The bytes of a file at an address, None where nobody tells them."""
    if not address.startswith(("https://", "http://", "file://")):
        return None
    import urllib.request

    request = urllib.request.Request(address, method="HEAD")
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            length = answer.headers.get("Content-Length")
    except (OSError, ValueError):
        return None
    return int(length) if length and length.isdecimal() else None


def precheck(step: InstallPackages, path: Path, needs: Needs) -> None:
    if not (path / "pyvenv.cfg").is_file():
        raise ApplyError(f"{path} is no virtual environment")
    needs.room(path / "lib")
    _installer(step)


def perform(steps: Sequence[InstallPackages], path: Path, work: Work) -> None:
    journal, first = work.journal, steps[0]
    wanted = [step.wanted for step in steps]
    if work.meter.watcher is not None:
        work.meter.watcher(0, 0, f"asking what {', '.join(wanted)} takes")
    exact = [change.text for change in resolved(first, wanted)] or wanted  # of an address nobody knows the name
    stage = scratch(journal, _free(path / f".zdoctor-new-{journal.id}"))
    if work.meter.watcher is not None:
        work.meter.watcher(0, 0, f"installing {', '.join(exact)}")
    over = [] if _is_of_uv(first) else ["--ignore-installed"]
    run(first, "--quiet", "--no-deps", *over, "--prefix", str(stage), *exact)
    (stage / _LOCK).unlink(missing_ok=True)
    site = next((found for found in stage.rglob("site-packages") if is_real_folder(found)), None)
    if site is None:
        raise ApplyError(f"nothing was installed of {', '.join(exact)}")
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


def _sites(path: Path) -> list[Path]:
    return [*path.glob("lib/python3*/site-packages"), *path.glob("Lib/site-packages")]


def _version_of(info: Path) -> str:
    return info.name.removesuffix(".dist-info").rpartition("-")[2]


def _is_of_uv(step: InstallPackages) -> bool:
    """Whether uv installs into an environment: where it is here, and made the environment or nothing else can."""
    if shutil.which("uv") is None:
        return False
    cfg = Path(step.path) / "pyvenv.cfg"
    settings = cfg.read_text("utf-8", "replace") if cfg.is_file() else ""
    return _OF_UV.search(settings) is not None or not (_has_pip(step) or find_spec("pip"))


def _has_pip(step: InstallPackages) -> bool:
    return bool(step.path) and any((site / "pip" / "__init__.py").is_file() for site in _sites(Path(step.path)))


def _installer(step: InstallPackages) -> list[str]:
    """The start of a command that installs: uv's, that of the environment's own pip, else of zdoctor's Python."""
    if _is_of_uv(step):
        return ["uv", "pip", "install", "--python", step.python]
    if _has_pip(step):
        return [step.python, "-m", "pip", "install"]
    if find_spec("pip") is None:
        raise ApplyError(f"neither {step.path} nor the Python that runs zdoctor has pip, and uv is not here")
    return [sys.executable, "-m", "pip", "--python", step.python, "install"]


def run(step: InstallPackages, *words: str) -> str:
    """What the installer says, warnings and all. Raises ApplyError with its own reason."""
    own = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", "PYTHONSAFEPATH": "1", "NO_COLOR": "1"}
    index = ["--index-url", step.index] if step.index else []
    command, environment = [*_installer(step), *index, *words], {**os.environ, **own}
    lock = Path(step.path) / _LOCK
    was_locked = lies(lock)
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace")
    except OSError as error:
        raise ApplyError(f"{command[0]} does not start: {error.strerror}") from error
    finally:
        if step.path and not was_locked:
            lock.unlink(missing_ok=True)
    if done.returncode:
        told = re.findall(r"(?:ERROR: |error: )([^\n]*(?:\n {2,}[^\n]*)*)", done.stderr)  # uv breaks lines
        reason = re.sub(r"\s+", " ", told[-1]).replace(" cause: ", ": ") if told else done.stderr.strip()[-300:]
        cut = _CONNECTION.search(done.stderr)  # pip then says that it found no version
        reached = f" (the index was not reached: {cut[1]})" if cut else ""
        raise ApplyError(f"{'uv' if command[0] == 'uv' else 'pip'}: {reason}{reached}")
    return done.stdout or done.stderr


def resolved(step: InstallPackages, wanted: Sequence[str]) -> list[Change]:
    """What is to be installed for these, exactly. What of them counts as installed comes once more."""
    changes = _missing(step, wanted)
    there = {plain(change.name) for change in changes}
    again = [(one, text) for text in wanted if (one := requirement(text)) is not None and one.name not in there]
    return [*changes, *(Change(one.name, one.versions.removeprefix("=="), text) for one, text in again)]


def _missing(step: InstallPackages, wanted: Sequence[str]) -> list[Change]:
    """What the installer would change for these."""
    if _is_of_uv(step):
        told = _WOULD_INSTALL.findall(run(step, "--dry-run", *wanted))
        return [_change(name, version, bool(direct), wanted) for name, version, direct in told]
    over = [] if step.path else ["--ignore-installed"]  # an interpreter as it is, into which nothing will go
    report = json.loads(run(step, "--dry-run", "--quiet", "--report", "-", *over, *wanted))
    return [
        _change(
            one["metadata"]["name"],
            one["metadata"]["version"],
            bool(one.get("is_direct")),
            wanted,
            one["download_info"]["url"],
        )
        for one in report["install"]
    ]


def _change(name: str, version: str, direct: bool, wanted: Sequence[str], address: str = "") -> Change:
    """What comes from no index (`direct`) is asked for as it was, anything else by its version."""
    asked = {one.name: text for text in wanted if (one := requirement(text)) is not None} if direct else {}
    return Change(name, version, asked.get(plain(name), f"{name}=={version}"), address)


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
    names = [one.name for one in map(requirement, wanted) if one is not None]
    require_modules(step.python, [module for name in names for module in modules_of(name)])


def require_modules(python: str, modules: Sequence[str]) -> None:
    """An environment's own Python imports these, and torch, where it is among them, computes on each card."""
    _require(python, [_IMPORT, *modules], f"cannot import {' and '.join(modules)} after it")
    if "torch" in modules:
        _require(python, [_COMPUTE], "has a torch that does not compute on every card here")


def _require(python: str, code: Sequence[str], failure: str) -> None:
    """Code run by a Python. Raises ApplyError with the end of what it said."""
    done = subprocess.run([python, "-B", "-c", *code], capture_output=True, text=True, errors="replace")
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no reason was given"]
        raise ApplyError(f"{python} {failure}: {last[0]}")
