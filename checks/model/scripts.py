"""Which script of sd-scripts trains the model that a file holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...doctor.model import ModelFolder, Run
from ...doctor.model.weights import Tensor
from .contents import kinds

NO_SCRIPT = "-"
LATENTS = 4  # channels of the latents of Stable Diffusion and SDXL
INPAINTING = (
    "{path} is an inpainting model: its first convolution takes {channels} channels, for which {trainer} has "
    "--train_inpainting from 0.10.4 on."
)
NEEDS_V2 = "{path} is a Stable Diffusion 2 model, which is trained with --v2 only."
NOT_V2 = "{path} is a Stable Diffusion 1 model, and --v2 is for those of Stable Diffusion 2: leave it out."
_VERSIONS = {768: 1, 1024: 2}
_FIRST = ("model.diffusion_model.input_blocks.0.0.weight", "conv_in.weight")
_UNETS = ("a Stable Diffusion model", "an SDXL model")
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


def version_of(tensors: Mapping[str, Tensor]) -> int:
    """1 or 2 for a UNet of Stable Diffusion, by how many numbers of a word it takes; 0 where that is not known."""
    wide = next((tensor.shape for name, tensor in tensors.items() if name.endswith("attn2.to_k.weight")), ())
    return _VERSIONS.get(wide[-1], 0) if len(wide) == 2 else 0


def channels_of(tensors: Mapping[str, Tensor]) -> int:
    """How many channels the first convolution of a UNet takes in; 0 where that is not known."""
    first = next((tensors[name].shape for name in _FIRST if name in tensors), ())
    return first[1] if len(first) == 4 else 0


def misses_the_script(run: Run, tensors: Mapping[str, Tensor]) -> str:
    """Why a UNet is none that this run's script of sd-scripts trains, though it is the script of such models; ""."""
    if run.trainer != "sd-scripts" or model_in(tensors) not in _UNETS:
        return ""
    from_a_toml = run.config.lower().endswith(".toml")  # which a command line may add to
    if channels_of(tensors) > LATENTS:
        return "" if run.setting("train_inpainting") or from_a_toml else INPAINTING
    version, written = version_of(tensors), run.setting("v2")
    if not run.process_type or run.process_type.startswith("sdxl") or not version:
        return ""
    asked = 2 if written not in (None, False) else 1
    told = written is not None or not from_a_toml
    return (NOT_V2 if asked == 2 else NEEDS_V2) if told and asked != version else ""


def is_of_another_script(run: Run, model: ModelFolder) -> bool:
    """Whether the model's first file is one that this script of sd-scripts does not train, which KOH016 says."""
    first = next(iter(model.components.values()), None)
    if model.layout != "part-files" or first is None:
        return False
    return bool(script_for(run, model_in(first.tensors)) or misses_the_script(run, first.tensors))
