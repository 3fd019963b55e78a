"""Blocks that come to the device for their turn: the same numbers, never more than two there, each one in time."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from zdoctor.doctor.train.families import zimage
from zdoctor.doctor.train.kernels.quantized_linear import Quantization
from zdoctor.doctor.train.network.lora import add_network, lora_targets, trainable_parameters
from zdoctor.doctor.train.transformer import block_swap as module
from zdoctor.doctor.train.transformer.block_swap import BlockSwap, spread, swap_blocks, swap_share
from zdoctor.doctor.train.transformer.load_transformer import build_empty_transformer, fill_transformer
from zdoctor.doctor.train.transformer.transformer_blocks import (
    backward_blocks,
    checkpoint_blocks,
    transformer_blocks,
    use_float16,
)

from ..patient import run_with

CPU = torch.device("cpu")


def built(
    folder: Path, kind: Quantization, left_out: str = ""
) -> tuple[nn.Module, dict[str, nn.Parameter], list[nn.Module]]:
    """The tiny model with a checkpointed LoRA that is no longer zero, and the blocks that backward goes through."""
    model = build_empty_transformer(folder / "transformer")
    fill_transformer(model, folder / "transformer", quantization=kind, adapter={}, dtype=torch.float32, device=CPU)
    shapes = lora_targets(model, left_out)
    if kind == "float16":
        use_float16(model)
    parameters = trainable_parameters(
        add_network(model, shapes, run_with(rank=4).recipe.network, 0), zimage.RECORD.lora_prefix
    )
    for parameter in parameters.values():
        parameter.data += 0.01
    model.enable_gradient_checkpointing(gradient_checkpointing_func=checkpoint_blocks(model, shapes))  # type: ignore[operator]
    return model, parameters, backward_blocks(model, shapes)


def passed(model: nn.Module, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    noisy = torch.randn(1, 16, 8, 8, generator=generator)
    states = torch.randn(9, 32, generator=generator)
    return zimage.predict(model, noisy, torch.tensor([0.4]), [{"states": states}])


def gradients(model: nn.Module, parameters: dict[str, nn.Parameter]) -> dict[str, Tensor]:
    """Of two passes, with two in between that need none."""
    passed(model, 0).square().mean().backward()  # type: ignore[no-untyped-call]
    with torch.no_grad():
        passed(model, 2)
        passed(model, 3)
    passed(model, 1).square().mean().backward()  # type: ignore[no-untyped-call]
    return {key: p.grad for key, p in parameters.items() if p.grad is not None}


@pytest.mark.parametrize("kind", ["none", "int8", "float8", "nf4", "float16"])
@pytest.mark.parametrize("share", [1.0, 0.5])
def test_every_bit_is_the_same(deep: Path, kind: Quantization, share: float) -> None:
    model, parameters, _ = built(deep, kind)
    plain = gradients(model, parameters)
    model, parameters, _ = built(deep, kind)
    size = sum(
        p.numel() * p.element_size() for b in transformer_blocks(model) for p in b.parameters() if not p.requires_grad
    )
    assert swap_share(model, lora_targets(model), share, CPU) == pytest.approx(share * size, rel=0.1)
    found = gradients(model, parameters)
    assert len(plain) == len(parameters) and found.keys() == plain.keys()
    assert all(torch.equal(found[key], plain[key]) for key in plain)


def test_blocks_without_a_lora_behind_one_are_computed_again_too(deep: Path) -> None:
    """sd-scripts' train_blocks=double with blocks_to_swap: backward goes through all that follows."""
    without = r"^layers\.[123]\."
    model, parameters, _ = built(deep, "int8", without)
    plain = gradients(model, parameters)
    model, parameters, back = built(deep, "int8", without)
    assert back == transformer_blocks(model)[2:]
    swap_share(model, lora_targets(model, without), 1.0, CPU)
    found = gradients(model, parameters)
    assert found and all(torch.equal(found[key], plain[key]) for key in plain)


