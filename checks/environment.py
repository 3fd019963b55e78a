"""The environment against what the trainer asks of it, and what its packages ask of each other."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..doctor.model import Finding, found
from ..doctor.model.environment import Environment, Installed, Metadata, Unmet, Version, release
from ..doctor.model.said import listed
from ..doctor.packages.indexes import torchvision_for
from ..doctor.packages.names import ALIKE
from ..doctor.rules import NotApplicable, Unestablished, prevents, rule

_COMMIT = "The run may end in code that another version does not have, or do something else than its author tried."
MOST = 4  # versions that one note names
# The first version whose wheels work with NumPy 2; older ones end, or warn and then fail, when they use an array.
# Read in each project's release notes, and tried where a wheel for this Python exists (docs/measurements.md).
_SINCE_NUMPY_2: dict[str, Version] = {
    "matplotlib": (3, 8, 4),
    "opencv_contrib_python": (4, 10, 0, 84),
    "opencv_python": (4, 10, 0, 84),
    "opencv_python_headless": (4, 10, 0, 84),
    "pandas": (2, 2, 2),
    "scipy": (1, 13),
    "torch": (2, 3),
}


@rule("PKG006", "error", "required-package-missing")
@prevents("ModuleNotFoundError", r"No module named '[\w.]+'")
def required_package_missing(installed: Installed, environment: Environment) -> Iterator[Finding]:
    """The trainer imports a package when it starts, and it is not installed.

    What: What the checkout at hand asks for in its requirements, against the packages of the Python that will run it,
    by their metadata. It is an error where a module that every start goes through imports the package at its left
    edge; what is missing otherwise is told by PKG007.
    Why: An update of the checkout brings new requirements, an install that ended early leaves some out, and another
    Python than the one that was installed into has none of them.
    Repair: Install what is asked for (--allow asked; of an environment that is no venv the command is shown).
    Upstream: https://pip.pypa.io/en/stable/reference/requirements-file-format/
    Signature: ModuleNotFoundError: No module named 'oyaml'
    """
    _asked(installed)
    for one in installed.own:
        if one.kind == "missing" and one.imported is not None:
            yield found(
                one.requirement.where,
                "{python} does not have {package}, which {file} imports.",
                otherwise="The trainer ends at its start: No module named {package}.",
                evidence=_evidence(one, environment, installed),
                package=one.requirement.name,
                file=f"{one.imported.path}:{one.imported.line}",
            )


@rule("PKG007", "warning", "requirement-not-met")
def requirement_not_met(installed: Installed, environment: Environment) -> Iterator[Finding]:
    """A package is not of the version that the trainer's checkout asks for, or is missing.

    What: The requirements of the checkout at hand (requirements.txt with the files that it names, pyproject.toml,
    setup.py), their markers evaluated for the Python that will run it, against what is installed there; of those from
    a repository the commit. Of a checkout with a list for each kind of machine the one counts that fits best. Where
    no checkout is in reach, one note says what differs from the requirements of the commit whose table ships.
    Why: The author tried these versions. Whether another one works nobody knows beforehand, hence a warning.
    Repair: Install what is asked for (--allow asked; of an environment that is no venv the command is shown). Where
    the trainer asks for another Python, a new environment of it beside the old one, as PKG018.
    Upstream: https://packaging.python.org/en/latest/specifications/version-specifiers/
    Signature: None; pip says nothing later on.
    """
    _asked(installed)
    if installed.shipped:
        yield from _of_table(installed, environment)
        return
    refused = {one.requirement.name for one in installed.between if one.imported is not None}
    for one in installed.own:
        if one.imported is not None or (one.kind == "version" and one.requirement.name in refused):
            continue
        if one.kind == "missing":
            message = "{python} does not have {asked}, which the trainer asks for."
        elif one.requirement.name == "python":
            message = "{python} is Python {installed}; the trainer asks for {asked}."
        else:
            message = "{python} has {package} {installed}; the trainer asks for {asked}."
        yield found(
            one.requirement.where,
            message,
            otherwise=_COMMIT if one.kind != "missing" else "What uses it ends with an ImportError.",
            evidence=_evidence(one, environment, installed),
            package=one.requirement.name,
            asked=one.requirement.text,
        )
    if installed.unread and not installed.own:
        raise Unestablished(f"what the trainer asks for with {installed.unread[0]} could not be understood")


def _of_table(installed: Installed, environment: Environment) -> Iterator[Finding]:
    differing = [one for one in installed.own if one.kind == "version"]
    if differing:
        told = [f"{one.requirement.text} (has {one.installed})" for one in differing[:MOST]]
        yield found(
            None,
            "{python} differs from what the trainer's {commit} asks for: {asked}{more}.",
            otherwise="Another commit may ask for other versions: start zdoctor in the checkout, or name it with "
            "--trainer-source.",
            evidence={"python": environment.python, "asked": ", ".join(told)},
            severity="note",
            commit=installed.shipped,
            more=f" and {len(differing) - MOST} more" if len(differing) > MOST else "",
        )


@rule("PKG008", "warning", "packages-that-conflict")
@prevents("ImportError", r"is required for a normal functioning of this module")
@prevents("OSError", r"libtorchaudio\S*: undefined symbol")
def packages_that_conflict(installed: Installed, environment: Environment) -> Iterator[Finding]:
    """An installed package asks for another version of a package than the one that is there.

    What: The Requires-Dist of the trainer's packages and of all that they lead to, markers evaluated, as `pip check`
    does it, but for packages that this training never meets. It is an error where the import of the one that asks
    ends by it (transformers compares versions itself, torchaudio is linked against one torch) and the trainer imports
    that at its start. torchvision beside another torch is PKG009.
    Why: pip only sees what it installs in one command; a later install moves a package under those that lean on it.
    Repair: Install the package that is asked for (--allow asked, as PKG006).
    Upstream: https://pip.pypa.io/en/stable/cli/pip_check/, transformers/dependency_versions_check.py
    Signature: ImportError: huggingface-hub>=0.34.0,<1.0 is required for a normal functioning of this module
    """
    own = {} if installed.shipped else {one.requirement.name: one for one in installed.own}
    for one in installed.between:
        refused = one.imported is not None
        if _is_torch_of_torchvision(one) or (one.requirement.name in own and not refused):
            continue
        message = "{by} {version} asks for {asked}; {python} "
        message += "does not have it." if one.kind == "missing" else "has {installed}."
        yield found(
            None,
            message,
            otherwise="The trainer ends at its start: {file} imports {by}, which refuses to be imported."
            if refused
            else "Importing {by} fails, or it does what nobody tried.",
            evidence=_evidence(own.get(one.requirement.name, one), environment, installed),
            severity="error" if refused else None,
            by=one.requirement.by,
            version=installed.metadata[one.requirement.by].version,
            asked=one.requirement.text,
            file=f"{one.imported.path}:{one.imported.line}" if one.imported else "",
        )


@rule("PKG009", "error", "torchvision-of-another-torch")
@prevents("RuntimeError", r"operator torchvision::nms does not exist")
@prevents("RuntimeError", r"PyTorch and torchvision were compiled with different CUDA")
def torchvision_of_another_torch(installed: Installed, environment: Environment) -> Iterator[Finding]:
    """torchvision was built for another version or another build of torch than the one that is installed.

    What: The version of torch that torchvision's own metadata asks for, which is one alone, against the one there;
    and the builds that both name themselves: a torchvision for CUDA beside a torch without, or for another CUDA.
    Why: Its import registers operators with torch; those of another version or build are not found.
    transformers and diffusers import torchvision where it is installed.
    Repair: Install the torchvision that belongs to this torch (--allow asked, as PKG006).
    Upstream: https://github.com/pytorch/vision#installation, torchvision/extension.py
    Signature: RuntimeError: operator torchvision::nms does not exist
    """
    torch, vision = environment.versions.get("torch", ""), environment.versions.get("torchvision", "")
    if not (torch and vision):
        raise NotApplicable
    belongs = next((one.requirement.text for one in installed.between if _is_torch_of_torchvision(one)), "")
    ours, theirs = _cuda_of(torch), _cuda_of(vision)
    if belongs:
        message = "{python} has torchvision {version}, which belongs to {belongs}, and torch {torch}."
    elif theirs and ours != theirs and ours is not None:
        message = "{python} has torchvision {version} and torch {torch}: they were built for different CUDA versions."
        if not ours:
            message = "{python} has torchvision {version}, built for CUDA, and torch {torch}, which was not."
    else:
        return
    label = torch.partition("+")[2]
    yield found(
        None,
        message,
        otherwise="The trainer ends at its imports: operator torchvision::nms does not exist."
        if belongs or not ours
        else "The trainer ends at its imports: compiled with different CUDA major versions.",
        evidence={
            "python": environment.python,
            "root": environment.root,
            "wanted": torchvision_for(release(torch)),
            "index": f"https://download.pytorch.org/whl/{label}" if label else "",
            "torch": torch,
        },
        version=vision,
        belongs=belongs.replace("==", " "),
    )


def _cuda_of(version: str) -> int | None:
    """The major CUDA version that a build names ("2.13.0+cu130"), 0 for one without; None where it names none."""
    found = re.fullmatch(r"[\d.]+\+(?:cpu|cu(\d\d)\d)", version)
    return int(found[1] or 0) if found else None


@rule("PKG010", "error", "package-installed-in-part")
@prevents("ImportError", r"cannot open shared object file|DLL load failed")
def package_installed_in_part(installed: Installed, environment: Environment) -> Iterator[Finding]:
    """A package is installed by its metadata, and files of it are not there.

    What: For each package the first modules of the list of files that pip leaves (RECORD), for the largest ones also
    their libraries with their sizes; and folders whose name begins with ~, which pip leaves where it was stopped.
    Why: An install that was stopped, a full disk, an antivirus program that took a library away, a folder deleted
    by hand. pip believes its own metadata and says "Requirement already satisfied".
    Repair: Install that version once more (--allow asked, as PKG006).
    Upstream: https://packaging.python.org/en/latest/specifications/recording-installed-packages/
    Signature: ImportError: libtorch_cuda.so: cannot open shared object file: No such file or directory
    """
    for one in installed.broken:
        yield found(
            None,
            "{python} has {package} {version} in part: {absent}{more} is not there as it was installed.",
            otherwise="Importing it fails, and pip takes it for installed.",
            evidence={
                "python": environment.python,
                "package": one.name,
                "version": one.version,
                "root": environment.root,
                **outside(environment, one),
            },
            absent=one.absent[0],
            more=f" (and {len(one.absent) - 1} more)" if len(one.absent) > 1 else "",
        )
    if installed.left_over:
        yield found(
            None,
            "An install was stopped in the middle: pip left {first}.",
            otherwise="Nothing uses it, but pip warns of an invalid distribution, and the package may be incomplete.",
            evidence={"folders": list(installed.left_over)},
            severity="note",
            first=installed.left_over[0],
        )


@rule("PKG011", "error", "built-for-numpy-1")
@prevents("ImportError", r"numpy\.core\.multiarray failed to import")
@prevents("RuntimeError", r"Numpy is not available")
def built_for_numpy_1(environment: Environment) -> Iterator[Finding]:
    """A package was built for NumPy 1, and NumPy 2 is installed.

    What: NumPy 2 beside a version of torch, OpenCV, SciPy, pandas or matplotlib whose wheels were built for NumPy 1.
    Why: NumPy 2 changed the layout of its arrays in C. A package that does not bound NumPy gets the newest.
    Repair: Install NumPy 1.26 (--allow asked, as PKG006), or a newer version of that package.
    Upstream: https://numpy.org/doc/stable/numpy_2_0_migration_guide.html
    Signature: A module that was compiled using NumPy 1.x cannot be run in NumPy 2; Numpy is not available
    """
    numpy = environment.versions.get("numpy", "")
    if not numpy:
        raise NotApplicable
    for package, since in _SINCE_NUMPY_2.items():
        version = environment.versions.get(package, "")
        if release(numpy) >= (2,) and release(version) and release(version) < since:
            yield found(
                None,
                "{python} has {package} {version}, which was built for NumPy 1, and NumPy {numpy}.",
                otherwise="It ends when it is imported, or when it first uses an array.",
                evidence={
                    "python": environment.python,
                    "package": package,
                    "version": version,
                    "root": environment.root,
                },
                numpy=numpy,
            )


@rule("PKG012", "note", "two-packages-with-one-module")
def two_packages_with_one_module(environment: Environment) -> Iterator[Finding]:
    """Two installed packages bring the same module.

    What: OpenCV and its headless and contrib builds in different versions (of one version they hold the same),
    onnxruntime and its GPU build, pynvml before 12 and nvidia-ml-py.
    Why: The one that was installed later overwrote files of the other; to uninstall one of them breaks both.
    Repair: None by zdoctor; uninstall all of them and install the one that is needed.
    Upstream: https://github.com/opencv/opencv-python#installation-and-usage
    Signature: None; pip says nothing later on.
    """
    for module, group in ALIKE.items():
        there = [name for name in group if environment.has(name)]
        versions = {release(environment.versions[name])[:2] for name in there}
        if len(there) > 1 and not (module == "cv2" and len(versions) == 1) and not _is_wrapper(environment):
            yield found(
                None,
                "{python} has {packages}, which bring the same module {module}.",
                otherwise="Which of them is imported hangs on the order they were installed in.",
                evidence={"python": environment.python, "packages": listed(there)},
                module=module,
            )


def _is_wrapper(environment: Environment) -> bool:
    """Whether the package pynvml leaves the module of that name to nvidia-ml-py."""
    return release(environment.versions.get("pynvml", "")) >= (12,)


def _asked(installed: Installed) -> None:
    if not installed.asked:
        raise NotApplicable


def _is_torch_of_torchvision(one: Unmet) -> bool:
    return (one.requirement.by, one.requirement.name) == ("torchvision", "torch") and one.kind == "version"


def outside(environment: Environment, one: Metadata | None) -> dict[str, object]:
    """Where a package lies that no install into the environment would change; nothing where one would."""
    return {"outside": one.folder} if one is not None and environment.is_before(one.folder) else {}


def _evidence(one: Unmet, environment: Environment, installed: Installed) -> dict[str, object]:
    asked = one.requirement
    wanted = f"git+{asked.url}@{asked.commit}" if asked.commit else f"{asked.name}{asked.versions}".replace("_", "-")
    return {
        "python": environment.python,
        "requirement": asked.text,
        "wanted": wanted,
        "installed": one.installed,
        "root": environment.root,
        **outside(environment, installed.metadata.get(asked.name)),
    }
