"""A step of the real transformer with a LoRA, on tensors without data: what each block keeps, and the peak."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ...families import family_with
from ...families.record.blocks import is_within
from ...families.record.steps import EIGHT_BITS, WHOLE
from ...model.recipe import Network
from ..kernels import attention, float16
from ..kernels.attention import torch_attention
from ..kernels.quantized_linear import QuantizedLinear, storage_of
from ..network.lora import add_network
from ..transformer.transformer_blocks import use_float16
from ..weights.materialize import replace_module
from .alive import Alive
from .fused import rms_norm_in_one_kernel
from .inputs import Batch, Called, inputs_of
from .watch import Held, Watch

OPTIMIZER = "optimizer state"
# The types that a step computes in. "copied": in bfloat16, and the LoRA in float32 on copies of what it is given, as
# ai-toolkit has it; "bfloat16" and "float32": all alike, as our own LoRA and peft's under autocast; our own runner's
# "eight bits": in bfloat16, for which Linears of 8 bits make a matrix each time; and "float16": they multiply in
# float16, all else in float32, as on a card without bfloat16.
WAYS = ("copied", "bfloat16", "float32", "float16", EIGHT_BITS)


@dataclass(frozen=True)
class Own:
    """A class that is not of diffusers: how it is built from a config, and what it is called with.

    `lora` makes its Linears trained ones, where no way of ours does, with `windows` convolutions of several pixels,
    too; `trains` says that it computes again only while it is told that it trains.
    """

    build: Callable[[Mapping[str, Any]], Any]
    inputs: Callable[[Any, Batch, torch.dtype], Called]
    lora: Callable[[nn.Module, tuple[int, int], int], nn.Module] | None = None
    trains: bool = False
    windows: bool = False


@dataclass(frozen=True)
class Step:
    """What is rehearsed: a transformer of `class_name` and `config`, its blocks' lists in the order they run.

    A LoRA covers the Linears of the lists `trained`; of a model without lists ("" for all of it) its convolutions of
    one pixel, too. `way` is one of WAYS. The Linears of the lists `quantized` have 8 bits, of all `blocks` where they
    multiply in float16, and in "eight bits". `own` is for a class of a trainer.
    """

    class_name: str
    config: Mapping[str, Any]
    blocks: Sequence[str]
    trained: Sequence[str]
    batch: Batch
    network: Network
    way: str = "bfloat16"
    quantized: Sequence[str] = ()
    checkpointing: bool = True
    own: Own | None = None


class CopyingLora(nn.Module):
    """A Linear with a LoRA that multiplies in float32, on a copy of what it is given; or such a convolution."""

    def __init__(self, base: nn.Module, shape: tuple[int, int], rank: int) -> None:
        super().__init__()
        self.base = base
        self.lora_A = nn.Parameter(torch.zeros(rank, shape[1], dtype=torch.float32))
        self.lora_B = nn.Parameter(torch.zeros(shape[0], rank, dtype=torch.float32))
        self.register_buffer("scale", torch.ones((), dtype=torch.float32))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.base(x)
        times = _pixelwise if x.dim() == 4 and isinstance(self.base, nn.Conv2d) else nn.functional.linear
        added = times(times(x.to(self.lora_A.dtype), self.lora_A), self.lora_B) * self.get_buffer("scale")
        return y + (added * self.get_buffer("scale")).to(y.dtype)


def _pixelwise(x: Tensor, weight: Tensor) -> Tensor:
    return nn.functional.conv2d(x, weight[:, :, None, None])


@contextmanager
def without_data() -> Iterator[None]:
    """Tensors that are made have no data (the meta device), and no Linear is filled with numbers.

    Attention is then computed in full, which no card does: it gets a kernel that keeps what the cards' kernels keep,
    and rms_norm one as theirs. That device has no autocast, which classes turn off.
    """
    reset, autocast = nn.Linear.reset_parameters, torch.autocast
    nn.Linear.reset_parameters = lambda self: None  # type: ignore[method-assign]
    setattr(torch, "autocast", lambda *how, **named: nullcontext())  # noqa: B010
    _put_attention(_attention)
    try:
        with torch.device("meta"), rms_norm_in_one_kernel():
            yield
    finally:
        nn.Linear.reset_parameters = reset  # type: ignore[method-assign]
        setattr(torch, "autocast", autocast)  # noqa: B010
        _put_attention(torch_attention)
        torch.set_default_dtype(torch.float32)


def _put_attention(made: Callable[..., Tensor]) -> None:
    nn.functional.scaled_dot_product_attention = made
    for module in (attention, float16):
        vars(module)["torch_attention"] = made


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Keeps its inputs, its output and a number for each row, as flash and memory-efficient attention do."""
    if attn_mask is not None and (attn_mask.dtype == torch.bool or attn_mask.device != query.device):
        attn_mask = torch.zeros(attn_mask.shape, dtype=query.dtype, device=query.device)
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    found: Tensor = kernel(query, key, value, dropout_p, is_causal, attn_mask=attn_mask, scale=scale)[0]
    return found


