"""The numbers of a LoRA without numpy say what torch says of them, for every type, size and place."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from zdoctor.doctor.model import LoraValues, Unknown
from zdoctor.doctor.model.lora import TensorValues
from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.doctor.probe.lora_values import probe_values
from zdoctor.doctor.probe.world.safetensors import read_weight_file
from zdoctor.tests.loras import saved

TYPES = (torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.float8_e4m3fn, torch.float8_e5m2)
IDS = [str(dtype).removeprefix("torch.") for dtype in TYPES]


def values_of(tmp_path: Path, **tensors: Tensor) -> LoraValues:
    file = read_weight_file(LiveWorld(), str(saved(tmp_path / "a.safetensors", tensors)))
    found = probe_values(LiveWorld(), file)
    assert isinstance(found, LoraValues), found
    return found


def compare(known: TensorValues, tensor: Tensor) -> None:
    """What was found of a tensor is what torch says."""
    plain = tensor.double()
    finite = plain[plain.isfinite()].abs()
    assert known.bad == (not bool(plain.isfinite().all()))
    assert known.zero == (not bool(plain.any()))
    largest = float(finite.max()) if finite.numel() else 0.0
    if known.zero:
        assert (known.least, known.most) == (0.0, 0.0)
    else:
        assert known.least <= largest < known.most or (largest == 0.0 and known.least == 0.0)
    if tensor.numel() == 1 and not known.bad:
        assert known.number == float(plain.reshape(-1)[0])


@pytest.mark.parametrize("dtype", TYPES, ids=IDS)
@pytest.mark.parametrize("scale", [1e-7, 1e-3, 0.02, 1.0, 30.0, 400.0, 50000.0])
def test_sizes(tmp_path: Path, dtype: torch.dtype, scale: float) -> None:
    draw = torch.Generator().manual_seed(1)
    tensor = (torch.randn(64, 33, generator=draw).double() * scale).clamp(
        -torch.finfo(dtype).max, torch.finfo(dtype).max
    )
    cast = tensor.to(dtype)
    compare(values_of(tmp_path, x=cast).tensors["x"], cast)


@pytest.mark.parametrize("dtype", TYPES, ids=IDS)
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -3.5, 2.0**-6])
@pytest.mark.parametrize("beside", [0.0, 0.01])
def test_one_number_among_others(tmp_path: Path, dtype: torch.dtype, number: float, beside: float) -> None:
    tensor = torch.full((5, 7), beside)
    tensor[3, 4] = number
    cast = tensor.to(dtype)
    found = values_of(tmp_path, x=cast, one=torch.tensor(number).to(dtype))
    compare(found.tensors["x"], cast)
    compare(found.tensors["one"], torch.tensor(number).to(dtype))


def test_every_bfloat16_and_float16(tmp_path: Path) -> None:
    """Each of the 65,536 numbers, alone in a tensor of zeros' neighbour: none is taken for another."""
    whole = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    for dtype in (torch.bfloat16, torch.float16):
        numbers = whole.view(dtype)[::97].clone()
        found = values_of(tmp_path, **{str(i): number.reshape(1) for i, number in enumerate(numbers)})
        for i, number in enumerate(numbers):
            compare(found.tensors[str(i)], number.reshape(1))


@pytest.mark.parametrize("at", [0, 1 << 19, (1 << 20) - 1, 1 << 20, 3_000_000])
def test_a_large_tensor_is_read_to_its_end(tmp_path: Path, at: int) -> None:
    tensor = torch.zeros(3_000_001, dtype=torch.bfloat16)
    tensor[at] = math.nan
    found = values_of(tmp_path, x=tensor, y=torch.zeros(2_000_001, dtype=torch.float16))
    compare(found.tensors["x"], tensor)
    assert found.tensors["y"].zero


def test_the_largest_of_a_type_is_counted(tmp_path: Path) -> None:
    tensor = torch.full((10,), 0.5)
    tensor[2], tensor[3] = 1e9, -1e9
    for dtype in (torch.float16, torch.float8_e4m3fn, torch.float8_e5m2):
        largest = torch.finfo(dtype).max
        found = values_of(tmp_path, x=tensor.clamp(-largest, largest).to(dtype))
        assert found.tensors["x"].clipped == 2
        assert not found.tensors["x"].bad


def test_integers_are_not_read(tmp_path: Path) -> None:
    """But for a single one, as alpha is."""
    found = values_of(tmp_path, x=torch.ones(3, dtype=torch.int64), alpha=torch.tensor(-16), zero=torch.tensor([0]))
    assert found.unread == ("x",)
    assert (found.tensors["alpha"].number, found.tensors["alpha"].zero) == (-16.0, False)
    assert found.tensors["zero"].zero


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.safetensors", {"x": torch.ones(3)})
    file = read_weight_file(LiveWorld(), str(path))
    path.unlink()
    assert isinstance(probe_values(LiveWorld(), file), Unknown)
