"""Compiled blocks on a card that is none: Dynamo follows each whole, and nothing in it waits or lies elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from zdoctor.doctor.train.kernels.quantized_linear import Quantization
from zdoctor.tests.doctor.train.card import answers_of, compiled
from zdoctor.tests.doctor.train.full_size import TINY
from zdoctor.tests.doctor.train.graphs import Traced

KLEIN_9B = "flux2_klein_9b in diffusers"  # whose blocks are those of 4B
Way = tuple[str, Quantization]
WAYS: list[Way] = [(name, "int8") for name in TINY if name != KLEIN_9B]


@pytest.mark.thorough
@pytest.mark.skipif(torch.version.cuda is not None, reason="the card without numbers needs a PyTorch without CUDA")
def test_each_kind_of_block_is_one_graph_each_way(tmp_path: Path) -> None:
    """That Dynamo follows a block whole is tried each time, on the CPU, in transformer/test_transformer_blocks.py."""
    asked = []
    for number, (architecture, kind) in enumerate(WAYS):
        folder = tmp_path / str(number)
        TINY[architecture](folder)
        asked.append(Traced(folder, architecture, kind))
    for one, answer in zip(asked, answers_of("graphs", compiled(tmp_path), asked), strict=True):
        for block, seen in answer.items():
            assert seen["graphs"] == 2, (one.architecture, block)
            assert not seen["waiting"] and not seen["elsewhere"], (one.architecture, block, seen)
            assert seen["learnt"] and seen["operations"] > 100
