"""Real environments made on the spot: tiny wheels, a venv without pip, and pip to put the one into the other."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

HASH = "sha256="


def wheel(
    folder: Path,
    name: str,
    version: str,
    requires: Sequence[str] = (),
    files: Mapping[str, str] | None = None,
    python: str = "",
) -> Path:
    """A wheel of pure Python in `folder`: one module that says its version, or the files that are given."""
    folder.mkdir(parents=True, exist_ok=True)
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    head = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}"]
    head += [f"Requires-Python: {python}"] if python else []
    contents = dict(files or {f"{module}/__init__.py": f"__version__ = {version!r}\n"})
    contents[f"{info}/METADATA"] = "\n".join([*head, *(f"Requires-Dist: {line}" for line in requires)]) + "\n\n"
    contents[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    lines = []
    for path, text in contents.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        lines.append(f"{path},{HASH}{digest},{len(text.encode())}")
    contents[f"{info}/RECORD"] = "\n".join([*lines, f"{info}/RECORD,,"]) + "\n"
    made = folder / f"{module}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(made, "w") as archive:
        for path, text in contents.items():
            archive.writestr(path, text)
    return made


def venv(folder: Path) -> Path:
    """A virtual environment of this Python without pip; returns its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return folder / "bin" / "python"


def pip(python: Path, wheels: Path, *words: str) -> None:
    """pip of this Python on another one, with nothing but the wheels in a folder to take from."""
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", *words]
    subprocess.run(command, check=True, env=offline(wheels))


def put(site: Path, *wheels: Path) -> None:
    """What pip does with a wheel of pure Python, without its second of start: its files, in place of those before."""
    for made in wheels:
        name = made.name.split("-")[0]
        for before in site.glob(f"{name}-*.dist-info"):
            drop(site, before.name.split("-")[0])
        zipfile.ZipFile(made).extractall(site)


def drop(site: Path, name: str) -> None:
    """Uninstall a package: all of its folders, by the list of its files."""
    [info] = site.glob(f"{name}-*.dist-info")
    for place in {line.partition("/")[0] for line in (info / "RECORD").read_text().splitlines()}:
        shutil.rmtree(site / place, ignore_errors=True)


def offline(wheels: Path) -> dict[str, str]:
    """Variables with which pip and uv take from a folder of wheels alone."""
    own = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    settings = wheels / "uv.toml"  # uv has no variable for it
    settings.write_text(f"no-index = true\nfind-links = ['{wheels}']\n")
    own |= {"UV_CONFIG_FILE": str(settings), "UV_NO_CACHE": "1"}
    return {**os.environ, **own}
