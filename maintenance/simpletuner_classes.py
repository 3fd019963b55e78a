"""Classes of SimpleTuner (bc8e6ab7) as a step of them is rehearsed: its own transformers, with a LoRA of peft's.

A checkout must be on sys.path. The LoRA is in 16 bits, on the Linears that SimpleTuner takes unless it is told which,
with its dropout of 0.1, which keeps a copy and a mask of what each is given. Autocast in bfloat16 is around all.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from inspect import signature
from types import ModuleType
from typing import Any

import torch
from diffusers.models.unets.unet_2d_condition import UNet2DConditionModel
from torch import Tensor, nn

from zdoctor.doctor.families.models.boogu import CONFIG as BOOGU_CONFIG
from zdoctor.doctor.families.models.boogu import SPARED as BOOGU_SPARED
from zdoctor.doctor.families.models.flux2_in_diffusers import CONFIG_4B, CONFIG_9B
from zdoctor.doctor.families.models.hidream import CONFIG as HIDREAM_CONFIG
from zdoctor.doctor.families.models.sd3 import LARGE, MEDIUM
from zdoctor.doctor.families.models.wan import CONFIG_5B, CONFIG_SMALL
from zdoctor.doctor.families.record.blocks import is_within
from zdoctor.doctor.families.record.steps import ADAPTED, FEW, HALF_NORMS, LOKR, OFFLOADED, SCALED, WHOLE
from zdoctor.doctor.train.rehearsal.inputs import CALLS, Batch, Called, inputs_of
from zdoctor.doctor.train.rehearsal.step import Own
from zdoctor.doctor.train.weights.materialize import replace_module
from zdoctor.maintenance.classes import CLASSES
from zdoctor.maintenance.kohya_classes import AUTOCAST, LinearWrapper, OfTrainer, under_autocast
from zdoctor.maintenance.simpletuner_inputs import nothing, of_boogu, of_hidream, of_ideogram4, of_qwen_image, of_sd3
from zdoctor.maintenance.simpletuner_products import (
    KEEPING,
    OF_FILE,
    Adapted,
    Lokr,
    Quantized,
    of_torchao,
    offload,
    readied,
)

DROPOUT = 0.1
SD35_CONFIGS = (MEDIUM, LARGE)
ATTENTION = ("to_k", "to_q", "to_v", "to_out.0")


def own_of_simpletuner(of: OfTrainer, way: str) -> Own:
    product = next((product for format, product in KEEPING.items() if way.startswith(format)), None)

    def build(config: Mapping[str, Any]) -> Any:
        os.environ["SIMPLETUNER_LOG_LEVEL"] = "ERROR"
        under_autocast()
        AUTOCAST.is_on, AUTOCAST.norms = True, HALF_NORMS not in way
        readied(product)
        model = of.build(config).to("meta", torch.bfloat16)
        for name, module in list(model.named_modules()):
            is_spared = bool(of.spared and of_torchao(product) and re.search(of.spared, name))
            if product and isinstance(module, nn.Linear) and is_within(f"{name}.", of.lists) and not is_spared:
                is_adapted = ADAPTED in way and is_within(f"{name}.", (of.adapted,))
                replace_module(model, name, (Adapted if is_adapted else Quantized)(module, product))
        if OFFLOADED in way:
            offload()
            model.set_gradient_checkpointing_offload_attention(True)
        model.forward = partial(AUTOCAST.computes, model.forward)
        return model

    def inputs(model: Any, batch: Batch, dtype: torch.dtype) -> Called:
        known = type(model).__name__ in CALLS
        args, named = inputs_of(model, batch, torch.bfloat16) if known else ((), {})
        taken = signature(type(model).forward).parameters
        return args, {name: value for name, value in named.items() if name in taken} | of.inputs(model, batch)

    return Own(build, inputs, lora=Lokr if LOKR in way else Lora, trains=True)


class Lora(LinearWrapper):
    """A Linear with a LoRA as peft has it (peft/tuners/lora/layer.py)."""

    def __init__(self, base: nn.Module, shape: tuple[int, int], rank: int) -> None:
        super().__init__(base)
        self.down = nn.Parameter(torch.zeros(rank, shape[1], dtype=torch.bfloat16))
        self.up = nn.Parameter(torch.zeros(shape[0], rank, dtype=torch.bfloat16))

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.base(x)
        dropped = torch.native_dropout(x.to(self.down.dtype), DROPOUT, True)[0]
        added = nn.functional.linear(nn.functional.linear(dropped, self.down), self.up)
        return (found + added * 1.0).to(found.dtype)


def left_out(*ends: str) -> str:
    """Finds the Linears whose names end in none of these."""
    words = "|".join(end.replace(".", r"\.") for end in ends or ATTENTION)
    return rf"^(?!(?:.*\.)?(?:{words})$)"


_WITH_FOLDER = ("ltxvideo2",)  # whose transformer asks for what is in the folder's own module


def of_module(module: str, name: str, config: Mapping[str, Any]) -> Any:
    """The class of a family's transformer.py, without what its folder imports beside that."""
    models = import_module("simpletuner.helpers.models")
    folder = f"{models.__name__}.{module}"
    if module not in _WITH_FOLDER:
        package = sys.modules.setdefault(folder, ModuleType(folder))
        package.__path__ = [f"{path}/{module}" for path in models.__path__]
    return getattr(import_module(f"{folder}.transformer"), name)(**config)


