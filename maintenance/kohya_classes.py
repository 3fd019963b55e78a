"""How classes of musubi-tuner and sd-scripts are rehearsed: a step under autocast, and what both have alike.

Inputs and the LoRA are in 32 bits and the model in 16, or,
quantized, in 8; autocast in bfloat16 stands between them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import checkpoint

from zdoctor.doctor.families.record.steps import WHOLE
from zdoctor.doctor.train.rehearsal.inputs import Batch, Called
from zdoctor.doctor.train.rehearsal.step import Own
from zdoctor.doctor.train.weights.materialize import replace_module
from zdoctor.maintenance.autocast import Autocast

WAYS = ("autocast", "autocast float8")
AUTOCAST = Autocast()
DOUBLE_AND_SINGLE = {"double_blocks": "depth", "single_blocks": "depth_single_blocks"}
_again = checkpoint.checkpoint


@dataclass(frozen=True)
class OfTrainer:
    """A class: how it is built and called, its lists of blocks with what counts them, and its published configs.

    `left_out` finds the Linears of blocks that get no LoRA, `left_out_of_windows` those that get none where
    convolutions of several pixels do; with `everywhere` those outside of blocks get one, too. `ways` are those that a
    step may compute in: "float8" says that frozen weights are in 8 bits (`scaled`, or as they are), "half" that the
    LoRA is in 16, "windows" that convolutions are trained, "full" that attention is computed in full. `alike`: each
    of several pictures holds what one does. Blocks of the list `adapted` have another LoRA, which does not learn.
    torchao leaves the Linears that `spared` finds as they are.
    Of the ways that end in `kept` only a step without checkpointing is written down, the rest being in doubt.
    `unlike` is a key of a config by which blocks differ, with how many of them each of its values makes.
    """

    build: Callable[[Mapping[str, Any]], Any]
    inputs: Callable[[Any, Batch], dict[str, Any]]
    lists: Mapping[str, str]
    configs: tuple[Mapping[str, Any], ...] = ({},)
    left_out: str = ""
    ways: tuple[str, ...] = WAYS
    everywhere: bool = False
    adapted: str = ""
    spared: str = ""
    kept: str = ""
    unlike: tuple[str, tuple[tuple[int, Any], ...]] = ("", ())
    left_out_of_windows: str = ""
    scaled: bool = True
    alike: bool = False

    def excluded(self, way: str) -> str:
        """What finds the Linears without a LoRA."""
        return self.left_out_of_windows if "windows" in way else self.left_out


def own_of_kohya(of: OfTrainer, way: str) -> Own:
    """How one of these classes is rehearsed."""

    def build(config: Mapping[str, Any]) -> Any:
        under_autocast()
        AUTOCAST.is_on = way.startswith("autocast")
        model = of.build(config).to("meta", torch.bfloat16 if AUTOCAST.is_on else torch.float32)
        for block, module in list(model.named_modules()) if "float8" in way else ():
            if WHOLE in of.lists or block.partition(".")[0] in of.lists:
                _put_in_8_bits(model, block, module, of.scaled)
        if way.endswith("full"):
            model.set_use_sdpa(False)
        model.forward = partial(AUTOCAST.computes, model.forward)
        return model

    def inputs(model: Any, batch: Batch, dtype: torch.dtype) -> Called:
        return (), {name: _in(dtype, value) for name, value in of.inputs(model, batch).items()}

    lora = partial(Lora, dtype=torch.bfloat16 if "half" in way else torch.float32)
    return Own(build, inputs, lora=lora, trains=True, windows="windows" in way)


def _in(dtype: torch.dtype, value: Any) -> Any:
    """What a step in 32 bits is given is in 32 bits."""
    if dtype != torch.float32 or not isinstance(value, Tensor) or value.dtype != torch.bfloat16:
        return value
    return value.detach().to(dtype).requires_grad_(value.requires_grad)


def _put_in_8_bits(model: nn.Module, name: str, module: nn.Module, scaled: bool) -> None:
    if scaled and isinstance(module, nn.Linear):
        replace_module(model, name, Float8(module))
    elif not scaled and isinstance(module, nn.Linear | nn.Conv2d):
        module.weight = nn.Parameter(module.weight.detach().to(torch.float8_e4m3fn), requires_grad=False)


def under_autocast() -> None:
    """What classes take of PyTorch does as under autocast, before their modules take it."""
    for module in (torch, torch.amp):
        setattr(module, "autocast", AUTOCAST.turned)  # noqa: B010
    attends = nn.functional.scaled_dot_product_attention
    nn.functional.scaled_dot_product_attention = AUTOCAST.attends(attends)
    setattr(checkpoint, "checkpoint", _checkpoint)  # noqa: B010


def _checkpoint(block: Any, *given: Any, use_reentrant: bool = False, **named: Any) -> Any:
    """The state of the random generator of a device without data cannot be kept; autocast is on again."""
    computes = partial(AUTOCAST.computes, block, **named)
    return _again(computes, *given, use_reentrant=False, preserve_rng_state=False)


class LinearWrapper(nn.Module):
    """A module around a Linear, in its place, with its weight and sizes, for which the classes ask."""

    def __init__(self, base: nn.Module) -> None:
        nn.Module.__init__(self)  # of a Linear no weight is made
        self.base = base

    def __getattr__(self, name: str) -> Any:
        if name in ("weight", "bias", "in_features", "out_features"):
            return getattr(self._modules["base"], name)
        return super().__getattr__(name)


class Lora(LinearWrapper):
    """A Linear or convolution with a LoRA in 32 bits or 16, which is multiplied in the type of autocast."""

    def __init__(
        self, base: nn.Module, shape: tuple[int, int], rank: int, dtype: torch.dtype = torch.float32
    ) -> None:
        super().__init__(base)
        window = base.kernel_size if isinstance(base, nn.Conv2d) else ()
        self.down = nn.Parameter(torch.zeros(rank, shape[1], *window, dtype=dtype))
        self.up = nn.Parameter(torch.zeros(shape[0], rank, *(1 for _ in window), dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.base(x)
        if isinstance(self.base, nn.Conv2d):
            down = nn.functional.conv2d(x, self.down, None, self.base.stride, self.base.padding)
            added = nn.functional.conv2d(down, self.up)
        else:
            added = nn.functional.linear(nn.functional.linear(x, self.down), self.up)
        return found + added * 1.0 * 0.5


class Float8(nn.Linear):
    """A Linear in 8 bits, which are made 16 and scaled before each product."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__(base.in_features, base.out_features, bias=False)
        self.weight = nn.Parameter(base.weight.detach().to(torch.float8_e4m3fn), requires_grad=False)
        self.bias = base.bias
        self.register_buffer("scale", torch.zeros(1, dtype=torch.bfloat16))

    def forward(self, input: Tensor) -> Tensor:
        scale = self.get_buffer("scale")
        return nn.functional.linear(input, self.weight.to(scale.dtype) * scale, self.bias)


