"""Let ComfyUI open the runner's files of each kind of network, and compare its weights with the runner's.

    python benchmarks/comfyui.py CHECKOUT      a checkout of ComfyUI; pip install comfy-kitchen einops beside it

Tiny random Flux and Z-Image transformers get each network with random numbers, which is saved as a run saves it. Real
models of ComfyUI of the same sizes take the file by its own load_lora and ModelPatcher. Printed are how many tensors
of the file ComfyUI leaves unread, and how far the patched weights are from what the runner computes with, as a share
of the change. For the text encoders of Flux the names are held against those of its real-size CLIP-L and T5.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from corpus_oracle import StandIn
from safetensors.torch import load_file
from torch import Tensor, nn

from zdoctor.doctor.demo.tiny import build_tiny_pipeline
from zdoctor.doctor.families import classes, family_of
from zdoctor.doctor.families.network import file_prefix
from zdoctor.doctor.families.record.single_file import original_parts
from zdoctor.doctor.families.tensors import needed_tensors
from zdoctor.doctor.model.recipe import Network
from zdoctor.doctor.train.families import family_of as module_of
from zdoctor.doctor.train.families import flux
from zdoctor.doctor.train.network.lora import add_network, as_saved, lora_targets, trainable_parameters
from zdoctor.doctor.train.output.checkpoint_files import write_lora
from zdoctor.doctor.train.transformer.load_transformer import build_empty_transformer, fill_transformer
from zdoctor.tests.flux import trainable_flux

KINDS = {
    "LoRA": Network("lora", 4, 2.0, scale=0.5),
    "DoRA": Network("dora", 4, 4.0, start_deviation=0.5),
    "LoKr": Network("lokr", 2, 1.0, scale=0.5, lokr_full_rank=False),
    "LoKr, full": Network("lokr"),
    "LoHa": Network("loha", 4, 2.0, scale=0.5),
    "OFT": Network("oft", 4, 0.001),
    "whole layers": Network("lora", 4, 4.0, full=r"(?:feed_forward|\.ff)\."),
}
# ComfyUI's model of each family, and its config in the sizes of the tiny one.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "flux": (
        "Flux",
        {
            "image_model": "flux",
            "in_channels": 4,
            "out_channels": 4,
            "vec_in_dim": 20,
            "context_in_dim": 24,
            "hidden_size": 16,
            "mlp_ratio": 4.0,
            "num_heads": 2,
            "depth": 2,
            "depth_single_blocks": 3,
            "axes_dim": [2, 2, 4],
            "theta": 10000,
            "patch_size": 2,
            "qkv_bias": True,
            "guidance_embed": True,
            "txt_ids_dims": [],
        },
    ),
    "zimage": (
        "Lumina2",
        {
            "image_model": "lumina2",
            "dim": 96,
            "n_layers": 4,
            "n_refiner_layers": 1,
            "n_heads": 3,
            "n_kv_heads": 3,
            "axes_dims": [8, 12, 12],
            "axes_lens": [64, 64, 64],
            "rope_theta": 256.0,
            "ffn_dim_multiplier": 8 / 3,
            "z_image_modulation": True,
            "qk_norm": True,
            "cap_feat_dim": 32,
            "in_channels": 16,
            "pad_tokens_multiple": 32,
            "time_scale": 1000.0,
            "multiple_of": 1,
        },
    ),
}


def tiny_model(family: str, folder: Path) -> nn.Module:
    """The runner's own transformer with its random weights."""
    if family == "flux":
        trainable_flux(folder)
    else:
        build_tiny_pipeline(folder)
    model = build_empty_transformer(folder / "transformer")
    place: Any = {"dtype": torch.float32, "device": torch.device("cpu")}
    fill_transformer(model, folder / "transformer", quantization="none", adapter={}, **place)
    return model


