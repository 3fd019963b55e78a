"""Attention in plain products is torch's, no further from the exact one, and stands in its place in every block."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers.models.attention_dispatch import AttentionBackendName, _AttentionBackendRegistry
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from zdoctor.doctor.train.kernels import attention
from zdoctor.doctor.train.kernels.attention import VARIABLE, matmul_attention, use_native_attention
from zdoctor.doctor.train.network.lora import lora_targets
from zdoctor.doctor.train.transformer import transformer_blocks as blocks
from zdoctor.doctor.train.transformer.transformer_blocks import backward_blocks, optimize_for_cpu, transformer_blocks

from ..patient import Recorder, go, run_with
from ..transformer.test_quantized_gradients import base, gradients

# The rounding of bfloat16.
ERROR = 2.0**-8


def outcome(attend: Any, operands: list[Tensor], upon: Tensor, dtype: torch.dtype, **options: Any) -> list[Tensor]:
    """The output and the gradients of queries, keys and values, of strides as the models have them."""
    leaves = [operand.to(dtype).transpose(1, 2).requires_grad_() for operand in operands]
    output = attend(*leaves, **options)
    output.backward(upon.to(dtype))
    return [output.detach().double(), *(leaf.grad.double() for leaf in leaves if leaf.grad is not None)]


def drawn(tokens: int, keys: int, heads: int, width: int, size: float) -> tuple[list[Tensor], Tensor]:
    """Operands, and what the output's gradient is; queries and keys are normed, as in the models, to `size`."""
    generator = torch.Generator().manual_seed(tokens)

    def normal(length: int) -> Tensor:
        return torch.randn(2, length, heads, width, generator=generator)

    query, key = (torch.nn.functional.normalize(normal(n), dim=-1) * width**0.5 * size for n in (tokens, keys))
    return [x.bfloat16() for x in (query, key, normal(keys))], normal(tokens).transpose(1, 2).bfloat16()


@pytest.mark.parametrize("part", [1, 5000, 1 << 20], ids=["head by head", "some heads", "at once"])
@pytest.mark.parametrize(
    ("tokens", "keys", "heads", "width"), [(96, 96, 4, 32), (33, 33, 3, 16), (1, 1, 1, 8), (40, 70, 2, 64)]
)
@pytest.mark.parametrize("size", [0.3, 1.0, 1.5])
def test_it_is_as_near_to_the_exact_one_as_the_kernel(
    tokens: int, keys: int, heads: int, width: int, size: float, part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "PART", part)
    operands, upon = drawn(tokens, keys, heads, width, size)
    exact = outcome(scaled_dot_product_attention, operands, upon, torch.float64)
    kernel = outcome(scaled_dot_product_attention, operands, upon, torch.bfloat16)
    found = outcome(matmul_attention, operands, upon, torch.bfloat16)
    for mine, torchs, right in zip(found, kernel, exact, strict=True):
        norm = right.norm()
        assert (mine - right).norm() <= 1.2 * (torchs - right).norm() + ERROR * norm


def test_a_scale_is_followed() -> None:
    operands, upon = drawn(20, 20, 2, 16, 1.0)
    exact = outcome(scaled_dot_product_attention, operands, upon, torch.float64, scale=0.5)
    found = outcome(matmul_attention, operands, upon, torch.bfloat16, scale=0.5)
    assert all((mine - right).norm() < 4 * ERROR * right.norm() for mine, right in zip(found, exact, strict=True))


@pytest.mark.parametrize("why", ["mask", "causal", "large", "float32"])
def test_what_it_is_not_made_for_is_the_kernels(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    operands, upon = drawn(20, 20, 2, 16, 1.0)
    options: dict[str, Any] = {"is_causal": True} if why == "causal" else {}
    if why == "mask":
        options["attn_mask"] = torch.arange(20)[None, None, None, :] < 12
    if why == "large":
        monkeypatch.setattr(attention, "KEPT", 1)
    dtype = torch.float32 if why == "float32" else torch.bfloat16
    plain = outcome(scaled_dot_product_attention, operands, upon, dtype, **options)
    found = outcome(matmul_attention, operands, upon, dtype, **options)
    assert all(torch.equal(one, other) for one, other in zip(plain, found, strict=True))


@pytest.mark.parametrize("family", ["tiny", "flux"])
def test_it_stands_in_the_place_of_the_kernel_in_every_block(
    family: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when a checkpoint runs a block again; nowhere else, nor after a block that failed."""
    called: list[Any] = []

    def counted(*args: Any, **options: Any) -> Tensor:
        called.append(None)
        return matmul_attention(*args, **options)

    monkeypatch.setattr(blocks, "matmul_attention", counted)
    model = base(request.getfixturevalue(family), "int8")
    optimize_for_cpu(model, all_again=True)
    gradients(model, checkpointed=True)
    again = len(backward_blocks(model, lora_targets(model))) - 1
    assert len(called) == len(transformer_blocks(model)) + again
    assert scaled_dot_product_attention is torch.nn.functional.scaled_dot_product_attention
    with pytest.raises(TypeError):
        transformer_blocks(model)[0]()
    assert scaled_dot_product_attention is torch.nn.functional.scaled_dot_product_attention


@pytest.mark.parametrize("name", ["tiny", "flux"])
def test_another_attention_of_diffusers_is_not_asked_for(
    name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variable makes diffusers take FlashAttention, here without its package: the model itself then fails."""
    folder = request.getfixturevalue(name)
    plain = gradients(base(folder, "int8"))
    monkeypatch.setenv(VARIABLE, "flash")
    monkeypatch.setattr(_AttentionBackendRegistry, "_active_backend", AttentionBackendName.FLASH)
    with pytest.raises(TypeError, match="not callable"):
        gradients(base(folder, "int8"))
    model = base(folder, "int8")
    assert use_native_attention(model) == "flash"
    found = gradients(model)
    assert found.keys() == plain.keys() and all(torch.equal(found[key], plain[key]) for key in plain)


def test_a_run_says_that_it_is_not(
    tiny: Path, circles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "sage")
    said = Recorder()
    go(run_with(steps=1, batch_size=1), tiny, circles, tmp_path, progress=said)
    assert any(f"{VARIABLE}=sage has no effect" in note for note in said.notes)
