"""Repairs of models whose parts are files of their own: which published file is meant, and the command for it."""

from __future__ import annotations

from collections.abc import Iterator

from ..doctor.families.part_files import part_files
from ..doctor.model import Finding, Fix, Run
from ..doctor.rules import repair

_FLUX_ENCODERS = "comfyanonymous/flux_text_encoders"
_ZIMAGE_FILES = "Comfy-Org/z_image_turbo"
# By the class of a part: a word in its path ("" for any), and the repository with the file in it.
_PUBLISHED: dict[str, tuple[tuple[str, str], ...]] = {
    "CLIPTextModel": (("", f"{_FLUX_ENCODERS} clip_l.safetensors"),),
    "T5EncoderModel": (("", f"{_FLUX_ENCODERS} t5xxl_fp16.safetensors"),),
    "Qwen3ForCausalLM": (("", f"{_ZIMAGE_FILES} split_files/text_encoders/qwen_3_4b.safetensors"),),
    "FluxTransformer2DModel": (
        ("kontext", "black-forest-labs/FLUX.1-Kontext-dev flux1-kontext-dev.safetensors"),
        ("schnell", "black-forest-labs/FLUX.1-schnell flux1-schnell.safetensors"),
        ("dev", "black-forest-labs/FLUX.1-dev flux1-dev.safetensors"),
    ),
    "ZImageTransformer2DModel": (
        ("turbo", f"{_ZIMAGE_FILES} split_files/diffusion_models/z_image_turbo_bf16.safetensors"),
    ),
}
_AUTOENCODERS = {"zimage": f"{_ZIMAGE_FILES} split_files/vae/ae.safetensors"}
_FLUX_AUTOENCODER = "black-forest-labs/FLUX.1-dev ae.safetensors"


@repair("KOH001", "MDL001", "MDL002", "MDL004")
def fetch_the_published_file(finding: Finding, run: Run) -> Iterator[Fix]:
    """The command that fetches the file which was published for this part; its path is for the config."""
    named = (finding.evidence.get("component"), finding.evidence.get("option"))
    part = next((part for part in part_files(run) if part.name in named or part.option in named), None)
    if part is None:
        return
    if part.class_name == "AutoencoderKL":
        file = _AUTOENCODERS.get(run.recipe.architecture or "", _FLUX_AUTOENCODER)
    else:
        text = str(run.setting(part.option, "")).lower()
        file = next((file for word, file in _PUBLISHED.get(part.class_name, ()) if word in text), "")
    if file:
        title = f"download the file that was published for --{part.option}, then put the path it prints there"
        yield Fix(title, (), "show", command=f"hf download {file}")