def test_each_block_is_there_a_block_ahead(deep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    story: list[str] = []
    fetch, turn = BlockSwap._fetch, BlockSwap._turn

    def fetched(self: BlockSwap, index: int, place: int) -> None:
        story.append(f"fetch {index}")
        fetch(self, index, place)

    def turned(self: BlockSwap, index: int, *_: Any) -> None:
        story.append(f"run {index}")
        turn(self, index)
        places = {place.untyped_storage().data_ptr() for place in self.places}
        here = [
            {part.module.get_parameter(part.name).untyped_storage().data_ptr() in places for part in parts}
            for parts in self.parts
        ]
        assert all(len(where) == 1 for where in here) and sum(True in where for where in here) <= 2
        assert here[index] == {True}

    monkeypatch.setattr(BlockSwap, "_fetch", fetched)
    monkeypatch.setattr(BlockSwap, "_turn", turned)
    model, _, back = built(deep, "int8")
    blocks = transformer_blocks(model)
    first = blocks.index(back[0])
    swap_blocks(model, blocks, CPU, first)
    last = len(blocks) - 1
    assert (first, last) == (2, 5)
    forward = [line for index in range(1, last) for line in (f"run {index}", f"fetch {index + 1}")]
    backward = ["run 4", "fetch 3", "run 3", "fetch 2", "run 2", "fetch 0"]
    passed(model, 0).mean().backward()  # type: ignore[no-untyped-call]
    assert story == ["run 0", "fetch 0", "fetch 1", *forward, "run 5", *backward]
    story.clear()
    passed(model, 0).mean().backward()  # type: ignore[no-untyped-call]
    assert story == ["run 0", "fetch 1", *forward, "run 5", *backward]  # nothing is waited for any more


def test_weights_that_are_overwritten_too_early_are_noticed(deep: Path) -> None:
    """Without checkpointing, backward needs what is no longer there."""
    model, _, _ = built(deep, "int8")
    model.disable_gradient_checkpointing()  # type: ignore[operator]
    swap_blocks(model, transformer_blocks(model), CPU)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        passed(model, 0).mean().backward()  # type: ignore[no-untyped-call]


def test_a_share_of_the_blocks_is_spread_evenly() -> None:
    assert spread(34, 1.0) == list(range(34))
    assert spread(6, 0.5) == [0, 2, 4]
    assert spread(30, 0.1) == [0, 10, 20]
    assert spread(4, 0.0) == []


def test_one_block_at_a_time_is_in_host_memory_twice(deep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, _, blocks = built(deep, "int8")
    before = [[weakref.ref(p) for p in block.parameters() if not p.requires_grad] for block in blocks]
    plain, done = module._at_home, [0]

    def watched(*given: Any) -> Tensor:
        assert all(tensor() is None for held in before[: done[0]] for tensor in held)
        done[0] += 1
        return plain(*given)

    monkeypatch.setattr(module, "_at_home", watched)
    swap_blocks(model, blocks, CPU)
    assert done[0] == len(blocks) > 1


def test_what_was_pinned_is_let_go_before_its_memory_is(deep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the pages of an earlier run of the config stay taken, and CUDA copies them for what lies there next."""
    story: list[tuple[str, int]] = []

    class Card:
        def cudart(self) -> Card:
            return self

        def cudaHostRegister(self, address: int, size: int, flags: int) -> int:
            story.append(("pinned", address))
            return 0

        def cudaHostUnregister(self, address: int) -> int:
            story.append(("let go", address))
            return 0

        def synchronize(self, device: torch.device) -> None: ...

    monkeypatch.setattr(module, "CUDA", Card())
    model, _, blocks = built(deep, "int8")
    homes = [module._at_home(module._parts(block), torch.device("cuda")) for block in blocks]
    pinned = [("pinned", home.data_ptr()) for home in homes]
    assert story == pinned
    model.to("meta")
    del model, blocks, homes
    gc.collect()
    assert sorted(story[len(pinned) :]) == sorted(("let go", address) for _, address in pinned)
