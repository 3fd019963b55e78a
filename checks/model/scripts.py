"""Which script of sd-scripts trains the model that a file holds."""

from __future__ import annotations

from collections.abc import Iterable

from ...doctor.model import ModelFolder, Run
from .contents import kinds

NO_SCRIPT = "-"
# By what a file is (checks/model/contents.py).
_SCRIPTS = {
    "a Flux transformer in ComfyUI's names": "flux_train_network",
    "a Flux transformer in the names of Black Forest Labs": "flux_train_network",
    "a Flux transformer in diffusers' names": "flux_train_network",
    "a Chroma transformer": "flux_train_network",
    "an SDXL model": "sdxl_train_network",
    "a Stable Diffusion model": "train_network",
    "a Stable Diffusion 3.5 model": "sd3_train_network",
    "a Lumina 2 transformer": "lumina_train_network",
    "an Anima transformer": "anima_train_network",
    "a Z-Image transformer in ComfyUI's names": NO_SCRIPT,
    "a Z-Image transformer in diffusers' names": NO_SCRIPT,
}


def model_in(names: Iterable[str]) -> str:
    """What tensors of these names are, with its article, of a whole model by what is trained of it; "" if unknown."""
    held = kinds(names)
    return next((kind for kind in held if kind in _SCRIPTS), next(iter(held), ""))


def script_for(run: Run, held: str) -> str:
    """The script of sd-scripts that trains what a file holds, NO_SCRIPT where it has none for it.

    "" where this run's is that script, or it is not known.
    """
    if run.trainer != "sd-scripts" or not run.process_type.endswith("_network"):
        return ""
    found = _SCRIPTS.get(held, "")
    return "" if found == run.process_type else found


def is_of_another_script(run: Run, model: ModelFolder) -> bool:
    """Whether the model's first file is one that another script of sd-scripts trains, which KOH016 says."""
    first = next(iter(model.components.values()), None)
    return model.layout == "part-files" and first is not None and bool(script_for(run, model_in(first.tensors)))
