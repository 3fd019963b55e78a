"""Gradients through a quantized base are those of the full-precision model, within the error of the format."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from zdoctor.doctor.families.record.blocks import block_of
from zdoctor.doctor.train.families import family_of
from zdoctor.doctor.train.kernels.quantized_linear import Quantization, QuantizedLinear
from zdoctor.doctor.train.network.lora import add_network, lora_targets, trainable_parameters
from zdoctor.doctor.train.transformer.load_transformer import build_empty_transformer, fill_transformer
from zdoctor.doctor.train.transformer.transformer_blocks import block_names, checkpoint_blocks, optimize_for_cpu
from zdoctor.doctor.train.weights.materialize import replace_module
from zdoctor.tests.flux import DEV, FluxTransformer2DModel

from ..patient import run_with

CPU = torch.device("cpu")
MODELS = ("tiny", "wide_flux")
# Of each model: the tensors of its LoRA, and its latents' channels.
SIZES = {"ZImageTransformer2DModel": (2 * 8 * 2, 16), "FluxTransformer2DModel": (2 * (2 * 14 + 3 * 6), 4)}
KINDS: tuple[Quantization, ...] = ("int8", "float8", "nf4")


def base(folder: Path, kind: Quantization) -> nn.Module:
    model = build_empty_transformer(folder / "transformer")
    fill_transformer(model, folder / "transformer", quantization=kind, adapter={}, dtype=torch.float32, device=CPU)
    return model


def restored(model: nn.Module) -> nn.Module:
    """The same model with plain Linears of the weights that the quantized ones stand for."""
    for name, module in list(model.named_modules()):
        if isinstance(module, QuantizedLinear):
            plain = nn.Linear(module.in_features, module.out_features, bias=module.bias is not None)
            plain.weight = nn.Parameter(module.weight(), requires_grad=False)
            if module.bias is not None:
                plain.bias = nn.Parameter(module.bias, requires_grad=False)
            replace_module(model, name, plain)
    return model


def gradients(model: nn.Module, checkpointed: bool = False) -> dict[str, Tensor]:
    """The gradient of every LoRA tensor, with a LoRA that is no longer zero."""
    network = add_network(model, lora_targets(model), run_with(rank=4).recipe.network, 0)
    family = family_of(model)
    parameters = trainable_parameters(network, family.RECORD.lora_prefix)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for key, parameter in parameters.items():
            if "lora_B" in key:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.02)
    if checkpointed:
        model.enable_gradient_checkpointing(gradient_checkpointing_func=checkpoint_blocks(model, network))  # type: ignore[operator]
    noisy = torch.stack(
        [torch.randn(SIZES[family.RECORD.class_name][1], 8, 8, generator=generator) for _ in range(2)]
    )
    if family.RECORD.class_name == "FluxTransformer2DModel":
        texts = [
            {"states": torch.randn(9, 24, generator=generator), "pooled": torch.randn(20, generator=generator)}
            for _ in range(2)
        ]
        controls = [torch.randn(2, 4, 6, 8, generator=generator)]
    else:
        texts = [{"states": torch.randn(length, 32, generator=generator)} for length in (9, 14)]
        controls = []
    output = family.predict(model, noisy, torch.tensor([0.7, 0.2]), texts, controls=controls)
    output.square().mean().backward()  # type: ignore[no-untyped-call]
    made = {key: parameter.grad for key, parameter in parameters.items()}
    return {key: grad for key, grad in made.items() if grad is not None}


@pytest.fixture(scope="module")
def wide_flux(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four times as wide as the tiny one: there a gradient has so few numbers that its error is any."""
    folder = tmp_path_factory.mktemp("wide")
    sizes = {"num_attention_heads": 4, "attention_head_dim": 16, "axes_dims_rope": [4, 6, 6]}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        FluxTransformer2DModel(**DEV | sizes).save_pretrained(folder / "transformer")
    return folder


@pytest.fixture(scope="module", params=MODELS)
def folder(request: pytest.FixtureRequest) -> Path:
    found: Path = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="module")
def exact(folder: Path) -> dict[str, Tensor]:
    return gradients(base(folder, "none"))


def noisy(folder: Path, kind: Quantization, seed: int) -> nn.Module:
    """The full-precision model with noise in each weight that is as large as the format's error in it."""
    model, quantized = base(folder, "none"), base(folder, kind)
    generator = torch.Generator().manual_seed(seed)
    for name, module in quantized.named_modules():
        if isinstance(module, QuantizedLinear):
            weight = model.get_submodule(name).get_parameter("weight")
            error = (module.weight() - weight).square().mean().sqrt()
            weight.add_(torch.randn(weight.shape, generator=generator) * error)
    return model


def miss(found: dict[str, Tensor], exact: dict[str, Tensor]) -> dict[str, float]:
    """Error of each gradient relative to its length."""
    return {key: float((found[key] - exact[key]).norm() / exact[key].norm()) for key in exact}


@pytest.mark.parametrize("kind", KINDS)
def test_every_gradient_is_within_the_error_of_the_format(
    folder: Path, exact: dict[str, Tensor], kind: Quantization
) -> None:
    """How much a weight's error does to a gradient is the model's own; noise of the same size tells.

    One draw of it is up to twice the mean of three others in one of the gradients, and as large in all together.
    """
    found = miss(gradients(base(folder, kind)), exact)
    draws = [miss(gradients(noisy(folder, kind, seed)), exact) for seed in range(4)]
    expected = {key: sum(draw[key] for draw in draws) / len(draws) for key in exact}
    assert len(exact) in [count for count, _ in SIZES.values()]
    ratios = {key: found[key] / expected[key] for key in exact}
    assert max(ratios.values()) < 2.1, ratios
    assert sum(ratios.values()) / len(ratios) < 1.1
    assert sum(found.values()) < 1.2 * sum(expected.values())


@pytest.mark.parametrize("kind", KINDS)
def test_the_products_themselves_add_no_error(folder: Path, kind: Quantization) -> None:
    found, plain = gradients(base(folder, kind)), gradients(restored(base(folder, kind)))
    for key, grad in plain.items():
        assert (found[key] - grad).norm() <= 2e-5 * grad.norm(), key


@pytest.mark.parametrize("kind", ["none", *KINDS])
def test_checkpointing_changes_no_bit(folder: Path, kind: Quantization) -> None:
    found, again = gradients(base(folder, kind)), gradients(base(folder, kind), checkpointed=True)
    assert found.keys() == again.keys()
    assert all(torch.equal(found[key], again[key]) for key in found)


class Casts(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """How often the numbers at each address are made into those of another dtype."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.times: Counter[int] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._to_copy.default:
            self.times[args[0].data_ptr()] += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("keeps", "again"), [(False, 3), (True, 2)], ids=["on a card", "on a processor"])
def test_how_often_a_step_makes_a_weight_anew(tiny: Path, kind: Quantization, keeps: bool, again: int) -> None:
    model = base(tiny, kind)
    if keeps:
        optimize_for_cpu(model, all_again=True)
    with Casts() as casts:
        gradients(model, checkpointed=True)
    *middle, last = (name for name in block_names(model) if name.startswith("layers."))
    most = {**dict.fromkeys(block_names(model), 1), **dict.fromkeys(middle, again), last: again - 1}
    for name, module in model.named_modules():
        if isinstance(module, QuantizedLinear):
            block = block_of(name, family_of(model).RECORD.blocks)
            # the modulation's input has no gradient, so that it has no backward
            less = "adaLN_modulation" in name and block.startswith("layers.") and not keeps
            assert casts.times[module.codes.data_ptr()] == most[block] - less, name
