"""Blocks that are computed again, or compiled: fewer numbers kept, the same results."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from zdoctor.doctor.train.kernels.quantized_linear import Quantization, QuantizedLinear
from zdoctor.doctor.train.network.lora import lora_targets
from zdoctor.doctor.train.transformer import transformer_blocks as blocks
from zdoctor.doctor.train.transformer.transformer_blocks import (
    checkpoint_blocks,
    compile_blocks,
    optimize_for_cpu,
    transformer_blocks,
    why_not_compiled,
)

from .test_block_swap import built, gradients, passed


def kept_bytes(model: torch.nn.Module) -> int:
    """What a forward pass keeps for the backward one, but for what a checkpoint keeps to itself."""
    sizes: list[int] = []

    def pack(x: Tensor) -> Tensor:
        sizes.append(x.nbytes)
        return x

    with saved_tensors_hooks(pack, lambda x: x):
        passed(model, 0)
    return sum(sizes)


@pytest.mark.parametrize("interval", [2, 3])
def test_an_interval_keeps_more_and_changes_no_bit(deep: Path, interval: int) -> None:
    kept: dict[int, int] = {}
    found: dict[int, dict[str, Tensor]] = {}
    for each in (1, interval):
        model, parameters, _ = built(deep, "int8")
        again = checkpoint_blocks(model, lora_targets(model), each)
        model.enable_gradient_checkpointing(gradient_checkpointing_func=again)  # type: ignore[operator]
        found[each] = gradients(model, parameters)
        kept[each] = kept_bytes(model)
    assert kept[interval] > 1.5 * kept[1]
    assert all(torch.equal(found[1][key], value) for key, value in found[interval].items())


def test_blocks_without_a_lora_behind_one_keep_no_more_than_others(deep: Path) -> None:
    kept: dict[str, int] = {}
    for without in ("", r"^layers\.[123]\."):
        model, _, _ = built(deep, "int8", without)
        kept[without] = kept_bytes(model)
    assert max(kept.values()) == kept[""]


@pytest.mark.parametrize("kind", ["int8", "nf4"])
def test_what_suits_a_cpu_changes_no_bit_and_keeps_matrices_of_one_block(deep: Path, kind: Quantization) -> None:
    kept: dict[bool, int] = {}
    found: dict[bool, dict[str, Tensor]] = {}
    for suited in (False, True):
        model, parameters, _ = built(deep, kind)
        if suited:
            optimize_for_cpu(model, all_again=True)
        found[suited] = gradients(model, parameters)
        kept[suited] = kept_bytes(model)
    assert all(torch.equal(found[False][key], value) for key, value in found[True].items())
    last = [module for module in transformer_blocks(model)[-1].modules() if isinstance(module, QuantizedLinear)]
    assert 0 < kept[True] - kept[False] <= sum(4 * module.out_features * module.in_features for module in last)


@pytest.mark.parametrize("kind", ["int8", "nf4"])
def test_blocks_are_traced_whole(deep: Path, kind: Quantization) -> None:
    """Everything but the making of kernels, which takes minutes; a part that Dynamo cannot follow would fail."""
    model, _, _ = built(deep, kind)
    plain = passed(model, 0)
    transformer_blocks(model)[-1].compile(backend="eager", fullgraph=True)
    found = passed(model, 0)
    torch.testing.assert_close(found, plain)
    found.mean().backward()  # type: ignore[no-untyped-call]
    torch._dynamo.reset()


@pytest.mark.thorough
def test_no_kind_of_call_is_left_uncompiled(deep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond a limit for each function, which all blocks share, Dynamo says so in the log and compiles no more."""
    import torch._dynamo as dynamo
    from torch._dynamo.utils import counters

    whole = torch.nn.Module.compile
    monkeypatch.setattr(torch.nn.Module, "compile", lambda block: whole(block, backend="eager"))
    model, _, _ = built(deep, "int8")
    dynamo.reset()
    counters.clear()
    with dynamo.config.patch(recompile_limit=2):
        compile_blocks(model)
        with torch.no_grad():
            passed(model, 0)
        passed(model, 0)
    frames = counters["frames"]
    assert frames["ok"] == frames["total"] > 2
    dynamo.reset()


def test_what_compiling_needs_is_asked_for_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    assert "C++ compiler" in why_not_compiled(torch.device("cpu"))
    assert "mps" in why_not_compiled(torch.device("mps"))
    monkeypatch.setattr(blocks, "find_spec", lambda name: None)
    assert why_not_compiled(torch.device("cuda")).endswith("pip install triton")
    monkeypatch.setattr(sys, "platform", "win32")  # for which PyPI has no triton
    assert why_not_compiled(torch.device("cuda")).endswith("pip install triton-windows")
