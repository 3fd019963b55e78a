"""What installed wheels were built for: which Python, system, C library and card; and wheels that do not exist."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..doctor.model import Finding, Gpu, Run, System, found
from ..doctor.model.environment import Environment, Installed, Metadata
from ..doctor.packages.tags import misfit
from ..doctor.rules import NotApplicable, prevents, rule
from .environment import outside
from .packages import cards_of

SYSTEMS = {"linux": "Linux", "windows": "Windows", "darwin": "macOS"}
OVERRIDE = "HSA_OVERRIDE_GFX_VERSION"  # a card of AMD says that it is another one


@rule("PKG017", "error", "package-for-another-python")
@prevents("ImportError", r"Importing the numpy C-extensions failed|Error importing numpy")
@prevents("ModuleNotFoundError", r"No module named '(torch\._C|numpy\._core\._multiarray_umath|safetensors\._\w+)'")
def package_for_another_python(environment: Environment, installed: Installed, system: System) -> Iterator[Finding]:
    """A compiled package was installed by another release of Python than the one that will import it.

    What: The extension modules in the lists of files of torch, numpy, tokenizers and the like, which have the release
    in their names (cpython-310, cp312), and the tags of the wheels of all others (cp310-cp310), against the release
    of this Python. Those of the stable ABI fit all later ones. Of the others it is a warning: some have a form in
    Python to fall back on.
    Why: A folder of packages that was copied, is on PYTHONPATH, or belongs to a virtual environment whose Python was
    updated. pip takes the packages for installed.
    Repair: Install that version once more (--allow asked, as PKG006).
    Upstream: https://peps.python.org/pep-3149/, https://packaging.python.org/specifications/platform-compatibility-tags/
    Signature: ModuleNotFoundError: No module named 'numpy._core._multiarray_umath'
    """
    if not environment.release:
        raise NotApplicable
    for one in installed.metadata.values():
        named = _python_of_libraries(one)
        ours = "".join(environment.release.split(".")[:2])
        if named:
            theirs = "" if ours in named else max(named)
            built = f"{theirs[0]}.{theirs[1:]}" if theirs else ""
        else:
            other = misfit(one.tags, environment.release, system)
            built = other.built.removeprefix("Python ") if other is not None and other.kind == "python" else ""
        if built:
            yield found(
                None,
                "{python} is Python {release}, and its {package} {version} was built for Python {built}.",
                otherwise="The trainer ends where it imports it.",
                evidence=_evidence(environment, one),
                severity=None if named else "warning",
                release=environment.release,
                built=built,
            )


def _python_of_libraries(one: Metadata) -> set[str]:
    """The releases ("312") that the names of its extension modules have; of the stable ABI they have none."""
    return {tag[1] for name in one.libraries if (tag := re.search(r"\.(?:cpython-|cp)(3\d+)t?-", name))}


@rule("PKG020", "error", "package-for-another-system")
@prevents(
    "ImportError", r"version `GLIBC_[\d.]+' not found|libc\.so: invalid ELF header|libc\.musl-\w+\.so\.1: cannot open"
)
def package_for_another_system(environment: Environment, installed: Installed, system: System) -> Iterator[Finding]:
    """A compiled package was built for another system, processor or C library than this one.

    What: The tags in the WHEEL file of each installed package against this system: wheels of Windows or macOS on
    Linux and the other way round, those for x86_64 on aarch64 and the other way round, those for musl (Alpine) beside
    glibc, and as a warning those for a newer glibc than there is (manylinux_2_39 beside glibc 2.31).
    Why: A virtual environment that was copied, comes with a container's or a network's folder, or was installed for
    another machine (pip --platform, uv --python-platform). pip looks at tags only when it installs.
    Repair: Install that version once more (--allow asked, as PKG006).
    Upstream: https://packaging.python.org/specifications/platform-compatibility-tags/
    Signature: ImportError: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.38' not found
    """
    if not any(one.tags for one in installed.metadata.values()):
        raise NotApplicable
    for one in installed.metadata.values():
        other = misfit(one.tags, "", system)
        if other is None:
            continue
        newer = other.kind == "libc" and not other.built.startswith("musl") and system.libc != "musl"
        yield found(
            None,
            "{python} has {package} {version}, a wheel for {built}; here is {here}.",
            otherwise="Its libraries may not load: version `GLIBC_… not found."
            if newer
            else "The trainer ends where it imports it.",
            evidence=_evidence(environment, one),
            severity="warning" if newer else None,
            built=other.built,
            here=SYSTEMS.get(other.here, other.here),
        )


@rule("PKG021", "error", "torch-without-this-amd-card")
@prevents("RuntimeError", r"HIP error: (invalid device function|no kernel image is available)")
def torch_without_this_amd_card(
    run: Run, environment: Environment, installed: Installed, gpus: tuple[Gpu, ...], system: System
) -> Iterator[Finding]:
    """This build of PyTorch for ROCm holds no code for this card of AMD.

    What: The cards that rocBLAS in torch's own list of files has kernels for (TensileLibrary_lazy_gfx1100.dat),
    against the one that the driver names. Where several cards may be meant, only when none is served. Not judged
    where HSA_OVERRIDE_GFX_VERSION lets the card pass for another one.
    Why: The import works and the card is found; the first product of matrices ends the program. PyTorch's wheels hold
    code for some cards of each generation, and newer ones leave out old cards.
    Repair: None by zdoctor: AMD's own index has builds for more cards than PyTorch's.
    Upstream: https://github.com/pytorch/pytorch/issues/179865, https://github.com/ROCm/TheRock (RELEASES.md)
    Signature: rocBLAS error: Cannot read …/TensileLibrary.dat: Illegal seek for GPU arch : gfx900
    """
    cards = [card for card in cards_of(run, gpus, system) if card.maker == "amd"]
    torch = installed.metadata.get("torch")
    names = torch.libraries if torch is not None else ()
    served = [one[1] for name in names if (one := re.search(r"_lazy_(gfx\w+)\.dat", name))]
    if not cards or not served or OVERRIDE in system.environment:
        raise NotApplicable
    if all(card.gfx and card.gfx not in served for card in cards):
        yield found(
            None,
            "{python} has torch {torch}, which holds no code for the {card}: only for {served}.",
            otherwise="The first computation on the card ends the program, by rocBLAS.",
            evidence={"python": environment.python, "torch": environment.versions.get("torch", "")},
            card=cards[0].name,
            served=", ".join(sorted(served, key=lambda name: (len(name), name))),
        )


def _evidence(environment: Environment, one: Metadata) -> dict[str, object]:
    return {
        "python": environment.python,
        "package": one.name,
        "version": one.version,
        "root": environment.root,
        **outside(environment, one),
    }


@rule("PKG018", "warning", "no-wheel-for-this-python")
@prevents("error", r"Failed building wheel for|metadata-generation-failed")
def no_wheel_for_this_python(installed: Installed, environment: Environment) -> Iterator[Finding]:
    """What the trainer asks for has no wheel for this release of Python, and is not installed.

    What: Of the versions that the trainer's checkout pins, and of torch, those that a table knows the wheels of,
    against the release of the Python that will run it. What is installed as it is asked for is not told.
    Why: Without a wheel pip builds from source, for which compilers and libraries are missing (scipy asks for
    Fortran), or finds no version at all (torch).
    Repair: A new environment beside it, of the release of Python that is named and with what the trainer asks for, by
    uv where it is there, else by such a Python of this machine (--allow asked); the old one stays.
    Upstream: https://pypi.org/project/scipy/1.12.0/#files (and of each package; the table names its date)
    Signature: ERROR: Failed building wheel for scipy; No matching distribution found for torch==2.6.0
    """
    if not installed.asked:
        raise NotApplicable
    if installed.without_wheel and not installed.shipped:
        told = ", ".join(one.text for one in installed.without_wheel)
        yield found(
            installed.without_wheel[0].where,
            "{python} is Python {release}, for which there is no wheel of {asked}; Python {nearest} has all."
            if installed.nearest
            else "{python} is Python {release}, for which there is no wheel of {asked}.",
            otherwise="Installing ends: pip tries to build it from source, or says that no version is found.",
            evidence={"python": environment.python, "asked": told},
            release=environment.release,
            nearest=installed.nearest,
        )
