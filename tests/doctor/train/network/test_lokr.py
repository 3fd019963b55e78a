"""A LoKr is the Kronecker product that ai-toolkit trains, and its file loads with that effect elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn

from zdoctor.doctor.families.network import factors
from zdoctor.doctor.train import TrainError
from zdoctor.doctor.train.families import zimage
from zdoctor.doctor.train.network.lokr import LokrLinear
from zdoctor.doctor.train.network.lora import add_network, lora_targets, trainable_parameters
from zdoctor.doctor.train.transformer.load_transformer import build_empty_transformer, fill_transformer

from ..patient import Recorder, go, run_with, written
from ..test_train import CPU, PROMPT, pipeline, pipeline_latent, sampled

SPLIT = written(network__lokr_full_rank=False, network__lokr_factor=4)
LOKR: list[dict[str, Any]] = [
    {"network_type": "lokr"},
    {"network_type": "lokr", "rank": 2, "alpha": 2, "settings": SPLIT},
]


@pytest.mark.parametrize(
    ("size", "factor", "expected"),
    [
        (3840, -1, (60, 64)),
        (10240, -1, (80, 128)),
        (15360, -1, (120, 128)),
        (127, -1, (1, 127)),
        (12, 5, (3, 4)),
        (16, 3, (2, 8)),
        (128, 8, (8, 16)),
        (8, 4, (4, 2)),
        (1, -1, (1, 1)),
    ],
)
def test_sides_are_split_as_in_ai_toolkit(size: int, factor: int, expected: tuple[int, int]) -> None:
    assert factors(size, factor) == expected


@pytest.mark.parametrize(("factor", "rank"), [(-1, None), (4, None), (4, 1), (-1, 2)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_change_is_the_kronecker_product(factor: int, rank: int | None, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    base = nn.Linear(24, 40, bias=False).to(dtype)
    lokr = LokrLinear(base, (40, 24), factor, rank, generator)
    x = torch.randn(2, 5, 24, generator=generator).to(dtype)
    assert torch.equal(lokr(x), base(x))  # one factor starts at zero
    for _, parameter in lokr.named_parameters(recurse=False):
        parameter.data = torch.randn(parameter.shape, generator=generator)
    w = dict(lokr.named_parameters(recurse=False))
    second = w["lokr_w2"] if "lokr_w2" in w else w["lokr_w2_a"] @ w["lokr_w2_b"]
    change = torch.kron(w["lokr_w1"], second).to(dtype)
    assert change.shape == base.weight.shape
    torch.testing.assert_close(
        lokr(x), base(x) + x @ change.T, rtol=2e-2, atol=5e-1 if dtype != torch.float32 else 1e-4
    )


@pytest.mark.parametrize("changes", LOKR, ids=["full", "split"])
def test_the_file_in_the_real_pipeline_is_the_trained_model(
    tiny: Path, circles: Path, tmp_path: Path, changes: dict[str, Any]
) -> None:
    run = run_with(steps=6, quantization=None, learning_rate=2e-2, **changes)
    result = go(run, tiny, circles, tmp_path)
    tensors = load_file(result.lora)
    names = {
        key.removeprefix("diffusion_model.layers.0.attention.to_q.") for key in tensors if ".0.attention.to_q." in key
    }
    assert names == ({"lokr_w1", "lokr_w2_a", "lokr_w2_b"} if "settings" in changes else {"lokr_w1", "lokr_w2"})
    with safe_open(result.lora, framework="pt") as file:
        assert ("ss_network_dim" in file.metadata()) == ("settings" in changes)

    pipe = pipeline(tiny)
    model = build_empty_transformer(tiny / "transformer")
    fill_transformer(model, tiny / "transformer", quantization="none", adapter={}, dtype=torch.float32, device=CPU)
    parameters = trainable_parameters(
        add_network(model, lora_targets(model), run.recipe.network, 0), zimage.RECORD.lora_prefix
    )
    assert parameters.keys() == tensors.keys()
    for key, parameter in parameters.items():
        parameter.data.copy_(tensors[key])
    ours = sampled(model, tiny, pipe, PROMPT)
    before = pipeline_latent(pipe)
    pipe.load_lora_weights(result.lora)
    after = pipeline_latent(pipe)
    assert (after - before).abs().max() > 1e-2
    torch.testing.assert_close(ours, after, rtol=1e-4, atol=1e-4)


def test_a_lokr_learns_and_goes_on_only_as_what_it_was(tiny: Path, circles: Path, tmp_path: Path) -> None:
    recorder = Recorder()
    run = run_with(steps=40, network_type="lokr", timestep_type="weighted", learning_rate=2e-2)
    losses = go(run, tiny, circles, tmp_path, progress=recorder).losses
    assert sum(losses[-10:]) < 0.9 * sum(losses[:10])
    assert any("rank 8 is ignored" in note for note in recorder.notes)
    with pytest.raises(TrainError, match=r"rank full \(LoKr of factor -1\); this run has rank 8"):
        go(run_with(steps=41), tiny, circles, tmp_path)