def built(step: Step) -> Any:
    """The transformer with its LoRA."""
    torch.set_default_dtype(dtype_of(step))
    build = step.own.build if step.own else partial(_of_diffusers, step.class_name)
    model = build(step.config).train(step.own is not None and step.own.trains).requires_grad_(False)
    torch.set_default_dtype(torch.float32)
    windows = step.own is not None and step.own.windows
    every = {name: module for name, module in model.named_modules() if _is_linear(module, windows)}
    covered = (*step.blocks, *step.trained)
    linears = {name: module for name, module in every.items() if is_within(f"{name}.weight", covered)}
    quantized = step.blocks if step.way in ("float16", EIGHT_BITS) else step.quantized
    if WHOLE in quantized:
        quantized = family_with(step.class_name).quantized_blocks
    for name, module in every.items():
        if is_within(f"{name}.weight", quantized):
            rows, columns = module.weight.shape
            storage = storage_of("int8", (rows, columns)).values()
            codes, scale, outliers = (torch.empty(shape, dtype=dtype) for dtype, shape in storage)
            bias = None if module.bias is None else module.bias.data
            replace_module(model, name, QuantizedLinear(codes, scale, outliers, bias, columns))
    if step.way == "float16":
        use_float16(model)
    shapes = {name: tuple(one.weight.shape) for name, one in linears.items()}
    shapes = {name: shape for name, shape in shapes.items() if is_within(f"{name}.weight", step.trained)}
    if step.network.excluded:
        shapes = {name: shape for name, shape in shapes.items() if not re.search(step.network.excluded, name)}
    lora = step.own.lora if step.own and step.own.lora else CopyingLora if step.way == "copied" else None
    if lora is not None:
        for name, shape in shapes.items():
            replace_module(model, name, lora(model.get_submodule(name), (shape[0], shape[1]), step.network.rank))
    else:
        add_network(model, shapes, step.network, 0)
    if step.checkpointing and step.own:
        model.enable_gradient_checkpointing()
    elif step.checkpointing:
        model.enable_gradient_checkpointing(gradient_checkpointing_func=_again)
    return model


def _of_diffusers(class_name: str, config: Mapping[str, Any]) -> Any:
    return getattr(import_module("diffusers"), class_name)(**config)


def _is_linear(module: nn.Module, windows: bool) -> bool:
    is_taken = isinstance(module, nn.Conv2d) and (windows or module.kernel_size == (1, 1))
    return is_taken or isinstance(module, nn.Linear)


def dtype_of(step: Step) -> torch.dtype:
    return torch.float32 if step.way.startswith("float") else torch.bfloat16


def _again(block: nn.Module, *inputs: Any) -> Any:
    return checkpoint(block, *inputs, use_reentrant=False, preserve_rng_state=False)


def rehearsed(
    step: Step, *, draws: bool = False, optimizer: Callable[[list[Any]], Any] | None = None, steps: int = 1
) -> Held:
    """A step, or with an optimizer several, of which the last counts; with `draws` a pass without gradients first."""
    held = Held()
    with without_data():
        model = built(step)
        parameters = [p for p in model.parameters() if p.requires_grad]
        optimize = optimizer(parameters) if optimizer else None
        with Alive() as alive:
            frozen = (t for t in (*model.parameters(), *model.buffers()) if not t.requires_grad)
            alive.add_all(frozen, "transformer")
            alive.add_all(parameters, "LoRA weights")
            held.static = alive.now
            alive.label = "inputs"
            given = step.own.inputs if step.own else inputs_of
            args, named = given(model, step.batch, dtype_of(step))
            alive.again()
            if draws:
                alive.label = "drawing"
                with torch.no_grad():
                    model(*args, **named)
                held.drawing = alive.trail
            watch = Watch(model, [name for name in step.blocks if name], alive, held)
            for _ in range(steps):
                _one(model, args, named, alive, watch, optimize)
            held.whole = alive.trail
    held.reserved, held.allocated = alive.allocator.most_reserved, alive.allocator.most_allocated
    held.peak, held.at_peak = alive.peak, {label: size for label, size in alive.at_peak.items() if size}
    return held


def _plainly(run: Callable[..., Any], given: Tensor) -> Any:
    return run(given)


def rehearsed_vae(
    class_name: str, config: Mapping[str, Any], side: int, computes: Callable[..., Any] = _plainly
) -> tuple[int, int]:
    """Bytes at the peak of encoding and of decoding a square picture in 16 bits, beside the weights.

    `computes` is how the VAE is called.
    """
    with without_data():
        torch.set_default_dtype(torch.bfloat16)
        model = getattr(import_module("diffusers"), class_name)(**config).eval().requires_grad_(False)
        frames = (1,) if any(isinstance(module, nn.Conv3d) for module in model.modules()) else ()
        with Alive() as alive, torch.no_grad():
            alive.add_all((*model.parameters(), *model.buffers()), "VAE")
            found = []
            given = torch.zeros(1, 3, *frames, side, side)
            for run in (model.encode, model.decode):
                alive.again()
                before = alive.now
                out = computes(run, given)
                found.append(alive.peak - before)
                given = out.latent_dist.mean.clone() if run == model.encode else given
                del out
    return found[0], found[1]


def _one(model: Any, args: Any, named: Any, alive: Alive, watch: Watch, optimize: Any) -> None:
    alive.again()
    watch.begin()
    out = model(*args, **named)
    out = out[0] if isinstance(out, tuple) else out
    out = torch.stack([one.float() for one in out]) if isinstance(out, list) else out.float()
    loss = nn.functional.mse_loss(out, torch.zeros_like(out))
    del out
    alive.label = "backward"
    torch.autograd.backward(loss)
    del loss
    if optimize is not None:
        alive.label = OPTIMIZER
        optimize.step()
        optimize.zero_grad(set_to_none=True)
