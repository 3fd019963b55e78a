"""Packages: a virtual environment is changed where its user asks for it; of any other the command is shown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ..doctor.model import Finding, Fix, Gpu, InstallPackages, System, Unknown
from ..doctor.model.environment import Environment
from ..doctor.model.shell import setting
from ..doctor.packages.indexes import builds
from ..doctor.rules import repair

PYTORCH = "https://download.pytorch.org/whl"  # an index for each build below it


@repair("PKG001", "PKG002", "PKG003")
def install_torch_for_this_card(finding: Finding) -> Iterator[Fix]:
    """The same version of torch from another index of PyTorch, or the nearest that serves the card."""
    seen = finding.evidence
    if "index" in seen:
        version, index = seen["version"], _platform(str(seen["index"]))
        title = f"install torch {version} for {index}"
        yield _installed(seen, title, *seen["wanted"], index=f"{PYTORCH}/{seen['index']}")


def _platform(index: str) -> str:
    """What an index is for: CUDA 12.8 (cu128), ROCm 6.4 (rocm6.4)."""
    return f"ROCm {index[4:]}" if index.startswith("rocm") else f"CUDA {index[2:4]}.{index[4:]}"


@repair("PKG004")
def update_the_package(finding: Finding) -> Iterator[Fix]:
    """The oldest version that will do, or newer."""
    seen = finding.evidence
    yield _installed(seen, f"install a newer {seen['package']}", f"{seen['package']}>={seen['minimum']}")


@repair("PKG005")
def install_the_package(finding: Finding) -> Iterator[Fix]:
    """By the name it has on PyPI."""
    name = str(finding.evidence["package"]).replace("_", "-")
    yield _installed(finding.evidence, f"install {name}", name)


@repair("PKG009")
def install_the_torchvision_of_this_torch(finding: Finding, gpus: tuple[Gpu, ...] | Unknown) -> Iterator[Fix]:
    """From the index that this torch came from, where it names its build; not where PKG001 brings another torch."""
    seen = finding.evidence
    waits = isinstance(gpus, tuple) and gpus and str(seen["torch"]).endswith("+cpu")
    if (wanted := str(seen["wanted"])) and not waits:
        yield _installed(seen, f"install {wanted}", wanted, index=str(seen["index"]))


@repair("PKG006", "PKG007", "PKG008", "PKG014", "PKG016")
def install_what_is_asked_for(
    finding: Finding, environment: Environment | Unknown, gpus: tuple[Gpu, ...] | Unknown, system: System
) -> Iterator[Fix]:
    """That one package as it is asked for, from where it is asked from; torch from the index for the card at hand."""
    seen = finding.evidence
    wanted = str(seen.get("wanted", "python"))
    name = re.split(r"[^\w.-]", wanted)[0]
    if name == "python" or "outside" in seen:
        return
    title = f"install {seen['requirement']}"
    if name != "torch" or not gpus or isinstance(gpus, Unknown) or isinstance(environment, Unknown):
        yield _installed(seen, title, wanted)
        return
    # PyPI's is for one CUDA on Linux, whatever the driver, and for the processor on Windows
    build = next(builds(gpus[0], environment.release, system, wanted.removeprefix(name)), None)
    if build is None:
        yield _installed(seen, title, wanted)
    else:
        version, index = build.version, _platform(build.index)
        title = f"install torch {version} for {index}"
        yield _installed(seen, title, build.torch, index=f"{PYTORCH}/{build.index}")


@repair("PKG010", "PKG017", "PKG020")
def install_it_once_more(finding: Finding) -> Iterator[Fix]:
    """The version that the metadata names, over what is left of it."""
    seen = finding.evidence
    if "package" in seen and "outside" not in seen:
        name = f"{seen['package']}=={seen['version']}".replace("_", "-")
        yield _installed(seen, f"install {name} once more", name, options=("--force-reinstall", "--no-deps"))


@repair("PKG011")
def install_numpy_1(finding: Finding) -> Iterator[Fix]:
    """The last release of NumPy 1, which every package that was built for NumPy 2 works with, too."""
    yield _installed(finding.evidence, "install NumPy 1.26", "numpy<2")


@repair("PKG019")
def look_at_its_own_packages(finding: Finding, system: System) -> Iterator[Fix]:
    """The variable that Python goes by, in the shell that starts the trainer."""
    listed = system.environment.get("PYTHONPATH", "").split(";" if system.os == "windows" else ":")
    is_listed = finding.evidence["folder"] in map(system.absolute, filter(None, listed))
    name, value = ("PYTHONPATH", "") if is_listed else ("PYTHONNOUSERSITE", "1")
    title = f"set {name} to {value or 'nothing'} in the shell that starts the trainer"
    yield Fix(title, (), safety="show", command=setting(((name, value),), system.shell))


def _installed(
    seen: Mapping[str, Any], title: str, *wanted: str, index: str = "", options: tuple[str, ...] = ()
) -> Fix:
    """Packages brought into an environment, where that is a virtual one and zdoctor can take it back."""
    if root := seen.get("root"):
        steps = tuple(InstallPackages(str(root), str(seen["python"]), one, index) for one in wanted)
        return Fix(title, steps, safety="ask")
    words = [*options, *(_quoted(one) for one in wanted), *(("--index-url", index) if index else ())]
    return Fix(title, (), safety="show", command=_pip(seen["python"], " ".join(words)))


def _quoted(requirement: str) -> str:
    return requirement if re.fullmatch(r"[\w.+=-]+", requirement) else f'"{requirement}"'


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
