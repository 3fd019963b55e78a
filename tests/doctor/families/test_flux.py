"""Flux's tables are equal to the module trees, and to the converters, of diffusers and transformers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from diffusers.loaders import single_file_utils
from diffusers.models.transformers import transformer_flux, transformer_z_image
from hypothesis import given, settings
from hypothesis import strategies as some
from transformers import CLIPTextConfig, CLIPTextModel, T5Config, T5EncoderModel

from zdoctor.doctor.families.flux.tensors import flux_original_name
from zdoctor.doctor.families.record.single_file import original_layout
from zdoctor.doctor.families.tensors import in_the_dialect_of, needed_tensors, parameters, why_not
from zdoctor.doctor.families.zimage.tensors import zimage_original_name

from .test_tables import tree

FluxTransformer2DModel: Any = transformer_flux.FluxTransformer2DModel
ZImageTransformer2DModel: Any = transformer_z_image.ZImageTransformer2DModel
DEV = {"guidance_embeds": True}
T5_XXL = {
    "d_model": 4096,
    "d_kv": 64,
    "d_ff": 10240,
    "num_layers": 24,
    "num_heads": 64,
    "vocab_size": 32128,
    "feed_forward_proj": "gated-gelu",
}
CLIP_L = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12}


@settings(max_examples=25, deadline=None)
@given(
    some.fixed_dictionaries(
        {},
        optional={
            "patch_size": some.integers(1, 3),
            "in_channels": some.integers(1, 9),
            "out_channels": some.sampled_from([None, 5]),
            "guidance_embeds": some.booleans(),
            "joint_attention_dim": some.integers(1, 9),
            "pooled_projection_dim": some.integers(1, 9),
        },
    ),
    some.integers(0, 2),
    some.integers(0, 2),
    some.sampled_from([(8, 2), (4, 3), (16, 1)]),
)
def test_flux_is_the_real_tree(config: dict[str, Any], doubles: int, singles: int, heads: tuple[int, int]) -> None:
    config |= {"num_layers": doubles, "num_single_layers": singles}
    config |= {"attention_head_dim": heads[0], "num_attention_heads": heads[1]}
    assert needed_tensors("FluxTransformer2DModel", config) == tree(lambda: FluxTransformer2DModel(**config))


@pytest.mark.parametrize(
    ("config", "tensors", "numbers"),
    [({}, 1156, 11_891_178_560), (DEV, 1160, 11_901_408_320)],
    ids=["schnell", "dev"],
)
def test_the_real_flux(config: dict[str, Any], tensors: int, numbers: int) -> None:
    shapes = needed_tensors("FluxTransformer2DModel", config)
    assert shapes == tree(lambda: FluxTransformer2DModel(**config))
    assert shapes is not None and (len(shapes), parameters(shapes)) == (tensors, numbers)
    assert len(original_layout(flux_original_name, shapes)) == tensors - 380


@settings(max_examples=15, deadline=None)
@given(
    some.fixed_dictionaries(
        {"num_layers": some.integers(1, 3), "num_heads": some.integers(1, 3), "d_kv": some.integers(1, 5)},
        optional={
            "d_model": some.integers(1, 9),
            "d_ff": some.integers(1, 9),
            "vocab_size": some.integers(1, 9),
            "relative_attention_num_buckets": some.integers(1, 9),
            "feed_forward_proj": some.sampled_from(["relu", "gated-gelu", "gated-silu", "gelu"]),
        },
    )
)
def test_t5_is_the_real_tree_with_its_embedding_once(config: dict[str, Any]) -> None:
    real = tree(lambda: T5EncoderModel(T5Config(**config)))
    assert real.pop("encoder.embed_tokens.weight") == real["shared.weight"]
    assert needed_tensors("T5EncoderModel", config) == real
    assert needed_tensors("T5ForConditionalGeneration", config) == real


@settings(max_examples=15, deadline=None)
@given(
    some.fixed_dictionaries(
        {"num_hidden_layers": some.integers(0, 2), "num_attention_heads": some.just(2)},
        optional={
            "hidden_size": some.sampled_from([4, 8]),
            "intermediate_size": some.integers(1, 9),
            "vocab_size": some.integers(1, 9),
            "max_position_embeddings": some.integers(1, 9),
        },
    )
)
def test_clip_is_the_real_tree(config: dict[str, Any]) -> None:
    real = tree(lambda: CLIPTextModel(CLIPTextConfig(**config)))
    assert {name.removeprefix("text_model."): shape for name, shape in real.items()} == needed_tensors(
        "CLIPTextModel", config
    )
    assert needed_tensors("CLIPModel", {"text_config": config}) == needed_tensors("CLIPTextModel", config)


def test_the_real_text_encoders() -> None:
    t5, clip = needed_tensors("T5EncoderModel", T5_XXL), needed_tensors("CLIPTextModel", CLIP_L)
    assert t5 is not None and (len(t5), parameters(t5)) == (219, 4_762_310_656)
    assert clip is not None and (len(clip), parameters(clip)) == (196, 123_060_480)


def test_names_that_the_text_encoders_accept() -> None:
    t5 = needed_tensors("T5EncoderModel", {"num_layers": 1}) or {}
    other = {"encoder.embed_tokens.weight" if name == "shared.weight" else name: s for name, s in t5.items()}
    for present in (t5, other, {f"transformer.{name}": s for name, s in t5.items()}):
        assert in_the_dialect_of("T5EncoderModel", t5, present) == present
    assert in_the_dialect_of("T5EncoderModel", t5, {**t5, **other}) == t5
    clip = needed_tensors("CLIPTextModel", {"num_hidden_layers": 1}) or {}
    published = {f"text_model.{name}": shape for name, shape in clip.items()}
    assert in_the_dialect_of("CLIPTextModel", clip, published) == published
    assert in_the_dialect_of("CLIPTextModel", clip, [*published][1:]) == published
    assert in_the_dialect_of("CLIPTextModel", clip, clip) == clip


@pytest.mark.parametrize("name", ["FluxTransformer2DModel", "T5EncoderModel", "CLIPTextModel", "CLIPModel"])
@pytest.mark.parametrize("value", ["x", -1, 0, 10**9, 10**400, [], {}, True, 1.5, None])
def test_any_value_is_survived(name: str, value: object) -> None:
    keys = ("num_layers", "num_single_layers", "attention_head_dim", "out_channels", "guidance_embeds", "d_model")
    for key in (*keys, "feed_forward_proj", "num_hidden_layers", "hidden_size", "text_config", "vocab_size"):
        shapes = needed_tensors(name, {key: value})
        assert shapes is None or len(shapes) < 100_000
        assert shapes is not None or why_not(name, {key: value})


def meta(shapes: dict[str, tuple[int, ...]]) -> dict[str, torch.Tensor]:
    return {name: torch.empty(shape, device="meta") for name, shape in shapes.items()}


def shapes_of(tensors: dict[str, torch.Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


@pytest.mark.parametrize("prefix", ["", "model.diffusion_model."])
@pytest.mark.parametrize("config", [{}, DEV, {**DEV, "num_layers": 8}, {"in_channels": 384, "out_channels": 64}])
def test_diffusers_makes_flux_of_exactly_the_tensors_of_the_original_layout(
    config: dict[str, Any], prefix: str
) -> None:
    convert: Any = single_file_utils.convert_flux_transformer_checkpoint_to_diffusers
    needed = needed_tensors("FluxTransformer2DModel", config) or {}
    original = original_layout(flux_original_name, needed)
    tensors = meta({prefix + name: shape for name, shape in original.items()})
    assert shapes_of(convert(tensors)) == needed
    assert not tensors  # each is taken out as it is used: none is left
    if not prefix:
        for lost in ("double_blocks.3.img_attn.qkv.weight", "single_blocks.37.linear1.bias", "img_in.weight"):
            with pytest.raises(KeyError):
                convert(meta({name: shape for name, shape in original.items() if name != lost}))


@pytest.mark.parametrize("prefix", ["", "model.diffusion_model."])
@pytest.mark.parametrize("config", [{}, {"n_layers": 2, "n_refiner_layers": 1, "siglip_feat_dim": 24}])
def test_diffusers_makes_zimage_of_exactly_the_tensors_of_the_original_layout(
    config: dict[str, Any], prefix: str
) -> None:
    convert: Any = single_file_utils.convert_z_image_transformer_checkpoint_to_diffusers
    needed = needed_tensors("ZImageTransformer2DModel", config) or {}
    original = original_layout(zimage_original_name, needed)
    assert len(original) < len(needed)
    assert shapes_of(convert(meta({prefix + name: shape for name, shape in original.items()}))) == needed
    # what is there under diffusers' own names stays
    assert original_layout(zimage_original_name, needed, needed) == needed
