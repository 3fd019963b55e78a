"""Packages that a setting, or zdoctor's own runner, needs and the environment of the run does not have."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..doctor.model import Finding, Run, found
from ..doctor.model.environment import Environment
from ..doctor.rules import Unestablished, prevents, rule
from ..doctor.trainers import trainer_of

_WHEN = "The trainer stops when it builds the optimizer, after the model was loaded."


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
    Repair: Install the package, or take another optimizer.
    Upstream: ai-toolkit toolkit/optimizer.py, toolkit/logging_aitk.py; sd-scripts library/train_util.py
    Signature: ModuleNotFoundError: No module named 'dadaptation'; Please install lion_pytorch to use Lion optimizer
    """
    if run.by_runner:
        yield from _of_runner(environment)
        return
    if not environment.has("torch"):
        return
    needed = [("optimizer", package) for package in _of_optimizer(run)]
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
            evidence={"package": package, "python": environment.python},
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
            evidence={"package": '"zdoctor[train]"', "python": environment.python},
            packages=" and ".join(filter(None, (", ".join(missing[:-1]), missing[-1]))),
        )


def _of_optimizer(run: Run) -> Iterator[str]:
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