WAYS = ("autocast", *(way for way in KEEPING if way != OF_FILE))


def _ideogram4(config: Mapping[str, Any]) -> Any:
    made = of_module("ideogram", "Ideogram4Config", config)
    return of_module("ideogram", "Ideogram4Transformer", {"config": made})


def _of(
    module: str,
    name: str,
    *lists: tuple[str, str],
    ends: tuple[str, ...] = ATTENTION,
    inputs: Callable[[Any, Batch], dict[str, Any]] = nothing,
    configs: tuple[Mapping[str, Any], ...] = ({},),
    ways: tuple[str, ...] = (),
    adapted: str = "",
    spared: str = "",
    norms: bool = False,
    unlike: tuple[str, tuple[tuple[int, Any], ...]] = ("", ()),
) -> OfTrainer:
    """The class of a family, whose steps may be computed in more `ways` than all.

    `norms` says that it calls rms_norm of PyTorch, for which autocast does otherwise since 2.12.
    """
    build = partial(of_module, module, name)
    ways = (*WAYS, *ways)
    return OfTrainer(
        build,
        inputs,
        dict(lists),
        configs,
        left_out(*ends),
        _and_before(*ways) if norms else ways,
        adapted=adapted,
        spared=spared,
        unlike=unlike,
    )


def _and_before(*ways: str) -> tuple[str, ...]:
    return (*ways, *(way + HALF_NORMS for way in ways))


def _offloaded(*ways: str) -> tuple[str, ...]:
    return tuple(way + OFFLOADED for way in ways)


