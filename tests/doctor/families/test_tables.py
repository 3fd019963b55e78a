"""The tables are equal to the module trees that diffusers and transformers really build."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from diffusers.models.autoencoders import autoencoder_kl
from diffusers.models.transformers import transformer_z_image
from transformers import Qwen3Config, Qwen3ForCausalLM, Qwen3Model

from zdoctor.doctor.families.tensors import block_linears, in_the_dialect_of, needed_tensors, parameters, why_not
from zdoctor.doctor.families.zimage.record import ZIMAGE

ZImageTransformer2DModel: Any = transformer_z_image.ZImageTransformer2DModel
AutoencoderKL: Any = autoencoder_kl.AutoencoderKL

LORA_LINEARS = (
    "attention.to_q",
    "attention.to_k",
    "attention.to_v",
    "attention.to_out.0",
    "feed_forward.w1",
    "feed_forward.w2",
    "feed_forward.w3",
    "adaLN_modulation.0",
)

TINY: dict[str, Any] = {
    "dim": 64,
    "n_heads": 2,
    "n_kv_heads": 2,
    "axes_dims": [8, 12, 12],
    "axes_lens": [1024, 512, 512],
    "n_layers": 2,
    "n_refiner_layers": 1,
    "cap_feat_dim": 32,
}


def tree(build: Callable[[], Any]) -> dict[str, tuple[int, ...]]:
    with torch.device("meta"):
        return {name: tuple(tensor.shape) for name, tensor in build().state_dict().items()}


@pytest.mark.parametrize(
    "config",
    [
        {},
        TINY,
        {**TINY, "dim": 96, "n_heads": 3, "n_refiner_layers": 0},
        {**TINY, "dim": 65, "in_channels": 4},
        {**TINY, "siglip_feat_dim": 24, "n_layers": 0},
        {**TINY, "dim": 320, "n_heads": 10},
    ],
)
def test_zimage_is_the_real_tree(config: dict[str, Any]) -> None:
    assert needed_tensors("ZImageTransformer2DModel", config) == tree(lambda: ZImageTransformer2DModel(**config))


def test_the_real_zimage() -> None:
    shapes = needed_tensors("ZImageTransformer2DModel", {})
    assert shapes is not None
    assert len(shapes) == 521
    assert parameters(shapes) == 6_154_908_736
    assert len(block_linears(shapes, ZIMAGE.lora_blocks)) == 240
    assert {name.split(".", 2)[2] for name in block_linears(shapes, ZIMAGE.lora_blocks)} == set(LORA_LINEARS)
    assert len(block_linears(shapes, ZIMAGE.quantized_blocks)) == 270
    assert sum(sum(sides) for sides in block_linears(shapes, ZIMAGE.lora_blocks).values()) * 32 == 85_032_960


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"block_out_channels": [32], "layers_per_block": 2},
        {
            "block_out_channels": [128, 256, 512, 512],
            "down_block_types": ["DownEncoderBlock2D"] * 4,
            "up_block_types": ["UpDecoderBlock2D"] * 4,
            "layers_per_block": 2,
            "latent_channels": 16,
            "use_quant_conv": False,
            "use_post_quant_conv": False,
        },
        {
            "block_out_channels": [32, 32, 64],
            "down_block_types": ["DownEncoderBlock2D"] * 3,
            "up_block_types": ["UpDecoderBlock2D"] * 3,
            "mid_block_add_attention": False,
        },
    ],
)
def test_autoencoder_is_the_real_tree(config: dict[str, Any]) -> None:
    assert needed_tensors("AutoencoderKL", config) == tree(lambda: AutoencoderKL(**config))


@pytest.mark.parametrize(
    "config",
    [
        {"num_hidden_layers": 1},
        {"num_hidden_layers": 2, "hidden_size": 32, "vocab_size": 64, "intermediate_size": 48, "head_dim": 16},
        {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "attention_bias": True},
        {"num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": None},
    ],
)
@pytest.mark.parametrize("model", [Qwen3Model, Qwen3ForCausalLM])
@pytest.mark.parametrize("tied", [True, False])
def test_qwen3_is_the_real_tree(config: dict[str, Any], model: Any, tied: bool) -> None:
    config = {**config, "tie_word_embeddings": tied}
    real = tree(lambda: model(Qwen3Config(**config)))
    if tied:
        real.pop("lm_head.weight", None)
    assert needed_tensors(model.__name__, config) == real


HOSTILE = [
    {"n_layers": 10**9},
    {"n_layers": 10**400},
    {"n_layers": "30"},
    {"n_layers": -1},
    {"n_layers": True},
    {"n_layers": 3.0},
    {"dim": 0},
    {"dim": None},
    {"n_heads": 0},
    {"axes_dims": "abc"},
    {"axes_dims": [1] * 10**6},
    {"all_patch_size": []},
    {"all_patch_size": {"2": 1}},
    {"qk_norm": "yes"},
    {"siglip_feat_dim": "x"},
    {"quantization_config": {"load_in_8bit": True}},
    {"axes_dims": [1, 2, 3]},
]


@pytest.mark.parametrize("config", HOSTILE)
def test_a_hostile_config_is_answered_with_none_and_a_short_reason(config: dict[str, Any]) -> None:
    assert needed_tensors("ZImageTransformer2DModel", config) is None
    assert 0 < len(why_not("ZImageTransformer2DModel", config)) < 300


@pytest.mark.parametrize("name", ["AutoencoderKL", "Qwen3Model", "Qwen3ForCausalLM"])
@pytest.mark.parametrize("value", ["x", -1, 10**9, [], {}, True, 1.5])
def test_other_tables_survive_any_value(name: str, value: object) -> None:
    for key in ("block_out_channels", "layers_per_block", "num_hidden_layers", "head_dim", "down_block_types"):
        shapes = needed_tensors(name, {key: value})
        assert shapes is None or len(shapes) < 100_000


def test_unknown_classes_are_not_guessed() -> None:
    assert needed_tensors("AuraFlowTransformer2DModel", {}) is None
    assert "AuraFlowTransformer2DModel" in why_not("AuraFlowTransformer2DModel", {})
    assert "no class" in why_not(None, json.loads("{}"))


def test_names_that_the_loaders_accept_are_not_missing() -> None:
    bare = needed_tensors("Qwen3Model", {"num_hidden_layers": 1})
    full = needed_tensors("Qwen3ForCausalLM", {"num_hidden_layers": 1, "tie_word_embeddings": True})
    assert bare is not None and full is not None
    assert in_the_dialect_of("Qwen3ForCausalLM", full, bare) == bare
    assert in_the_dialect_of("Qwen3Model", bare, full) == full
    assert in_the_dialect_of("Qwen3ForCausalLM", full, ()) == full
    vae = needed_tensors("AutoencoderKL", {})
    assert vae is not None
    old = {name.replace("0.to_q.", "0.query.").replace("0.to_out.0.", "0.proj_attn."): s for name, s in vae.items()}
    assert in_the_dialect_of("AutoencoderKL", vae, old) == old
