"""Step: a new virtual environment of another Python is made, beside the one that there is, which stays.

uv makes it where it is here, which brings a Python that is missing; else a fitting Python of this machine does. It
grows where it will lie, as its scripts name that place; until it is whole, and imports what it was made for, any end
of the transaction removes it.
"""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from ...model import InstallPackages, MakeEnvironment
from ..actions.build import ensure_folder
from ..actions.errors import ApplyError
from ..actions.paths import aside, contents
from . import install_packages
from .install_packages import Change
from .needs import Needs, Work

_ASK = "from sys import version_info as v\nimport venv\n"  # its release, and whether it can bring pip
_ASK += "try: import ensurepip\nexcept ImportError: ensurepip = None\n"
_ASK += "print('%d.%d' % v[:2], ensurepip is not None)"
_PLACES = (  # where pyenv, uv, conda and the installer of python.org put them; {} is "3.12", {0} "312"
    "~/.pyenv/versions/{}.*/bin/python",
    "~/.local/share/uv/python/cpython-{}.*/bin/python",
    "/opt/homebrew/opt/python@{}/bin/python{}",
    "/Library/Frameworks/Python.framework/Versions/{}/bin/python{}",
)
_ON_WINDOWS = ("~/AppData/Local/Programs/Python/Python{}/python.exe", "C:/Python{}/python.exe")


def describe(step: MakeEnvironment) -> str:
    count = len(step.first) + len(step.wanted)
    return f"make the virtual environment {step.path} of Python {step.release} and install {count} packages into it"


def preview(steps: Sequence[MakeEnvironment], path: Path) -> Iterator[str]:
    """What would be installed, package by package, and the bytes to fetch. Asks the index."""
    step = steps[0]
    precheck(step, path, Needs())
    python = python_of(step.release)
    if python is None:
        raise ApplyError(f"Python {step.release} is not here yet; uv will fetch it")
    found: dict[str, Change] = {}
    for index, wanted in _installs(step):
        base = InstallPackages("", python, "", index)
        extra = ["--no-deps"] if step.exact else []
        found = {change.name: change for change in install_packages.resolved(base, [*extra, *wanted])} | found
    yield from install_packages.told(list(found.values()), {})


def precheck(step: MakeEnvironment, path: Path, needs: Needs) -> None:
    needs.new_folder(path)
    needs.room(path)
    if python_of(step.release) is None and shutil.which("uv") is None:
        raise ApplyError(f"no Python {step.release} was found here; install it, or uv, which brings it")


def perform(steps: Sequence[MakeEnvironment], path: Path, work: Work) -> None:
    [step] = steps
    journal, watcher = work.journal, work.meter.watcher
    ensure_folder(journal, path.parent)
    former = aside(path, journal.id, "part")
    for place in (former, path):  # taken back, it goes to the first name and is removed there
        journal.begin("part", path=str(place))
    _make(step, path)
    python = path / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    for index, wanted in _installs(step):
        if watcher is not None:
            watcher(0, 0, f"installing {len(wanted)} packages into {path}")
        extra = ["--no-deps"] if step.exact else []
        install_packages.run(InstallPackages(str(path), str(python), "", index), "--quiet", *extra, *wanted)
    install_packages.require_modules(str(python), step.modules)
    journal.begin("place", **{"from": str(former), "to": str(path), "contents": contents(path)})


def _installs(step: MakeEnvironment) -> Iterator[tuple[str, tuple[str, ...]]]:
    yield from ((index, wanted) for index, wanted in ((step.index, step.first), ("", step.wanted)) if wanted)


def _make(step: MakeEnvironment, path: Path) -> None:
    python = python_of(step.release)
    if shutil.which("uv"):
        command = ["uv", "venv", "--quiet", "--python", python or step.release, str(path)]
    else:
        assert python is not None  # as `precheck` saw
        without = [] if _answer(python).endswith("True") else ["--without-pip"]
        if without and find_spec("pip") is None:
            raise ApplyError(f"{python} cannot bring pip (Debian: python3-venv), and uv is not here")
        command = [python, "-m", "venv", *without, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    if done.returncode:
        raise ApplyError(f"{command[0]}: {(done.stderr or done.stdout).strip()[-300:]}")


def python_of(release: str) -> str | None:
    """An interpreter of this release, by its own word."""
    short = release.replace(".", "")
    places = [place.format(short) for place in _ON_WINDOWS] if os.name == "nt" else []
    places += [place.format(release, release) for place in _PLACES]
    named = [shutil.which(name) for name in (f"python{release}", "python3", "python")]
    lying = (one for place in places for one in sorted(glob.glob(os.path.expanduser(place))))
    found = dict.fromkeys(filter(None, (*named, sys.executable, *lying)))
    return next((one for one in found if _answer(one).startswith(f"{release} ")), None)


def _answer(python: str) -> str:
    """Its release, and whether it can bring pip ("3.12 True"); "" where it does not start or makes no environment."""
    try:
        done = subprocess.run([python, "-c", _ASK], capture_output=True, text=True, errors="replace", timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
