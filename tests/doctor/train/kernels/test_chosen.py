"""What is said to compute a step is what the loaded layers have."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from zdoctor.doctor.train.kernels import chosen
from zdoctor.doctor.train.kernels.chosen import chosen_kernels
from zdoctor.doctor.train.kernels.float16 import multiply_in_float16
from zdoctor.doctor.train.kernels.quantized_linear import QuantizedLinear, quantize_rows

CPU = torch.device("cpu")


def model(kind: Any) -> nn.Module:
    if kind == "none":
        return nn.Sequential(nn.Linear(64, 8))
    return nn.Sequential(QuantizedLinear(*quantize_rows(torch.randn(8, 64), kind), None, 64))


@pytest.mark.parametrize(
    ("kind", "dtype", "scaled", "compiled", "told"),
    [
        ("none", torch.bfloat16, False, False, "bfloat16"),
        ("int8", torch.float32, False, False, "float32 of int8 codes, scaled behind the product"),
        ("float8", torch.float32, False, False, "float32 of float8 codes, scaled behind the product"),
        ("float16", torch.float16, True, False, "float16 of float16 codes, scaled by row"),
        ("int8", torch.float16, True, False, "float16 of int8 codes, scaled by row"),
        ("nf4", torch.float32, False, False, "float32, weights made of nf4 by PyTorch's kernels"),
        ("nf4", torch.float16, True, False, "float16, weights made of nf4 by PyTorch's kernels, scaled by row"),
        ("nf4", torch.bfloat16, False, True, "bfloat16, weights made of nf4 by compiled code"),
    ],
)
def test_products(kind: str, dtype: torch.dtype, scaled: bool, compiled: bool, told: str) -> None:
    layers = model(kind)
    if scaled:
        multiply_in_float16(layers)
    optimizer = torch.optim.AdamW(nn.Linear(2, 2).parameters(), fused=True)
    found = chosen_kernels(layers, optimizer, CPU, dtype, compiled)
    assert found["products"] == told
    assert found["blocks"] == ("compiled" if compiled else "as written")
    assert found["optimizer"] == "AdamW, one kernel"


@pytest.mark.parametrize(("by_onednn", "where"), [(True, "by oneDNN within"), (False, "behind")])
def test_where_a_processor_scales(by_onednn: bool, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chosen, "MULTIPLIES_SUMS", by_onednn)
    optimizer = torch.optim.SGD(nn.Linear(2, 2).parameters(), 0.1)
    found = chosen_kernels(model("int8"), optimizer, CPU, torch.bfloat16, False)
    assert found["products"] == f"bfloat16 of int8 codes, scaled {where} the product"
    assert found["attention"].startswith("plain products up to 16 MiB") and found["optimizer"] == "SGD"