def given(model: Any, *shape: int) -> Tensor:
    """What a step that computes again is given requires gradients, as there a block's input must."""
    return torch.zeros(*shape).requires_grad_(model.gradient_checkpointing)


def half(batch: Batch) -> Tensor:
    return torch.full((batch.size,), 0.5)


def flux_of(module: str, config: Mapping[str, Any], **named: Any) -> Any:
    found = import_module(module)
    every = {
        "in_channels": 64,
        "vec_in_dim": 768,
        "context_in_dim": 4096,
        "hidden_size": 3072,
        "mlp_ratio": 4.0,
        "num_heads": 24,
        "depth": 19,
        "depth_single_blocks": 38,
        "axes_dim": [16, 56, 56],
        "theta": 10_000,
        "qkv_bias": True,
        "guidance_embed": True,
        **config,
    }
    return found.Flux(found.FluxParams(**every), **named)


def inputs_of_flux(model: Any, batch: Batch) -> dict[str, Any]:
    image, text = batch.image, batch.text
    return {
        "img": given(model, batch.size, image, model.in_channels),
        "img_ids": torch.zeros(batch.size, image, 3),
        "txt": given(model, batch.size, text, model.txt_in.in_features),
        "txt_ids": torch.zeros(batch.size, text, 3),
        "y": torch.zeros(batch.size, 768),
        "timesteps": half(batch),
        "guidance": half(batch),
    }
