"""The parts of benchmarks/gpu.py run to their end without a card, so that no minute of one is lost to a slip."""

from __future__ import annotations

import importlib
import json
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("gpu")


@pytest.mark.parametrize("part", ["card", "kernels", "eight_bits", "plain"])
def test_what_asks_pytorch(gpu: Any, part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"dim": 64, "n_heads": 2, "n_kv_heads": 2, "n_layers": 2, "axes_dims": [16, 8, 8], "cap_feat_dim": 32}
    monkeypatch.setattr(gpu, "TINY", small)
    run, _ = gpu.PARTS[part]
    found = run(tmp_path, Namespace(tiny=True, cpu=False, steps=2))
    assert found and all(figure >= 0 for figure in found.values())
    gpu.keep(tmp_path, part, found)
    assert gpu.results(tmp_path) == json.loads(json.dumps({part: found}))


@pytest.mark.thorough
def test_a_row_of_the_runner(gpu: Any, tiny: Path, circles: Path, tmp_path: Path) -> None:
    """Of a whole process, beside what was predicted; what failed is told as its last words."""
    (tmp_path / "model").symlink_to(tiny)
    (tmp_path / "captioned").symlink_to(circles)
    contender = gpu.ours(tmp_path, 4, "int8", tmp_path / "kept", "cpu", 64)
    memory = gpu.predicted(contender, tmp_path / "predicted")
    found = gpu.row("int8", memory, contender, tmp_path / "run", gpu.on_card(None))
    assert "failed" not in found, found
    assert found["s a step"] > 0 and found["predicted"]["training step"] > 0 and found["resident"] > 0
    ends = gpu.Contender(lambda _: [sys.executable, "-c", "print('no card'); raise SystemExit(3)"])
    assert "no card" in gpu.row("ends", None, ends, tmp_path / "ends", gpu.on_card(None))["failed"]
