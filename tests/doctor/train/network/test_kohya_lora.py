"""A LoRA of sd-scripts or musubi-tuner as the beginning of a run computes what it did there."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from zdoctor.doctor.families import classes
from zdoctor.doctor.families.network import sources
from zdoctor.doctor.families.record.single_file import original_parts
from zdoctor.doctor.train import TrainError
from zdoctor.doctor.train.network.lora import lora_targets
from zdoctor.doctor.train.transformer.load_transformer import build_empty_transformer

from ..patient import go, run_with

RANK = 8


def kohya(shapes: dict[str, tuple[int, ...]], class_name: str) -> dict[str, Tensor]:
    """A file as the trainers write it: an A, a B and an alpha for each Linear of their own model."""
    generator = torch.Generator().manual_seed(4)
    made: dict[str, Tensor] = {"lora_te1_text_model_encoder_layers_0_mlp_fc1.alpha": torch.tensor(4.0)}
    for original, names in original_parts(
        classes()[class_name].original, [f"{name}.weight" for name in shapes]
    ).items():
        own = [shapes[name.removesuffix(".weight")] for name in names]
        key = "lora_unet_" + original.removesuffix(".weight").replace(".", "_")
        made[f"{key}.lora_down.weight"] = torch.randn(RANK, own[0][1], generator=generator)
        made[f"{key}.lora_up.weight"] = torch.randn(sum(out for out, _ in own), RANK, generator=generator)
        made[f"{key}.alpha"] = torch.tensor(4.0)
    return made


def from_kohya(held: dict[str, Tensor], shapes: dict[str, tuple[int, ...]], class_name: str) -> dict[str, Tensor]:
    found = sources(held, shapes, class_name)
    return {name: held[key] if rows is None else held[key][rows] for name, (key, rows) in found.items()}


def test_fused_linears_are_taken_apart(flux: Path) -> None:
    """Against the product of the fused Linear, whose rows are those of query, key and value in this order."""
    shapes = lora_targets(build_empty_transformer(flux / "transformer"))
    file = kohya(shapes, "FluxTransformer2DModel")
    made = from_kohya(file, shapes, "FluxTransformer2DModel")
    assert made.keys() == {f"{name}.{part}.weight" for name in shapes for part in ("lora_A", "lora_B")}
    key = "lora_unet_double_blocks_1_txt_attn_qkv"
    x = torch.randn(2, shapes["transformer_blocks.1.attn.add_q_proj"][1])
    fused = nn.functional.linear(
        nn.functional.linear(x, file[f"{key}.lora_down.weight"]), file[f"{key}.lora_up.weight"]
    )
    names = [f"transformer_blocks.1.attn.add_{part}_proj" for part in "qkv"]
    apart = [x @ made[f"{name}.lora_A.weight"].T @ made[f"{name}.lora_B.weight"].T for name in names]
    torch.testing.assert_close(torch.cat(apart, dim=1), fused)


@pytest.mark.parametrize("fused", [True, False])
def test_a_run_begins_with_a_file_of_kohyas(tiny: Path, circles: Path, tmp_path: Path, fused: bool) -> None:
    """musubi-tuner's Z-Image has query, key and value apart; others fuse them. Alpha is the config's."""
    shapes = lora_targets(build_empty_transformer(tiny / "transformer"))
    name = "layers.1.attention.to_k"
    file = tmp_path / "old.safetensors"
    tensors = kohya(shapes, "ZImageTransformer2DModel")
    if not fused:
        ours = from_kohya(tensors, shapes, "ZImageTransformer2DModel")
        ends = {"lora_A": "lora_down", "lora_B": "lora_up"}
        tensors = {
            f"lora_unet_{key.rsplit('.', 2)[0].replace('.', '_')}.{ends[key.rsplit('.', 2)[1]]}.weight": value.clone()
            for key, value in ours.items()
        }
    save_file(tensors, str(file))
    network = {"initial_weights": str(file), "scale": 0.5}
    run = run_with(network={**network, "rank": RANK}, steps=1, learning_rate=1e-12)
    saved = load_file(go(run, tiny, circles, tmp_path / "out").lora)
    begun = from_kohya(tensors, shapes, "ZImageTransformer2DModel")
    torch.testing.assert_close(saved[f"diffusion_model.{name}.lora_A.weight"], begun[f"{name}.lora_A.weight"])
    torch.testing.assert_close(saved[f"diffusion_model.{name}.lora_B.weight"], begun[f"{name}.lora_B.weight"] * 0.5)
    if not fused:  # its own file, which is for scale 1, and another rank
        again = run_with(
            network={**network, "rank": RANK, **_starting(tmp_path / "out")}, steps=1, learning_rate=1e-12
        )
        twice = load_file(go(again, tiny, circles, tmp_path / "again").lora)
        torch.testing.assert_close(twice, saved)
        with pytest.raises(TrainError, match="does not fit"):
            go(run_with(network={**network, "rank": 4}), tiny, circles, tmp_path / "small")


def _starting(folder: Path) -> dict[str, object]:
    return {"initial_weights": str(folder / "circles.safetensors")}
