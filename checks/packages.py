"""The packages of the environment of the run: PyTorch for this card, their age for this model, and missing ones."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ..doctor.families import family_of
from ..doctor.model import Finding, Gpu, Run, System, Unknown, found
from ..doctor.model.cards import taken
from ..doctor.model.environment import Environment, Version, release
from ..doctor.model.said import listed
from ..doctor.packages.indexes import DRIVERS, nearest, served
from ..doctor.rules import NotApplicable, Unestablished, prevents, rule
from ..doctor.trainers import trainer_of

# Models without a record: diffusers' src/diffusers/__init__.py by tag (v0.32.0 to v0.40.0); Qwen3's model cards.
_QWEN3 = (("transformers", (4, 51), "Qwen3ForCausalLM"),)
_WAN = (("diffusers", (0, 33), "WanPipeline"),)
_SINCE: Mapping[str, tuple[tuple[str, Version, str], ...]] = {
    "flux2_klein_4b": _QWEN3,
    "flux2_klein_9b": _QWEN3,
    **dict.fromkeys(("wan21", "wan21_i2v", "wan22_5b", "wan22_14b", "wan22_14b_i2v"), _WAN),
}
_WHEN = "The trainer stops when it builds the optimizer, after the model was loaded."


@rule("PKG001", "error", "cpu-build-of-torch")
@prevents("AssertionError", r"Torch not compiled with CUDA enabled")
def cpu_build_of_torch(
    run: Run, environment: Environment, gpus: tuple[Gpu, ...], system: System
) -> Iterator[Finding]:
    """PyTorch was installed without CUDA, and there is a card.

    What: The version of torch in the environment that the run will use ends in +cpu, and NVML sees an NVIDIA card,
    which CUDA_VISIBLE_DEVICES does not hide. On a machine with AMD's cards: it ends in +cpu or +cu….
    Why: On Windows `pip install torch` gives the build without CUDA; a package that pins torch can bring it, too. On
    Linux it gives the build for NVIDIA's cards.
    Repair: Install the same version from PyTorch's own index for the card and its driver, CUDA or ROCm, with
    torchvision; where none has it, the nearest version (--allow asked, as PKG006).
    Upstream: https://pytorch.org/get-started/locally/
    Signature: AssertionError: Torch not compiled with CUDA enabled
    """
    cards = cards_of(run, gpus, system)
    is_of_amd = bool(cards) and cards[0].maker == "amd"
    if environment.cuda is not None and (environment.cuda == () or is_of_amd) and cards and run.device != "cpu":
        yield found(
            None,
            "{python} has torch {torch}, which is built for NVIDIA's cards: it cannot use the {card}."
            if environment.cuda
            else "{python} has torch {torch}, which is built without CUDA: it cannot use the {card}.",
            otherwise="The trainer ends at its first use of CUDA, or trains on the processor for days.",
            evidence=_evidence(environment, cards, system),
            card=cards[0].name,
        )


def _cuda(run: Run, environment: Environment) -> Version | None:
    """The CUDA version of PyTorch, None where it is not known. Raises Unestablished where the card needs another."""
    if environment.cuda == () and run.device != "cpu":
        raise Unestablished("this PyTorch was built without CUDA, see PKG001")
    return environment.cuda or None


def cards_of(run: Run, gpus: tuple[Gpu, ...], system: System) -> tuple[Gpu, ...]:
    """The cards that the run may take."""
    candidates = taken(run, gpus, system.environment)
    return gpus if isinstance(candidates, Unknown) else candidates


@rule("PKG002", "error", "torch-without-kernels")
@prevents("RuntimeError", r"no kernel image is available for execution on the device")
@prevents("AcceleratorError", r"no kernel image is available for execution on the device")
def torch_without_kernels(
    run: Run, environment: Environment, gpus: tuple[Gpu, ...], system: System
) -> Iterator[Finding]:
    """This build of PyTorch holds no code for this card.

    What: The CUDA version of the torch wheel (from its version, such as 2.6.0+cu124) against the compute capability
    of the card that the run takes. Wheels up to CUDA 12.6 hold code up to 9.0, so none for the RTX 50 series; those
    of CUDA 12.8 begin at 7.0 (torch 2.7, and from 2.11 on: 7.5), those of CUDA 13 at 7.5, so none for the P100, V100
    or GTX 10 series; those for aarch64 begin at 8.0. Only official wheels are judged, and where several cards may be
    meant, only when none is served.
    Why: The import works and the card is found; the first kernel fails.
    Repair: Install the same version of torch for another CUDA version that has it, else the nearest version (--allow
    asked, as PKG006).
    Upstream: https://github.com/pytorch/pytorch/blob/main/RELEASE.md (CUDA support matrix),
    https://github.com/pytorch/pytorch/issues/157517 https://github.com/pytorch/pytorch/issues/172352
    Signature: CUDA error: no kernel image is available for execution on the device; … is not compatible with the
    current PyTorch installation
    """
    cards = cards_of(run, gpus, system)
    cuda = _cuda(run, environment) if cards else None
    if cuda is None:
        return
    lowest, highest = served(cuda, release(environment.versions.get("torch", "")), system.machine == "aarch64")
    known = [card.capability for card in cards if card.capability is not None]
    if len(known) < len(cards) or any(lowest <= capability <= highest for capability in known):
        return
    message = "{python} has torch {torch}, which holds no code for the {card} (compute capability {dotted}): wheels "
    message += "for CUDA {cuda} reach from {lowest} to {highest}." if known[0] > highest else "CUDA {cuda} begin at "
    message += "{lowest}."
    yield found(
        None,
        message,
        otherwise="The first computation on the card ends with: no kernel image is available for execution on the "
        "device.",
        evidence=_evidence(environment, cards, system),
        card=cards[0].name,
        dotted=_dotted(known[0]),
        cuda=_dotted(cuda),
        lowest=_dotted(lowest),
        highest=_dotted(highest),
    )


@rule("PKG003", "warning", "driver-older-than-torch")
@prevents("RuntimeError", r"The NVIDIA driver on your system is too old")
def driver_older_than_torch(
    run: Run, environment: Environment, gpus: tuple[Gpu, ...], system: System
) -> Iterator[Finding]:
    """The NVIDIA driver is older than the CUDA version of PyTorch asks for.

    What: Wheels for CUDA 13 need driver 580 or newer, those for CUDA 12 driver 525, those for CUDA 11 driver 450.
    Why: `pip install -U torch` brings the newest CUDA, whatever the driver. torch then reports no card at all. A
    machine with NVIDIA's forward-compatibility package (cuda-compat) works with the older driver, which cannot be
    seen from here; hence a warning.
    Repair: Update the driver, or install torch for an older CUDA version (--allow asked, as PKG006).
    Upstream: https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
    Signature: The NVIDIA driver on your system is too old (found version …)
    """
    driver = re.match(r"\d+", gpus[0].driver) if gpus else None
    cuda = _cuda(run, environment) if driver is not None else None
    needed = DRIVERS.get(cuda[0]) if cuda is not None else None
    if driver is None or needed is None or int(driver.group()) >= needed:
        return
    yield found(
        None,
        "{python} has torch {torch}, which needs NVIDIA's driver {needed} or newer; this machine has {driver}.",
        otherwise="PyTorch sees no card, unless NVIDIA's cuda-compat package is installed.",
        evidence=_evidence(environment, gpus, system, same=True),
        needed=needed,
    )


@rule("PKG004", "error", "package-too-old", trainers=("ai-toolkit", "musubi-tuner", "zdoctor"))
@prevents("ImportError", r"Diffusers is out of date")
@prevents(
    "ImportError",
    r"cannot import name '(ZImage\w+|Qwen3ForCausalLM|FluxKontextPipeline|QwenImage\w+|Wan\w+)' "
    r"from '(diffusers|transformers)'",
)
def package_too_old(run: Run, environment: Environment) -> Iterator[Finding]:
    """diffusers or transformers is older than the model.

    What: The class that the model is loaded with came with a later version than the one installed: Z-Image with
    diffusers 0.36 and transformers 4.51 (Qwen3), Kontext and Qwen-Image with diffusers 0.35, Wan with 0.33.
    Why: Another package, or another trainer in the same environment, pulled an older version in.
    Repair: Update it (--allow asked, as PKG006). Trainers pin versions, so their own requirements come first.
    Upstream: https://github.com/ostris/ai-toolkit/issues/490
    Signature: ImportError: Diffusers is out of date; cannot import name 'ZImagePipeline' from 'diffusers'
    """
    if run.kind == "other":
        raise NotApplicable
    architecture = run.recipe.architecture or ""
    for package, minimum, name in family_of(architecture).packages or _SINCE.get(architecture, ()):
        if trainer_of(run.trainer).own_classes and package == "diffusers":
            continue  # it brings its own transformers
        version = environment.versions.get(package)
        if version is None or not release(version) or release(version) >= minimum:
            continue
        yield found(
            run.where("architecture"),
            "{python} has {package} {version}, which has no {name}: {architecture} needs {minimum} or newer.",
            otherwise="The trainer ends with an ImportError at its start.",
            evidence={
                "package": package,
                "version": version,
                "minimum": _dotted(minimum),
                "python": environment.python,
                "root": environment.root,
            },
            name=name,
            architecture=run.recipe.architecture,
        )


def _evidence(
    environment: Environment, gpus: tuple[Gpu, ...], system: System, *, same: bool = False
) -> dict[str, object]:
    """What is seen of torch and the card, and which torch serves it: of the `same` version, or the nearest."""
    card, torch = gpus[0], environment.versions["torch"]
    seen: dict[str, object] = {"python": environment.python, "torch": torch}
    seen |= {"capability": list(card.capability or ()), "driver": card.driver, "source": card.source}
    build = nearest(card, environment.release, system, torch)
    if build is None or (same and release(build.version) != release(torch)):
        return seen
    wanted = [build.torch]
    wanted += [build.torchvision] if environment.has("torchvision") and build.torchvision else []
    return seen | {"index": build.index, "version": build.version, "wanted": wanted, "root": environment.root}


def _dotted(version: Version) -> str:
    return ".".join(map(str, version))


@rule("PKG005", "error", "package-not-installed", trainers=("ai-toolkit", "sd-scripts", "musubi-tuner", "zdoctor"))
@prevents("ModuleNotFoundError", r"No module named '(bitsandbytes|prodigyopt|dadaptation|lion_pytorch|wandb)'")
@prevents(
    "ImportError", r"Please install lion_pytorch|Failed to import wandb|No (bitsandbytes|Prodigy|dadaptation|lion)"
)
def package_not_installed(run: Run, environment: Environment) -> Iterator[Finding]:
    """A setting needs a package that is not installed.

    What: The optimizer, or logging to Weights & Biases, is imported by name only when it is used: bitsandbytes for
    the 8-bit optimizers, prodigyopt for Prodigy, dadaptation for D-Adaptation, lion-pytorch for Lion, wandb. The
    environment that the run will use does not have it. dadaptation and lion-pytorch are not among the requirements
    of ai-toolkit. `zdoctor train` needs torch, diffusers and transformers, which a plain `pip install zdoctor` leaves
    out.
    Why: ai-toolkit builds the optimizer after the model was loaded and quantized, and starts wandb after all
    latents and captions were encoded.
    Repair: Install the package (--allow asked, as PKG006), or take another optimizer.
    Upstream: ai-toolkit toolkit/optimizer.py, toolkit/logging_aitk.py; sd-scripts library/train_util.py
    Signature: ModuleNotFoundError: No module named 'dadaptation'; Please install lion_pytorch to use Lion optimizer
    """
    if run.kind == "other":
        raise NotApplicable
    if run.by_runner:
        yield from _of_runner(environment)
        return
    if not environment.has("torch"):
        return
    needed = [("optimizer", package) for package in of_optimizer(run)]
    if run.recipe.logging.wandb:
        needed.append(("logging.wandb", "wandb"))
    for field, package in needed:
        if environment.has(package):
            continue
        written = run.written(field)
        yield found(
            run.where(field),
            "{key}: {value} needs the package {package}, and {python} does not have it.",
            otherwise=trainer_of(run.trainer).missing_package.get(field, _WHEN),
            evidence={"package": package, "python": environment.python, "root": environment.root},
            key=run.keys.get(field, field).rpartition("/")[2],
            value=run.recipe.optimizer.name if written is None else written.value,
        )


def _of_runner(environment: Environment) -> Iterator[Finding]:
    if not environment.versions:
        raise Unestablished(f"the packages of {environment.python} cannot be looked at")
    missing = [name for name in ("torch", "diffusers", "transformers") if not environment.has(name)]
    if missing:
        yield found(
            None,
            "{python} does not have {packages}, which zdoctor train needs.",
            otherwise="The run ends at its start: training needs packages that are not here.",
            evidence={"package": "zdoctor[train]", "python": environment.python},
            packages=listed(missing),
        )


def of_optimizer(run: Run) -> Iterator[str]:
    """The packages that the optimizer of a run is in."""
    name, trainer = run.recipe.optimizer.name.lower(), trainer_of(run.trainer)
    prodigy = r"prodigy(?!8bit)" if trainer.optimizers_by_prefix else "prodigy$"
    if name in ("adam8bit", "adamw8bit", "ademamix8bit", "lion8bit", "pagedadamw8bit", "pagedlion8bit"):
        yield "bitsandbytes"
    elif trainer.optimizers_by_path:
        return
    elif name == "lion":
        yield "lion_pytorch"
    elif name.startswith("dadapt"):
        yield "dadaptation"
    elif re.match(prodigy, name):
        yield "prodigyopt"
