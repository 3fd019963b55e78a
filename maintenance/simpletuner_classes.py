"""Classes of SimpleTuner (bc8e6ab7) as a step of them is rehearsed: its own transformers, with a LoRA of peft's.

A checkout must be on sys.path. The LoRA is in 16 bits, on the Linears that SimpleTuner takes unless it is told which,
with its dropout of 0.1, which keeps a copy and a mask of what each is given. Autocast in bfloat16 is around all.
"""

from __future__ import annotations

import os
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

from zdoctor.doctor.families.record.steps import WHOLE
from zdoctor.doctor.train.rehearsal.inputs import Batch, Called, inputs_of
from zdoctor.doctor.train.rehearsal.step import Own
from zdoctor.doctor.train.weights.materialize import replace_module
from zdoctor.maintenance.classes import CLASSES
from zdoctor.maintenance.kohya_classes import AUTOCAST, OfTrainer, under_autocast

DROPOUT = 0.1
SD35_CONFIGS = (
    {
        "num_attention_heads": 24,
        "caption_projection_dim": 1536,
        "pos_embed_max_size": 384,
        "qk_norm": "rms_norm",
        "dual_attention_layers": tuple(range(13)),
    },
    {
        "num_attention_heads": 38,
        "caption_projection_dim": 2432,
        "pos_embed_max_size": 192,
        "qk_norm": "rms_norm",
    },
)
ATTENTION = ("to_k", "to_q", "to_v", "to_out.0")


def own_of_simpletuner(of: OfTrainer, way: str) -> Own:
    def build(config: Mapping[str, Any]) -> Any:
        os.environ["SIMPLETUNER_LOG_LEVEL"] = "ERROR"
        under_autocast()
        model = of.build(config).to("meta", torch.bfloat16)
        product = _KEEPING.get(way)
        for block, module in list(model.named_modules()):
            in_blocks = WHOLE in of.lists or block.partition(".")[0] in of.lists
            if product and isinstance(module, nn.Linear) and in_blocks:
                replace_module(model, block, Quantized(module, product))
        model.forward = partial(AUTOCAST.computes, model.forward)
        return model

    def inputs(model: Any, batch: Batch, dtype: torch.dtype) -> Called:
        args, named = inputs_of(model, batch, torch.bfloat16)
        taken = signature(type(model).forward).parameters
        return args, {name: value for name, value in named.items() if name in taken} | of.inputs(model, batch)

    return Own(build, inputs, lora=Lora, trains=True)


class Lora(nn.Module):
    """A Linear with a LoRA as peft has it (peft/tuners/lora/layer.py)."""

    def __init__(self, base: nn.Module, shape: tuple[int, int], rank: int) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Parameter(torch.zeros(rank, shape[1], dtype=torch.bfloat16))
        self.up = nn.Parameter(torch.zeros(shape[0], rank, dtype=torch.bfloat16))

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.base(x)
        dropped = torch.native_dropout(x.to(self.down.dtype), DROPOUT, True)[0]
        added = nn.functional.linear(nn.functional.linear(dropped, self.down), self.up)
        return (found + added * 1.0).to(found.dtype)

    def __getattr__(self, name: str) -> Any:
        """The classes ask a Linear for its weight."""
        if name in ("weight", "bias", "in_features", "out_features"):
            return getattr(self._modules["base"], name)
        return super().__getattr__(name)


class _Sdnq(torch.autograd.Function):
    """SDNQ's product in 8 bits: keeps nothing, and answers in the type that it is given (sdnq 0.2.8, linear_int8)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, codes: Tensor) -> Tensor:
        ctx.codes, ctx.dtype = codes, x.dtype
        given = torch.empty(x.shape, dtype=torch.int8)
        out = torch.empty(*x.shape[:-1], codes.shape[0], dtype=x.dtype)
        del given
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        gradient, codes = gradients[0], ctx.codes
        whole = torch.empty_like(codes, dtype=torch.float32)
        again, given = torch.empty_like(codes), torch.empty_like(gradient, dtype=torch.int8)
        found = gradient.new_empty(*gradient.shape[:-1], codes.shape[1])
        turned = torch.empty_like(found)  # by the Hadamard matrix, out of place
        del whole, again, given, found
        return turned, None


class _Kept(torch.autograd.Function):
    """Keeps its input though the weight is frozen, as Quanto's and SimpleTuner's own for torchao do."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, codes: Tensor) -> Tensor:
        ctx.save_for_backward(x, codes)
        return nn.functional.linear(x, codes.to(x.dtype))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return gradients[0] @ ctx.saved_tensors[1].to(gradients[0].dtype), None