OF_SIMPLETUNER: Mapping[str, OfTrainer] = {
    "SimpleTuner/UNet2DConditionModel": OfTrainer(
        lambda config: UNet2DConditionModel(**config),
        nothing,
        {WHOLE: ""},
        next(source.configs for source in CLASSES if source.name == "UNet2DConditionModel"),
        left_out(*ATTENTION),
        (*WAYS, *(way + LOKR for way in WAYS)),
        kept=LOKR,  # 0.5 to 0.9 GiB less is rehearsed than was measured where blocks are computed again
    ),
    "SimpleTuner/ZImageTransformer2DModel": _of(
        "z_image",
        "ZImageTransformer2DModel",
        ("noise_refiner", "n_refiner_layers"),
        ("context_refiner", "n_refiner_layers"),
        ("layers", "n_layers"),
        ways=(SCALED + ADAPTED, *_offloaded("autocast", "nothing-kept", SCALED + ADAPTED)),
        adapted="layers",
    ),
    "SimpleTuner/QwenImageTransformer2DModel": _of(
        "qwen_image",
        "QwenImageTransformer2DModel",
        ("transformer_blocks", "num_layers"),
        inputs=of_qwen_image,
        ways=("nothing-kept" + FEW,),
    ),
    "SimpleTuner/SD3Transformer2DModel": _of(
        "sd3",
        "SD3Transformer2DModel",
        ("transformer_blocks", "num_layers"),
        inputs=of_sd3,
        configs=SD35_CONFIGS,
        ways=_offloaded(*(way for way in WAYS if way != "input-kept")),
        unlike=("dual_attention_layers", ((13, tuple(range(13))), (11, ()))),
    ),
    "SimpleTuner/Lumina2Transformer2DModel": _of(
        "lumina2",
        "Lumina2Transformer2DModel",
        ("context_refiner", "num_refiner_layers"),
        ("noise_refiner", "num_refiner_layers"),
        ("layers", "num_layers"),
        ends=(*ATTENTION, "to_qkv"),
        configs=({"cap_feat_dim": 2304},),
    ),
    "SimpleTuner/ChromaTransformer2DModel": _of(
        "chroma",
        "ChromaTransformer2DModel",
        ("transformer_blocks", "num_layers"),
        ("single_transformer_blocks", "num_single_layers"),
        ends=(*ATTENTION, "to_qkv"),
        ways=_offloaded("autocast"),
        norms=True,
    ),
    "SimpleTuner/FluxTransformer2DModel": _of(
        "flux",
        "FluxTransformer2DModel",
        ("transformer_blocks", "num_layers"),
        ("single_transformer_blocks", "num_single_layers"),
        ends=(*ATTENTION, "add_k_proj", "add_q_proj", "add_v_proj", "to_add_out"),
        configs=({"guidance_embeds": True},),
    ),
    "SimpleTuner/Krea2Transformer2DModel": _of(
        "krea2",
        "Krea2Transformer2DModel",
        ("text_fusion.layerwise_blocks", "num_layerwise_text_blocks"),
        ("text_fusion.refiner_blocks", "num_refiner_text_blocks"),
        ("transformer_blocks", "num_layers"),
        ways=_offloaded("autocast", "nothing-kept", SCALED),
        norms=True,
    ),
    "SimpleTuner/WanTransformer3DModel": _of(
        "wan",
        "WanTransformer3DModel",
        ("blocks", "num_layers"),
        configs=({}, CONFIG_SMALL, CONFIG_5B),
        ways=_offloaded("autocast"),
    ),
    "SimpleTuner/ErnieImageTransformer2DModel": _of(
        "ernie", "ErnieImageTransformer2DModel", ("layers", "num_layers"), norms=True
    ),
    "SimpleTuner/Flux2Transformer2DModel": _of(
        "flux2",
        "Flux2Transformer2DModel",
        ("transformer_blocks", "num_layers"),
        ("single_transformer_blocks", "num_single_layers"),
        ends=("attn.to_q", "attn.to_k", "attn.to_v", "attn.to_out.0", "attn.to_qkv_mlp_proj"),
        configs=({}, CONFIG_4B, CONFIG_9B),
        norms=True,
    ),
    "SimpleTuner/LTX2VideoTransformer3DModel": _of(
        "ltxvideo2", "LTX2VideoTransformer3DModel", ("transformer_blocks", "num_layers"), norms=True
    ),
    "SimpleTuner/HiDreamImageTransformer2DModel": _of(
        "hidream",
        "HiDreamImageTransformer2DModel",
        ("double_stream_blocks", "num_layers"),
        ("single_stream_blocks", "num_single_layers"),
        inputs=of_hidream,
        configs=(HIDREAM_CONFIG,),
        norms=True,
    ),
    "SimpleTuner/BooguImageTransformer2DModel": _of(
        "boogu_image",
        "BooguImageTransformer2DModel",
        ("context_refiner", "num_refiner_layers"),
        ("noise_refiner", "num_refiner_layers"),
        ("ref_image_refiner", "num_refiner_layers"),
        ("double_stream_layers", "num_double_stream_layers"),
        ("single_stream_layers", "num_layers"),
        inputs=of_boogu,
        configs=(BOOGU_CONFIG,),
        ways=("nothing-kept" + FEW,),
        spared=BOOGU_SPARED,
        norms=True,
    ),
    "SimpleTuner/Ideogram4": OfTrainer(
        _ideogram4,
        of_ideogram4,
        {"layers": "num_layers"},
        left_out=left_out("qkv", "o", "w1", "w2", "w3"),
        ways=_and_before(*WAYS, OF_FILE),
    ),
}
