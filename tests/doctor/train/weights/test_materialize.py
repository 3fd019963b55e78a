"""Tensors on their way from files into a model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from zdoctor.doctor.train.weights.materialize import read_tensors
from zdoctor.doctor.train.weights.safetensors_files import tensor_entries


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("end", [False, True])
def test_small_pieces_are_read_by_one_thread(two_threads: None, tmp_path: Path, end: bool) -> None:
    """Whatever model is read, also when the reader stops in the middle."""
    save_file({"a.weight": torch.ones(4, 4), "b.weight": torch.ones(4, 4)}, str(tmp_path / "model.safetensors"))
    entries = [*tensor_entries([tmp_path / "model.safetensors"]).values()]
    read = read_tensors(entries, {"a": (4, 4)}, "int8", {}, torch.bfloat16, torch.device("cpu"))
    names = [next(read)[0]]
    assert torch.get_num_threads() == 1
    if end:
        names += [name for name, _ in read]
        assert sorted(names) == ["a.codes", "a.outliers", "a.scale", "b.weight"]
    else:
        read.close()  # type: ignore[attr-defined]
    assert torch.get_num_threads() == 2
