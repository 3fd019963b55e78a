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
        command = f"{_python(seen['python'])} -m pip install --force-reinstall {packages} --index-url {url}"
        title = f"install torch {seen['version']} for CUDA {str(seen['index'])[2:4]}.{str(seen['index'])[4:]}"
        yield Fix(title, (), safety="show", command=command)


@repair("PKG004")
def update_the_package(finding: Finding) -> Iterator[Fix]:
    """The oldest version that will do, or newer."""
    seen = finding.evidence
    command = f'{_python(seen["python"])} -m pip install -U "{seen["package"]}>={seen["minimum"]}"'
    yield Fix(f"install a newer {seen['package']}", (), safety="show", command=command)


@repair("PKG005")
def install_the_package(finding: Finding) -> Iterator[Fix]:
    """By the name it has on PyPI."""
    seen = finding.evidence
    name = str(seen["package"]).replace("_", "-")
    yield Fix(f"install {name}", (), safety="show", command=f"{_python(seen['python'])} -m pip install {name}")


def _python(path: object) -> str:
    """The interpreter as a shell takes it; `python` where it is not known."""
    text = str(path)
    if text == "this Python":
        return "python"
    return text if re.fullmatch(r"[\w./\\:~+-]+", text) else f'"{text}"'