def as_original(family: str, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights of Linears by the names of ComfyUI's model, fused where those are."""
    made: dict[str, Tensor] = {}
    kind = classes()[family_of(family).class_name or ""]
    for original, names in original_parts(kind.original, list(weights)).items():
        value = torch.cat([weights[name] for name in names])
        if names[0] in kind.swapped:
            value = torch.cat(value.chunk(2)[::-1])
        made[f"diffusion_model.{original}"] = value
    return made


def compared(family: str, how: Network, comfy: Any, folder: Path) -> str:
    model = tiny_model(family, folder)
    shapes = lora_targets(model)
    before = {f"{name}.weight": model.get_submodule(name).get_parameter("weight").clone() for name in shapes}
    network = add_network(model, shapes, how, 0)
    parameters = trainable_parameters(network, file_prefix(how, module_of(model).RECORD.lora_prefix))
    with torch.no_grad():
        for name, value in parameters.items():
            value.mul_(1.1) if "magnitude" in name else value.add_(0.05 * torch.randn_like(value))
    ours = {f"{name}.weight": effective(network[name], inputs) for name, (_, inputs) in shapes.items()}
    file = folder / "network.safetensors"
    write_lora(file, as_saved({key: one.detach() for key, one in parameters.items()}, how), torch.float32, {})
    return opened(family, comfy, load_file(file), as_original(family, before), as_original(family, ours))


@torch.no_grad()
def effective(module: nn.Module, inputs: int) -> Tensor:
    """The matrix that a module multiplies by."""
    module.eval()
    made: Tensor = module(torch.eye(inputs)) - module(torch.zeros(1, inputs))
    return made.t()


def opened(
    family: str, comfy: Any, held: dict[str, Tensor], before: Mapping[str, Tensor], after: Mapping[str, Tensor]
) -> str:
    """What ComfyUI makes of a file: tensors that it leaves, and the largest error of a weight by its change."""
    kind, config = MODELS[family]
    settings = getattr(comfy.supported_models, kind)(config)
    settings.unet_config = config
    theirs = getattr(comfy.model_base, kind)(settings, device=torch.device("cpu")).float()
    own = theirs.state_dict()
    odd = [name for name, value in before.items() if own.get(name, torch.empty(0)).shape != value.shape]
    if odd:
        raise SystemExit(f"{family}: no such tensors in ComfyUI's model: {odd[:3]}")
    names = comfy.lora.model_lora_keys_unet(theirs, {})
    unread = Unread()
    logging.getLogger().addHandler(unread)
    patches = comfy.lora.load_lora(comfy.lora_convert.convert_lora(held), names)
    logging.getLogger().removeHandler(unread)
    patcher = comfy.model_patcher.ModelPatcher(theirs, torch.device("cpu"), torch.device("cpu"))
    patcher.add_patches(patches, 1.0)
    worst = 0.0
    for name, value in before.items():
        made = comfy.lora.calculate_weight(patcher.patches.get(name, []), value.clone(), name)
        change = (after[name] - value).norm().item()
        worst = max(worst, (made - after[name]).norm().item() / change)
    bias = sum(key.endswith(".diff_b") for key in held)
    return f"{len(held)} tensors ({bias} of biases), {unread.count} unread, weights within {worst:.1e}"


class Unread(logging.Handler):
    """Counts the tensors that load_lora says it has not loaded."""

    count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += "lora key not loaded" in record.getMessage()


def text_encoders(comfy: Any) -> str:
    """Of the names that the runner gives CLIP-L and T5, those that ComfyUI's own encoders of Flux do not have."""
    with torch.device("meta"):
        theirs = comfy.text_encoders.flux.FluxClipModel(dtype_t5=torch.float16, device="meta", dtype=torch.float16)
    own, names = theirs.state_dict(), comfy.lora.model_lora_keys_clip(theirs, {})
    linears: dict[str, tuple[int, ...]] = {}
    for component, (class_name, config) in family_of("flux").published.items():
        prefix = flux.TEXT_PREFIXES.get(component)
        inside = ".layers." if class_name == "CLIPTextModel" else ".block."
        for name, shape in (needed_tensors(class_name, config) or {}).items() if prefix else ():
            if len(shape) == 2 and inside in f".{name}" and "relative_attention_bias" not in name:
                linears[f"{prefix}{name.removeprefix('text_model.').removesuffix('.weight')}"] = shape
    wrong = [name for name, shape in linears.items() if name not in names or own[names[name]].shape != shape]
    return f"{len(linears)} Linears, {len(wrong)} of them without a place {wrong[:3] or ''}"


def main() -> None:
    checkout = Path(sys.argv[1])
    sys.argv[1:] = ["--cpu"]
    sys.path.insert(0, str(checkout))
    sys.meta_path.append(StandIn(checkout / "comfy"))
    import comfy.options  # type: ignore[import-not-found, unused-ignore] # pyright: ignore[reportMissingImports]

    comfy.options.enable_args_parsing()
    import comfy.lora  # pyright: ignore[reportMissingImports]
    import comfy.lora_convert  # pyright: ignore[reportMissingImports]
    import comfy.model_base  # pyright: ignore[reportMissingImports]
    import comfy.model_patcher  # pyright: ignore[reportMissingImports]
    import comfy.supported_models  # pyright: ignore[reportMissingImports]
    import comfy.text_encoders.flux  # pyright: ignore[reportMissingImports]

    torch.manual_seed(0)
    for family in MODELS:
        for title, how in KINDS.items():
            with tempfile.TemporaryDirectory() as folder:
                print(f"{family} {title}: {compared(family, how, comfy, Path(folder) / 'model')}", flush=True)
    print(f"flux text encoders: {text_encoders(comfy)}")


if __name__ == "__main__":
    main()
