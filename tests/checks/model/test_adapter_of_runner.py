"""MDL005 for zdoctor's own runner: it says what the runner's reading of the file says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from zdoctor.checks.model.adapter import adapter_layout_mismatch
from zdoctor.doctor.model import WeightFile
from zdoctor.doctor.model.trainer import RUNNER
from zdoctor.doctor.probe.adapter import probe_adapter
from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.doctor.train.runtime.train_error import TrainError
from zdoctor.doctor.train.transformer.load_transformer import build_empty_transformer
from zdoctor.doctor.train.weights.materialize import linear_shapes
from zdoctor.doctor.train.weights.training_adapter import read_training_adapter
from zdoctor.tests.flux import healthy_flux
from zdoctor.tests.models import NO_HUB, probed, run_of

from .test_adapter_flux import Tensors, kohya, lora, write

NARROW = lora(8)
HALVED = dict(list(lora().items())[:-1])
PEFT = {
    name.replace(".lora_A.", ".lora_A.default.").replace(".lora_B.", ".lora_B.default."): t
    for name, t in lora().items()
}
SCALED = lora() | {"transformer.single_transformer_blocks.0.attn.to_q.alpha": torch.tensor(4.0)}
ELSEWHERE = {name.replace("single_transformer_blocks", "layers"): tensor for name, tensor in lora().items()}
NORM = {
    "transformer.single_transformer_blocks.0.attn.norm_q.lora_A.weight": torch.randn(2, 8),
    "transformer.single_transformer_blocks.0.attn.norm_q.lora_B.weight": torch.randn(8, 2),
}


@pytest.mark.parametrize(
    ("tensors", "said"),
    [
        (lora(), ""),
        (lora(prefix="diffusion_model."), ""),
        (lora(prefix=""), ""),
        (PEFT, ""),
        (SCALED, ""),
        (kohya(), "another model"),
        (ELSEWHERE, "no layer layers.0"),
        (NORM, "no layer single_transformer_blocks.0.attn.norm_q"),
        (NARROW, "another size"),
        (HALVED, "lacks one"),
        ({"transformer.x.diff": torch.zeros(2)}, "x.diff is no part of one"),
        ({}, "no tensor"),
    ],
)
def test_as_the_runner_reads_it(tmp_path: Path, tensors: Tensors, said: str) -> None:
    file = write(tensors, tmp_path)
    run = replace(run_of(healthy_flux(), "flux", assistant_lora_path=str(file)), trainer=RUNNER)
    adapter = probe_adapter(LiveWorld(), run, NO_HUB)
    assert isinstance(adapter, WeightFile)
    findings = list(adapter_layout_mismatch(run, adapter, probed(run)))
    model = build_empty_transformer(healthy_flux() / "transformer")
    if said:
        assert len(findings) == 1 and said in findings[0].text()
        with pytest.raises(TrainError):
            read_training_adapter(file, linear_shapes(model))
    else:
        assert not findings
        assert read_training_adapter(file, linear_shapes(model))
