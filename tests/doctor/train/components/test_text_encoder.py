"""A text encoder that is streamed in is the one that transformers loads; quantized, it is near to it and smaller."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import Qwen3Model, T5EncoderModel

from zdoctor.doctor.progress import Progress
from zdoctor.doctor.train import TrainError
from zdoctor.doctor.train.components import text_encoder
from zdoctor.doctor.train.components.pretrained import load_pretrained
from zdoctor.doctor.train.components.text_encoder import load_quantized, load_text_encoder
from zdoctor.doctor.train.encode import text_embeddings as texts_module
from zdoctor.doctor.train.encode.encoding_cache import EncodingCache
from zdoctor.doctor.train.encode.text_embeddings import TextEmbeddings
from zdoctor.doctor.train.families import zimage
from zdoctor.doctor.train.kernels.quantized_linear import Quantization, QuantizedLinear
from zdoctor.tests.flux import healthy_flux

from ..patient import Recorder, go, run_with

CPU = torch.device("cpu")
IDS = torch.arange(20)[None] % 7 + 1


def folder_of(make: Any, tiny: Path) -> Path:
    return tiny / "text_encoder" if make is Qwen3Model else healthy_flux() / "text_encoder_2"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("make", [Qwen3Model, T5EncoderModel])
def test_streamed_is_loaded(tiny: Path, make: Any, dtype: torch.dtype) -> None:
    folder = folder_of(make, tiny)
    plain = load_pretrained(make, folder, "text encoder", dtype=dtype)
    streamed = load_quantized(make, folder, "none", dtype, CPU)
    buffers = dict(streamed.named_buffers())
    assert all(torch.equal(buffers[name], value) for name, value in plain.named_buffers())
    with torch.no_grad():
        assert torch.equal(streamed(IDS)[0], plain(IDS)[0])


def test_weights_in_a_pickle_are_not_streamed_and_the_command_that_is_shown_writes_others(
    tiny: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "a text encoder"
    shutil.copytree(tiny / "text_encoder", folder)
    for file in folder.glob("*.safetensors*"):
        file.unlink()
    values: dict[str, torch.Tensor] = {}
    for file in (tiny / "text_encoder").glob("*.safetensors"):
        values |= load_file(str(file))
    torch.save(values, folder / "pytorch_model.bin")
    whole = load_text_encoder(Qwen3Model, folder, "text encoder", "none", torch.float32, CPU)
    cases: tuple[tuple[Quantization, torch.dtype], ...] = (("int8", torch.float32), ("none", torch.float16))
    said: list[str] = []
    for kind, dtype in cases:
        with pytest.raises(TrainError, match=r"holds its weights as pytorch_model\.bin") as error:
            load_text_encoder(Qwen3Model, folder, "text encoder", kind, dtype, CPU)
        said.append(str(error.value))
    _, command = said[0].split("Type: ")
    python, *rest = shlex.split(command)
    assert python == "python" and said[0] == said[1]
    subprocess.run([sys.executable, *rest], check=True, capture_output=True)
    streamed = load_quantized(Qwen3Model, folder, "none", torch.float32, CPU)
    with torch.no_grad():
        assert torch.equal(streamed(IDS)[0], whole(IDS)[0])


@pytest.mark.parametrize(("kind", "error"), [("int8", 0.04), ("float8", 0.1), ("nf4", 0.4)])
@pytest.mark.parametrize("make", [Qwen3Model, T5EncoderModel])
def test_quantized_is_near(tiny: Path, make: Any, kind: Quantization, error: float) -> None:
    folder = folder_of(make, tiny)
    plain = load_text_encoder(make, folder, "text encoder", "none", torch.float32, CPU)
    small = load_text_encoder(make, folder, "text encoder", kind, torch.float32, CPU)
    assert any(isinstance(module, QuantizedLinear) for module in small.modules())
    assert not any(isinstance(module, torch.nn.Linear) for module in small.modules())
    with torch.no_grad():
        found, exact = small(IDS)[0], plain(IDS)[0]
    assert 0 < (found - exact).norm() < error * exact.norm()
    size = sum(p.numel() * p.element_size() for p in small.parameters())
    assert size < sum(p.numel() * p.element_size() for p in plain.parameters())


def swollen(make: Any, tiny: Path, folder: Path) -> Path:
    """The encoder with gates and values so large that what they make cannot be held in float16."""
    shutil.copytree(folder_of(make, tiny), folder)
    (file,) = folder.glob("*.safetensors")
    tensors = load_file(file)
    for name, tensor in tensors.items():
        if name.endswith(("mlp.gate_proj.weight", "mlp.up_proj.weight", "wi_0.weight", "wi_1.weight")):
            tensors[name] = 3000 * tensor
        if name.endswith(("mlp.down_proj.weight", "DenseReluDense.wo.weight")):
            tensors[name] = 1e-6 * tensor
    save_file(tensors, file, {"format": "pt"})
    return folder


@pytest.mark.parametrize("kind", ["none", "int8", "nf4"])
@pytest.mark.parametrize("make", [Qwen3Model, T5EncoderModel])
def test_in_float16_nothing_overflows(
    tiny: Path, make: Any, kind: Quantization, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = swollen(make, tiny, tmp_path / "encoder")
    with torch.no_grad():
        plain = load_pretrained(make, folder, "text encoder", dtype=torch.float16)
        plain = plain.half()  # of T5 transformers keeps a part in float32
        assert not torch.isfinite(plain(IDS)[0]).all()
        exact = load_text_encoder(make, folder, "text encoder", kind, torch.float32, CPU)(IDS)[0]
        for in_hardware in (True, False):
            monkeypatch.setattr(text_encoder, "has_float16", lambda value=in_hardware: value)
            half = load_text_encoder(make, folder, "text encoder", kind, torch.float16, CPU)
            found = half(IDS)[0]
            assert found.dtype == torch.float32
            assert (found - exact).norm() < 0.002 * exact.norm()
    linears = [module for module in half.modules() if isinstance(module, QuantizedLinear)]
    assert len(linears) > 5 and all(module.codes.element_size() <= 2 for module in linears)


def test_embeddings_made_in_float16_take_the_room_of_bfloat16(tiny: Path, tmp_path: Path) -> None:
    made = {}
    for dtype in (torch.float16, torch.float32):
        folders = {name: tiny / name for name in zimage.TEXT_PARTS}
        texts = TextEmbeddings(EncodingCache(tmp_path), zimage, folders, dtype)
        assert texts.prepare(["a red circle"], CPU, Progress()) == 1
        made[dtype] = texts.get("a red circle")["states"]
    assert made[torch.float16].dtype == torch.bfloat16
    torch.testing.assert_close(made[torch.float16].float(), made[torch.float32], rtol=0.02, atol=0.02)


def test_a_processor_without_bfloat16_does_not_emulate_it(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a text encoder has no room on a card, whose own processor is an older one."""
    monkeypatch.setattr(texts_module, "has_bfloat16", lambda: False)
    monkeypatch.setattr(text_encoder, "has_float16", lambda: False)
    seen: list[torch.dtype] = []
    plain = torch.nn.functional.linear

    def linear(x: torch.Tensor, *words: Any) -> torch.Tensor:
        seen.append(x.dtype)
        return plain(x, *words)

    monkeypatch.setattr(torch.nn.functional, "linear", linear)
    folders = {name: tiny / name for name in zimage.TEXT_PARTS}
    texts = TextEmbeddings(EncodingCache(tmp_path), zimage, folders, torch.bfloat16)
    texts.prepare(["a red circle"], CPU, Progress())
    assert set(seen) == {torch.float32}
    assert texts.get("a red circle")["states"].dtype == torch.bfloat16


def test_a_missing_tensor_is_an_error(tiny: Path) -> None:
    with pytest.raises(TrainError, match="in none of its files"):
        load_quantized(T5EncoderModel, tiny / "vae", "int8", torch.float32, CPU)


def test_other_weights_are_other_embeddings(tiny: Path, circles: Path, tmp_path: Path) -> None:
    folders = {name: tiny / name for name in zimage.TEXT_PARTS}
    keys = {
        TextEmbeddings(EncodingCache(tmp_path), zimage, folders, torch.float32, kind).key("x")
        for kind in ("none", "int8", "nf4")
    }
    assert len(keys) == 3
    runs = {qtype: run_with(steps=1, text_encoder_quantization=qtype) for qtype in (None, "qfloat8")}
    losses = [go(run, tiny, circles, tmp_path / str(qtype), fresh=True).losses for qtype, run in runs.items()]
    assert losses[0] != losses[1] and losses[0] == pytest.approx(losses[1], rel=0.05)
    recorder = Recorder()
    again = go(run_with(steps=1, text_encoder_quantization="uint3"), tiny, circles, tmp_path / "c", progress=recorder)
    assert again.losses == losses[0] and any("qtype_te uint3" in note for note in recorder.notes)
