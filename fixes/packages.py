"""Packages: zdoctor changes nobody's environment, it shows the command."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..doctor.model import Finding, Fix
from ..doctor.rules import repair


@repair("PKG001", "PKG002", "PKG003")
def install_torch_for_this_card(finding: Finding) -> Iterator[Fix]:
    """The same version of torch for another CUDA version, where PyTorch's index has one."""
    seen = finding.evidence
    if "index" in seen:
        url = f"https://download.pytorch.org/whl/{seen['index']}"
        packages = f"torch=={seen['version']} torchvision torchaudio"
        command = _pip(seen["python"], f"--force-reinstall {packages} --index-url {url}")
        title = f"install torch {seen['version']} for CUDA {str(seen['index'])[2:4]}.{str(seen['index'])[4:]}"
        yield Fix(title, (), safety="show", command=command)


@repair("PKG004")
def update_the_package(finding: Finding) -> Iterator[Fix]:
    """The oldest version that will do, or newer."""
    seen = finding.evidence
    command = _pip(seen["python"], f'-U "{seen["package"]}>={seen["minimum"]}"')
    yield Fix(f"install a newer {seen['package']}", (), safety="show", command=command)


@repair("PKG005")
def install_the_package(finding: Finding) -> Iterator[Fix]:
    """By the name it has on PyPI."""
    seen = finding.evidence
    name = str(seen["package"]).replace("_", "-")
    yield Fix(f"install {name}", (), safety="show", command=_pip(seen["python"], name))


def _pip(python: object, words: str) -> str:
    """pip of an interpreter as a shell takes it; `python` where that is not known.

    PowerShell runs no program that is named in quotes, and cmd does not know how PowerShell wants it.
    """
    text = "python" if python == "this Python" else str(python)
    if re.fullmatch(r"[\w./\\:~+-]+", text):
        return f"{text} -m pip install {words}"
    if "\\" in text:
        quoted, words = text.replace("'", "''"), words.replace('"', "'")
        return f"powershell -Command \"& '{quoted}' -m pip install {words}\""
    return f'"{text}" -m pip install {words}'
