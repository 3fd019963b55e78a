"""Classes of sd-scripts (48d368fa) as a step of them is rehearsed; its checkout must be on sys.path.

Their scripts put weights in 8 bits as they are, without scales, and autocast makes 16 of them for each product.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from importlib import import_module
from importlib.machinery import ModuleSpec
from typing import Any
from unittest.mock import Mock

import torch
from torch import Tensor, nn

from zdoctor.doctor.families.models.anima import OWN_CONFIG
from zdoctor.doctor.families.models.lumina2 import NEXT_DIT
from zdoctor.doctor.families.models.stable_diffusion import (
    ATTENTION_ALONE,
    NO_WINDOWS,
    SD15_CONFIG,
    SDXL_CONFIG,
)
from zdoctor.doctor.families.record.steps import WHOLE
from zdoctor.doctor.train.rehearsal.inputs import Batch
from zdoctor.maintenance.kohya_classes import DOUBLE_AND_SINGLE, WAYS, OfTrainer, flux_of, half, inputs_of_flux

# Stable Diffusion 3.5 large and medium, and 3.0 medium.
LARGE: Mapping[str, Any] = {"depth": 38, "pos_embed_max_size": 192, "qk_norm": "rms"}
MEDIUM: Mapping[str, Any] = {"depth": 24, "pos_embed_max_size": 384, "qk_norm": "rms", "dual": 13}
SD3_MEDIUM: Mapping[str, Any] = {"depth": 24, "pos_embed_max_size": 192, "qk_norm": None}
_OF_UNET = (*WAYS, "autocast full", "float32")


def _without_helpers() -> None:
    """In place of what no forward pass takes, and what asks for packages that need not be there."""
    for other in ("utils", "device_utils", "custom_offloading_utils"):
        sys.modules.setdefault(f"library.{other}", Mock())


def _flux_of_sd_scripts(config: Mapping[str, Any]) -> Any:
    _without_helpers()
    return flux_of("library.flux_models", config)


def _chroma(config: Mapping[str, Any]) -> Any:
    _without_helpers()
    module = import_module("library.chroma_models")
    return module.Chroma(replace(module.chroma_params, **config))


def _of_chroma(model: Any, batch: Batch) -> dict[str, Any]:
    """How long a prompt is is read out of the mask: that one has numbers."""
    return {**inputs_of_flux(model, batch), "txt_attention_mask": torch.ones(batch.size, batch.text, device="cpu")}


def _unet(module: str, name: str, config: Mapping[str, Any]) -> Any:
    _without_helpers()
    found = import_module(f"library.{module}")
    given = ("sample_size", "attention_head_dim", "cross_attention_dim", "use_linear_projection")
    kwargs = {key: config[key] for key in given if key in config} if name == "UNet2DConditionModel" else {}
    model = getattr(found, name)(**kwargs)
    model.set_use_sdpa(True)
    return model


def _latents(batch: Batch, *, half: bool) -> Tensor:
    """Noisy latents: what is trained on them requires gradients of them, whether or not blocks are computed again."""
    shape = (batch.size, 4, batch.cells[1], batch.cells[2])
    return torch.zeros(*shape, dtype=torch.bfloat16 if half else torch.float32).requires_grad_()


def _of_sdxl(model: Any, batch: Batch) -> dict[str, Any]:
    return {
        "x": _latents(batch, half=True),
        "timesteps": torch.full((batch.size,), 500),
        "context": torch.zeros(batch.size, batch.text, 2048, dtype=torch.bfloat16),
        "y": torch.zeros(batch.size, 2816, dtype=torch.bfloat16),
    }


def _of_sd(model: Any, batch: Batch) -> dict[str, Any]:
    width = model.down_blocks[0].attentions[0].transformer_blocks[0].attn2.to_k.in_features
    return {
        "sample": _latents(batch, half=False),
        "timestep": torch.full((batch.size,), 500),
        "encoder_hidden_states": torch.zeros(batch.size, batch.text, width),
        "return_dict": False,
    }


def _mmdit(config: Mapping[str, Any]) -> Any:
    """Its depth says how wide it is: of all its blocks the first and the last ones are left."""
    _without_helpers()
    module = import_module("library.sd3_models")
    few = config.get("blocks")
    params = {name: value for name, value in config.items() if name not in ("blocks", "dual")}
    layers = list(range(config.get("dual", 0)))
    with torch.device("meta"):
        model = module.create_sd3_mmdit(
            module.SD3Params(
                patch_size=2,
                num_patches=params["pos_embed_max_size"] ** 2,
                adm_in_channels=2048,
                context_embedder_in_features=4096,
                context_embedder_out_features=64 * params["depth"],
                x_block_self_attn_layers=layers,
                model_type="",
                **params,
            )
        )
    if few is not None:
        model.joint_blocks = nn.ModuleList([*model.joint_blocks[: few - 1], model.joint_blocks[-1]])
    return model


def _given(model: Any, *shape: int) -> Tensor:
    return torch.zeros(*shape).requires_grad_(model.gradient_checkpointing)


def _of_mmdit(model: Any, batch: Batch) -> dict[str, Any]:
    height, width = batch.cells[1] * 2, batch.cells[2] * 2
    return {
        "x": _given(model, batch.size, 16, height, width),
        "t": torch.full((batch.size,), 500.0),
        "context": _given(model, batch.size, batch.text, 4096),
        "y": _given(model, batch.size, 2048),
    }


def _next_dit(config: Mapping[str, Any]) -> Any:
    _without_helpers()
    return import_module("library.lumina_models").NextDiT(**{**NEXT_DIT, **config})


def _of_next_dit(model: Any, batch: Batch) -> dict[str, Any]:
    """How long a prompt is is read out of the mask: that one has numbers."""
    height, width = batch.cells[1] * 2, batch.cells[2] * 2
    return {
        "x": _given(model, batch.size, 16, height, width),
        "t": half(batch),
        "cap_feats": _given(model, batch.size, batch.text, 2304),
        "cap_mask": torch.ones(batch.size, batch.text, dtype=torch.int32, device="cpu"),
    }


def _anima(config: Mapping[str, Any]) -> Any:
    """Its padding mask is resized by torchvision to the size that it has."""
    _without_helpers()
    vision = Mock(__spec__=ModuleSpec("torchvision", None))
    vision.transforms.functional.resize = lambda given, *how, **named: given
    sys.modules.setdefault("torchvision", vision)
    return import_module("library.anima_models").Anima(**{**OWN_CONFIG, **config})


def _of_anima(model: Any, batch: Batch) -> dict[str, Any]:
    height, width = batch.cells[1] * 2, batch.cells[2] * 2
    again = model.blocks[0].gradient_checkpointing
    return {
        "x": torch.zeros(batch.size, 16, 1, height, width).requires_grad_(again),
        "timesteps": half(batch),
        "context": torch.zeros(batch.size, batch.text, 1024, dtype=torch.bfloat16).requires_grad_(again),
        "padding_mask": torch.zeros(batch.size, 1, height, width, dtype=torch.bfloat16),
        "target_input_ids": torch.zeros(batch.size, batch.text, dtype=torch.int64),
        "target_attention_mask": torch.ones(batch.size, batch.text, dtype=torch.int64),
        "source_attention_mask": torch.ones(batch.size, batch.text, dtype=torch.int64),
    }


_SDXL = partial(_unet, "sdxl_original_unet", "SdxlUNet2DConditionModel")
_SD = partial(_unet, "original_unet", "UNet2DConditionModel")
# A LoRA of networks.lora is on what attends alone or, with conv_dim, on all blocks.
_UNET = OfTrainer(
    _SD,
    _of_sd,
    {WHOLE: ""},
    (SD15_CONFIG,),
    left_out=ATTENTION_ALONE,
    ways=_OF_UNET,
    left_out_of_windows=NO_WINDOWS,
    scaled=False,
    alike=True,
)
OF_SD_SCRIPTS: Mapping[str, OfTrainer] = {
    "sd-scripts/UNet2DConditionModel": _UNET,
    "sd-scripts/SdxlUNet2DConditionModel": replace(_UNET, build=_SDXL, inputs=_of_sdxl, configs=(SDXL_CONFIG,)),
    "sd-scripts/MMDiT": OfTrainer(
        _mmdit, _of_mmdit, {"joint_blocks": "blocks"}, (LARGE, MEDIUM, SD3_MEDIUM), scaled=False
    ),
    "sd-scripts/NextDiT": OfTrainer(
        _next_dit,
        _of_next_dit,
        {"context_refiner": "n_refiner_layers", "noise_refiner": "n_refiner_layers", "layers": "n_layers"},
        scaled=False,
    ),
    "sd-scripts/Anima": OfTrainer(_anima, _of_anima, {"blocks": "num_blocks"}, left_out="_modulation", ways=WAYS[:1]),
    "sd-scripts/Chroma": OfTrainer(_chroma, _of_chroma, DOUBLE_AND_SINGLE),
    "sd-scripts/Flux": OfTrainer(_flux_of_sd_scripts, inputs_of_flux, DOUBLE_AND_SINGLE),
}