def _copied(x: Tensor, codes: Tensor) -> Tensor:
    """Weights are made 16 bits for each product, and autograd keeps these."""
    half = codes.to(torch.float32).to(torch.bfloat16)
    return nn.functional.linear(x, half)


_KEEPING: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "nothing-kept": _Sdnq.apply,
    "input-kept": _Kept.apply,
    "copy-kept": _copied,
}


class Quantized(nn.Linear):
    """A Linear whose frozen weights have 8 bits, and what it keeps for backward."""

    def __init__(self, base: nn.Linear, product: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__(base.in_features, base.out_features, bias=False)
        self.weight = nn.Parameter(base.weight.detach().to(torch.int8), requires_grad=False)
        self.bias = base.bias
        self.product = product

    def forward(self, input: Tensor) -> Tensor:
        is_one = input.dim() == 2  # a row for each picture: with fewer than 32 SDNQ multiplies in 16 bits
        out = (_copied if is_one else self.product)(input, self.weight)
        return out if self.bias is None else out + self.bias.to(out.dtype)


def left_out(*ends: str) -> str:
    """Finds the Linears whose names end in none of these."""
    words = "|".join(end.replace(".", r"\.") for end in ends or ATTENTION)
    return rf"^(?!(?:.*\.)?(?:{words})$)"


def of_module(module: str, name: str, config: Mapping[str, Any]) -> Any:
    """The class of a family's transformer.py, without what its folder imports beside that."""
    models = import_module("simpletuner.helpers.models")
    folder = f"{models.__name__}.{module}"
    package = sys.modules.setdefault(folder, ModuleType(folder))
    package.__path__ = [f"{path}/{module}" for path in models.__path__]
    return getattr(import_module(f"{folder}.transformer"), name)(**config)


def nothing(model: Any, batch: Batch) -> dict[str, Any]:
    return {}


WAYS = ("autocast", *_KEEPING)


def _of_qwen_image(model: Any, batch: Batch) -> dict[str, Any]:
    """How long a prompt is is read out of the mask: that one has numbers."""
    vars(sys.modules[type(model).__module__])["compute_text_seq_len_from_mask"] = _as_long_as_all
    mask = torch.ones(batch.size, batch.text, dtype=torch.int64, device="cpu") if batch.size > 1 else None
    return {"encoder_hidden_states_mask": mask, "txt_seq_lens": [batch.text] * batch.size}


def _as_long_as_all(states: Tensor, mask: Tensor | None) -> tuple[int, None, Tensor | None]:
    return states.shape[1], None, mask


def _of(
    module: str,
    name: str,
    *lists: tuple[str, str],
    ends: tuple[str, ...] = ATTENTION,
    inputs: Callable[[Any, Batch], dict[str, Any]] = nothing,
    configs: tuple[Mapping[str, Any], ...] = ({},),
) -> OfTrainer:
    build = partial(of_module, module, name)
    return OfTrainer(build, inputs, dict(lists), configs, left_out(*ends), WAYS)


OF_SIMPLETUNER: Mapping[str, OfTrainer] = {
    "SimpleTuner/UNet2DConditionModel": OfTrainer(
        lambda config: UNet2DConditionModel(**config),
        nothing,
        {WHOLE: ""},
        next(source.configs for source in CLASSES if source.name == "UNet2DConditionModel"),
        left_out(*ATTENTION),
        WAYS[:1],
    ),
    "SimpleTuner/ZImageTransformer2DModel": _of(
        "z_image",
        "ZImageTransformer2DModel",
        ("noise_refiner", "n_refiner_layers"),
        ("context_refiner", "n_refiner_layers"),
        ("layers", "n_layers"),
    ),
    "SimpleTuner/QwenImageTransformer2DModel": _of(
        "qwen_image",
        "QwenImageTransformer2DModel",
        ("transformer_blocks", "num_layers"),
        inputs=_of_qwen_image,
    ),
    "SimpleTuner/SD3Transformer2DModel": _of(
        "sd3",
        "SD3Transformer2DModel",
        ("transformer_blocks", "num_layers"),
        configs=SD35_CONFIGS,
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
        "krea2", "Krea2Transformer2DModel", ("transformer_blocks", "num_layers")
    ),
}
