"""DoRA, LoHa, LoKr and OFT: step for step their reference, through quantized bases, and in their files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from zdoctor.doctor.families.network import network_shapes
from zdoctor.doctor.model.recipe import Network
from zdoctor.doctor.train.kernels.quantized_linear import QuantizedLinear, quantize_rows
from zdoctor.doctor.train.network.lora import add_adapter_removal, add_network, as_saved, trainable_parameters
from zdoctor.doctor.train.weights.training_adapter import LoraDelta
from zdoctor.tests.often import often

from ..patient import go, run_with
from ..test_train import PROMPT, pipeline, pipeline_latent, sampled

OUT, IN = 24, 20
KINDS = {
    "dora": Network("dora", 4, 2.0, scale=0.5),
    "loha": Network("loha", 4, 2.0, scale=0.5),
    "lokr": Network("lokr", 2, 1.0, scale=0.5, lokr_full_rank=False, lokr_factor=4),
    "oft": Network("oft", 4, 0.02),
}
PEFT: dict[str, Any] = {
    "dora": lambda: peft.LoraConfig(r=4, lora_alpha=2, use_dora=True, target_modules=["0"]),
    "loha": lambda: peft.LoHaConfig(r=4, alpha=2, target_modules=["0"]),
    "lokr": lambda: peft.LoKrConfig(r=2, alpha=1, decompose_factor=4, target_modules=["0"]),
}


def linear(seed: int = 0, *, bias: bool = True) -> nn.Linear:
    torch.manual_seed(seed)
    return nn.Linear(IN, OUT, bias=bias)


def wrapped(base: nn.Module, how: Network) -> tuple[nn.Sequential, dict[str, nn.Parameter]]:
    """A model of one Linear with the network on it, begun away from zero, and what is trained."""
    model = nn.Sequential(base).requires_grad_(False)
    parameters = trainable_parameters(add_network(model, {"0": (OUT, IN)}, how, 0), "")
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for value in parameters.values():
            value.add_(torch.randn(value.shape, generator=generator) * 0.1)
    return model, parameters


def dense(weight: Tensor, of: dict[str, Tensor], how: Network) -> Tensor:
    """The weight that each kind makes, by the formulas of their papers."""
    if how.type == "dora":
        changed = weight + how.scale * of["lora_B.weight"] @ of["lora_A.weight"]
        lengths = torch.linalg.vector_norm(changed, dim=1).detach()
        wanted: Tensor = (of["lora_magnitude_vector"] / lengths)[:, None] * changed
        return wanted
    if how.type == "loha":
        first, second = (of[f"hada_w{n}_a"] @ of[f"hada_w{n}_b"] for n in (1, 2))
        return weight + how.scale * first * second
    if how.type == "lokr":
        return weight + how.scale * torch.kron(of["lokr_w1"], of["lokr_w2_a"] @ of["lokr_w2_b"])
    q = of["oft_blocks"] - of["oft_blocks"].mT
    norm = torch.linalg.vector_norm(q)
    q = q * (norm.clamp(max=how.alpha * OUT) / norm)
    one = torch.eye(q.shape[1])
    turns = (one + q) @ torch.inverse(one - q)
    return torch.cat([turn.mT @ rows for turn, rows in zip(turns, weight.chunk(len(turns)), strict=True)])


def steps(model: nn.Module, parameters: list[nn.Parameter]) -> list[float]:
    """The losses of six steps of AdamW on the same random samples."""
    torch.manual_seed(2)
    x, y = torch.randn(6, 2, 3, IN), torch.randn(6, 2, 3, OUT)
    optimizer = torch.optim.AdamW(parameters, lr=1e-2)
    losses: list[float] = []
    for inputs, target in zip(x, y, strict=True):
        loss = (model(inputs) - target).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("kind", PEFT)
def test_step_for_step_it_is_pefts(kind: str) -> None:
    ours, parameters = wrapped(linear(), KINDS[kind])
    theirs = peft.get_peft_model(nn.Sequential(linear()), PEFT[kind]())
    trained = {name: value for name, value in theirs.named_parameters() if value.requires_grad}
    assert len(trained) == len(parameters)
    with torch.no_grad():
        for key, value in parameters.items():
            (own,) = [trained[name] for name in trained if key.removeprefix("0.").removesuffix(".weight") in name]
            own.copy_(value)
    torch.testing.assert_close(
        steps(ours, [*parameters.values()]), steps(theirs, [*trained.values()]), rtol=1e-5, atol=0
    )
    with torch.no_grad():
        torch.testing.assert_close(ours(torch.ones(3, IN)), theirs(torch.ones(3, IN)), rtol=1e-4, atol=1e-5)


class Dense(nn.Module):
    """The weight made anew in each step, and all else left to autograd."""

    def __init__(
        self, weight: Tensor, bias: Tensor | None, parameters: dict[str, nn.Parameter], how: Network
    ) -> None:
        super().__init__()
        self.weight, self.bias, self.how = weight, bias, how
        self.own = {key.removeprefix("0."): nn.Parameter(value.detach().clone()) for key, value in parameters.items()}

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, dense(self.weight, {**self.own}, self.how), self.bias)


@pytest.mark.parametrize("quantization", [None, "int8", "nf4"])
@pytest.mark.parametrize("kind", KINDS)
def test_step_for_step_it_is_the_formula_whatever_the_base(kind: str, quantization: Any) -> None:
    base: Any = linear(bias=kind != "loha")
    weight, bias = base.weight.detach(), base.bias
    if quantization is not None:
        base = QuantizedLinear(*quantize_rows(weight, quantization), bias, IN)
        weight = base.weight().detach()
    ours, parameters = wrapped(base, KINDS[kind])
    reference = Dense(weight, bias, parameters, KINDS[kind])
    expected = steps(reference, [*reference.own.values()])
    torch.testing.assert_close(steps(ours, [*parameters.values()]), expected, rtol=1e-5, atol=0)
    for key, value in parameters.items():
        torch.testing.assert_close(value, reference.own[key.removeprefix("0.")], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_it_begins_as_no_change_and_the_file_holds_it_at_scale_one(kind: str) -> None:
    how, x = KINDS[kind], torch.randn(2, 3, IN)
    model = nn.Sequential(linear()).requires_grad_(False)
    network = add_network(model, {"0": (OUT, IN)}, how, 0)
    torch.testing.assert_close(model(x), linear()(x), rtol=1e-5, atol=1e-6)
    shapes = {key: tuple(value.shape) for key, value in trainable_parameters(network, "").items()}
    assert shapes == network_shapes(how, {"0": (OUT, IN)})
    model, parameters = wrapped(linear(), how)
    file = {key.removeprefix("0."): value for key, value in as_saved(parameters, how).items()}
    alone = Network(how.type, how.rank, 1e9)
    torch.testing.assert_close(
        model(x), nn.functional.linear(x, dense(linear().weight, file, alone), linear().bias), rtol=1e-4, atol=1e-5
    )


def test_a_dora_beside_an_adapter_that_is_taken_out_is_that_of_the_model_without_it() -> None:
    torch.manual_seed(3)
    delta = LoraDelta(torch.randn(2, IN), torch.randn(OUT, 2), 0.1)
    merged, plain = linear(), linear()
    merged.weight.data += delta.scale * delta.up @ delta.down
    model = nn.Sequential(merged).requires_grad_(False)
    (removal,) = add_adapter_removal(model, {"0": delta}, torch.float32)
    parameters = trainable_parameters(add_network(model, {"0": (OUT, IN)}, KINDS["dora"], 0), "")
    removal.active = True
    expected = dense(
        plain.weight, {key.removeprefix("0."): value for key, value in parameters.items()}, KINDS["dora"]
    )
    x = torch.randn(3, IN)
    torch.testing.assert_close(model(x), nn.functional.linear(x, expected, plain.bias), rtol=1e-4, atol=1e-5)


def test_a_dora_in_the_real_pipeline_is_the_trained_model(tiny: Path, circles: Path, tmp_path: Path) -> None:
    from zdoctor.doctor.train.network.lora import lora_targets
    from zdoctor.doctor.train.transformer.load_transformer import build_empty_transformer, fill_transformer

    network = {"type": "dora", "rank": 4, "alpha": 2.0, "scale": 0.5, "start_deviation": 0.5}
    run = run_with(steps=4, quantization=None, learning_rate=2e-2, network=network)
    tensors = load_file(go(run, tiny, circles, tmp_path).lora)
    assert all(key.startswith("transformer.layers.") for key in tensors)

    pipe = pipeline(tiny)
    model = build_empty_transformer(tiny / "transformer")
    cpu = torch.device("cpu")
    fill_transformer(model, tiny / "transformer", quantization="none", adapter={}, dtype=torch.float32, device=cpu)
    own = Network("dora", 4, 4.0)
    parameters = trainable_parameters(add_network(model, lora_targets(model), own, 0), "transformer.")
    assert parameters.keys() == tensors.keys()
    for key, parameter in parameters.items():
        parameter.data.copy_(tensors[key])
    ours, before = sampled(model, tiny, pipe, PROMPT), pipeline_latent(pipe)
    pipe.load_lora_weights(str(tmp_path / "circles.safetensors"))
    after = pipeline_latent(pipe)
    assert (after - before).abs().max() > 1e-2
    torch.testing.assert_close(ours, after, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", often(["dora", "loha", "oft"]))
def test_it_goes_on_bit_for_bit(kind: str, tiny: Path, circles: Path, tmp_path: Path) -> None:
    network = {"type": kind, "rank": 2, "alpha": 1.0, "scale": 1.0}
    once = go(run_with(steps=2, network=network), tiny, circles, tmp_path / "once")
    go(run_with(steps=1, network=network), tiny, circles, tmp_path / "twice")
    again = go(run_with(steps=2, network=network), tiny, circles, tmp_path / "twice")
    assert again.losses == once.losses
    assert Path(again.lora).read_bytes() == Path(once.lora).read_bytes()
