"""The streamed transformer is the one that diffusers loads, and an incomplete one is refused by name."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from diffusers.models.transformers.transformer_z_image import ZImageTransformer2DModel
from safetensors.torch import load_file, save_file
from torch import nn

from zdoctor.doctor.train import TrainError
from zdoctor.doctor.train.families import zimage
from zdoctor.doctor.train.kernels.quantized_linear import Quantization, QuantizedLinear, quantize_rows
from zdoctor.doctor.train.transformer.load_transformer import (
    build_empty_transformer,
    fill_transformer,
    transformer_folder,
)
from zdoctor.doctor.train.weights.materialize import check_no_meta, linear_shapes
from zdoctor.doctor.train.weights.training_adapter import read_training_adapter

CPU = torch.device("cpu")


def reference(folder: Path) -> nn.Module:
    model = ZImageTransformer2DModel.from_pretrained(str(folder))
    assert isinstance(model, nn.Module)
    return model


def load(folder: Path, kind: Quantization = "none", adapter: Path | None = None) -> nn.Module:
    model = build_empty_transformer(folder)
    deltas = {} if adapter is None else read_training_adapter(adapter, linear_shapes(model))
    fill_transformer(model, folder, quantization=kind, adapter=deltas, dtype=torch.float32, device=CPU)
    return model


@pytest.fixture
def transformer(tiny: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(tiny / "transformer", tmp_path / "transformer"))


def shard_of(folder: Path, name: str) -> Path:
    index = json.loads((folder / "diffusion_pytorch_model.safetensors.index.json").read_text())
    return folder / str(index["weight_map"][name])


def test_streaming_gives_the_weights_of_from_pretrained(tiny: Path) -> None:
    ours, theirs = load(tiny / "transformer"), reference(tiny / "transformer")
    a, b = ours.state_dict(), theirs.state_dict()
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize(("kind", "error"), [("int8", 0.0045), ("float8", 0.03), ("nf4", 0.1)])
def test_quantized_weights_stay_within_the_format(tiny: Path, kind: Quantization, error: float) -> None:
    ours, theirs = load(tiny / "transformer", kind), reference(tiny / "transformer")
    for name, module in theirs.named_modules():
        if not isinstance(module, nn.Linear):
            continue
        mine = ours.get_submodule(name)
        assert isinstance(mine, QuantizedLinear) == zimage.RECORD.is_quantized(name), name
        if isinstance(mine, QuantizedLinear):
            spread = module.weight.std()
            assert ((mine.weight() - module.weight).pow(2).mean().sqrt() / spread) < error * 2, name
        else:
            assert isinstance(mine, nn.Linear)
            assert torch.equal(mine.weight, module.weight)
    names = {name.split(".")[0] for name in linear_shapes(theirs) if not zimage.RECORD.is_quantized(name)}
    assert names == {"all_x_embedder", "all_final_layer", "t_embedder", "cap_embedder"}


def test_a_single_file_loads_like_shards(transformer: Path) -> None:
    whole = {}
    for shard in transformer.glob("*.safetensors"):
        whole.update(load_file(str(shard)))
        shard.unlink()
    (transformer / "diffusion_pytorch_model.safetensors.index.json").unlink()
    save_file(whole, str(transformer / "diffusion_pytorch_model.safetensors"))
    assert all(torch.equal(value, whole[name]) for name, value in load(transformer).state_dict().items())


def test_the_adapter_is_merged_before_quantization(tiny: Path, adapter: Path) -> None:
    ours, theirs = load(tiny / "transformer", "int8", adapter), reference(tiny / "transformer")
    tensors = load_file(str(adapter))
    for name in linear_shapes(theirs):
        mine = ours.get_submodule(name)
        if not isinstance(mine, QuantizedLinear):
            continue
        module = theirs.get_submodule(name)
        assert isinstance(module, nn.Linear)
        weight = module.weight.detach()
        key = f"diffusion_model.{name}.lora"
        if f"{key}_A.weight" in tensors:
            weight = weight + tensors[f"{key}_B.weight"] @ tensors[f"{key}_A.weight"]
        expected = QuantizedLinear(*quantize_rows(weight, "int8"), None, weight.shape[1]).weight()
        step = expected.abs().amax(dim=1, keepdim=True) / 127  # a value between two codes may round either way
        assert ((mine.weight() - expected).abs() <= step * 1.01).all(), name
        assert (mine.weight() - expected).abs().mean() < step.mean() * 0.01, name


def test_alpha_scales_the_adapter(tiny: Path, adapter: Path, tmp_path: Path) -> None:
    tensors = load_file(str(adapter))
    for name in [key for key in tensors if key.endswith("lora_A.weight")]:
        tensors[name.replace("lora_A.weight", "alpha")] = torch.tensor(2.0)
    save_file(tensors, str(tmp_path / "half.safetensors"))
    shapes = linear_shapes(build_empty_transformer(tiny / "transformer"))
    assert {delta.scale for delta in read_training_adapter(tmp_path / "half.safetensors", shapes).values()} == {0.5}


def test_missing_tensors_are_named_and_diffusers_leaves_them_on_meta(transformer: Path) -> None:
    name = "layers.1.feed_forward.w2.weight"
    shard = shard_of(transformer, name)
    kept = {key: value for key, value in load_file(str(shard)).items() if key != name}
    save_file(kept, str(shard), metadata={"format": "pt"})
    assert any(parameter.is_meta for parameter in reference(transformer).parameters())
    with pytest.raises(TrainError, match=r"layers\.1\.feed_forward\.w2\.weight"):
        load(transformer)


def test_a_config_with_more_layers_than_the_files_is_refused(transformer: Path) -> None:
    config = json.loads((transformer / "config.json").read_text())
    (transformer / "config.json").write_text(json.dumps({**config, "n_layers": 3}))
    with pytest.raises(TrainError, match=r"of the \d+ tensors .* layers\.2\."):
        load(transformer)


def test_a_config_of_another_width_is_refused(transformer: Path) -> None:
    config = json.loads((transformer / "config.json").read_text())
    (transformer / "config.json").write_text(json.dumps({**config, "cap_feat_dim": 64}))
    with pytest.raises(TrainError, match="another shape"):
        load(transformer)


def test_missing_and_cut_off_shards_are_refused(transformer: Path) -> None:
    shard = shard_of(transformer, "layers.0.attention.to_q.weight")
    content = shard.read_bytes()
    shard.write_bytes(content[:-100])
    with pytest.raises(TrainError, match="cut off"):
        load(transformer)
    shard.write_bytes(b"<!DOCTYPE html><html></html>" * 10)
    with pytest.raises(TrainError, match="not a safetensors file"):
        load(transformer)
    shard.unlink()
    with pytest.raises(TrainError, match="missing"):
        load(transformer)


def test_another_architecture_is_refused(tmp_path: Path) -> None:
    (tmp_path / "transformer").mkdir()
    (tmp_path / "transformer" / "config.json").write_text('{"_class_name": "SD3Transformer2DModel"}')
    with pytest.raises(TrainError, match="SD3Transformer2DModel"):
        build_empty_transformer(transformer_folder(tmp_path))


def test_a_parameter_on_meta_is_refused_although_the_cpu_would_compute_with_it(tiny: Path) -> None:
    model = load(tiny / "transformer")
    module = model.get_submodule("layers.0.attention.to_q")
    module.weight = nn.Parameter(torch.empty(96, 96, device="meta"), requires_grad=False)
    with pytest.raises(TrainError, match=r"layers\.0\.attention\.to_q\.weight"):
        check_no_meta(model)


def test_an_adapter_of_another_model_is_refused(tiny: Path, tmp_path: Path) -> None:
    shapes = linear_shapes(build_empty_transformer(tiny / "transformer"))
    pair = {"A": torch.zeros(4, 96), "B": torch.zeros(96, 4)}
    cases = {
        "another architecture": {
            f"transformer.single_transformer_blocks.0.attn.to_q.lora_{part}.weight": value
            for part, value in pair.items()
        },
        "does not fit": {
            "diffusion_model.layers.0.attention.to_q.lora_A.weight": torch.zeros(4, 3840),
            "diffusion_model.layers.0.attention.to_q.lora_B.weight": torch.zeros(3840, 4),
        },
        "incomplete": {"diffusion_model.layers.0.attention.to_q.lora_A.weight": pair["A"]},
        "not a LoRA": {"layers.0.attention.to_q.weight": torch.zeros(96, 96)},
    }
    for words, tensors in cases.items():
        file = tmp_path / "adapter.safetensors"
        save_file(tensors, str(file))
        with pytest.raises(TrainError, match=words):
            read_training_adapter(file, shapes)
    with pytest.raises(TrainError, match="is a folder"):
        read_training_adapter(tmp_path, shapes)
