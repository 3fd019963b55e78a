"""A file of one part tells what it is and the config that it would have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from zdoctor.doctor.families.components.autoencoder_kl import VAE
from zdoctor.doctor.families.components.clip_text import CLIP_L
from zdoctor.doctor.families.components.qwen3 import QWEN3_4B
from zdoctor.doctor.families.components.t5 import T5_XXL
from zdoctor.doctor.families.part_files import as_in_file, class_in, inferred_config, shards_of, title_of
from zdoctor.doctor.families.record.shapes import BadConfig, Shapes
from zdoctor.doctor.families.tensors import needed_tensors
from zdoctor.doctor.model.weights import COMFYUI_PREFIX
from zdoctor.tests import part_files as made

KONTEXT = {"num_layers": 19, "num_single_layers": 38, "attention_head_dim": 128, "num_attention_heads": 24}
KONTEXT |= {"joint_attention_dim": 4096, "pooled_projection_dim": 768, "in_channels": 64}
ZIMAGE = {"dim": 3840, "n_layers": 30, "n_refiner_layers": 2, "n_heads": 30, "cap_feat_dim": 2560, "in_channels": 16}
PUBLISHED: list[tuple[str, Shapes, Mapping[str, Any]]] = [
    (made.FLUX, made.flux(), {**KONTEXT, "guidance_embeds": True}),
    (made.FLUX, made.flux(guidance_embeds=False), {**KONTEXT, "guidance_embeds": False}),
    (made.FLUX, made.of(made.FLUX, {}), KONTEXT),
    (made.ZIMAGE, made.zimage(), ZIMAGE),
    (made.ZIMAGE, made.of(made.ZIMAGE, {}), ZIMAGE),
    ("AutoencoderKL", made.ae(), VAE),
    ("AutoencoderKL", made.diffusers_vae(), VAE),
    ("CLIPTextModel", made.clip_l(), CLIP_L),
    ("CLIPTextModel", made.of("CLIPTextModel", CLIP_L), CLIP_L),
    ("T5EncoderModel", made.t5xxl(), T5_XXL),
    ("Qwen3Model", made.qwen(), QWEN3_4B),
]


@pytest.mark.parametrize(("class_name", "shapes", "expected"), PUBLISHED)
def test_the_published_files(class_name: str, shapes: Shapes, expected: Mapping[str, Any]) -> None:
    config = inferred_config(class_name, shapes)
    told = {key: tuple(value) if isinstance(value, list) else value for key, value in config.items()}
    assert {key: told.get(key) for key in expected} == expected
    needed = needed_tensors(class_name, config)
    assert needed is not None and as_in_file(class_name, needed, shapes) == shapes


def test_a_prefix_is_seen_through() -> None:
    shapes = {COMFYUI_PREFIX + name: shape for name, shape in made.flux().items()}
    config = inferred_config(made.FLUX, shapes)
    assert config == inferred_config(made.FLUX, made.flux())
    assert as_in_file(made.FLUX, needed_tensors(made.FLUX, config) or {}, shapes) == shapes


WRONG: list[tuple[str, Shapes, str]] = [
    ("CLIPTextModel", made.t5xxl(), "it holds a T5 text encoder"),
    ("T5EncoderModel", made.clip_l(), "it holds a CLIP text encoder"),
    ("AutoencoderKL", made.flux(), "it holds a Flux transformer"),
    ("AutoencoderKL", {"lora_unet_x.lora_down.weight": (4, 4)}, "its tensors have other names"),
    ("AutoencoderKL", {**made.ae(), "encoder.conv_out.weight": (64, 512, 3, 3)}, "its latents have 32 channels"),
    (made.FLUX, {**made.flux(), "img_in.weight": (3072,)}, r"img_in.weight is \[3072\]"),
    (
        made.FLUX,
        {n: (100,) if s == (128,) else s for n, s in made.flux().items()},
        "no config makes num_attention_he",
    ),
    (made.ZIMAGE, {n: (96,) if s == (128,) else s for n, s in made.zimage().items()}, "its heads are 96 wide"),
    (made.ZIMAGE, {"cap_pad_token": (1, 3840)}, "it has no x_embedder.weight"),
    ("Qwen3Model", {"model.layers.0.self_attn.q_norm.weight": (0,), "model.embed_tokens.weight": (2, 2)}, "is .0."),
]


@pytest.mark.parametrize(("class_name", "shapes", "said"), WRONG)
def test_what_does_not_fit(class_name: str, shapes: Shapes, said: str) -> None:
    with pytest.raises(BadConfig, match=said):
        inferred_config(class_name, shapes)


def test_what_it_is_called() -> None:
    assert class_in(()) is None and title_of(None) == ""
    assert title_of(class_in(made.qwen())) == "a Qwen3 text encoder"


def test_numbered_sets() -> None:
    assert shards_of("ae.safetensors") == ["ae.safetensors"]
    assert shards_of("model-00001-of-00002.safetensors") == [
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
    ]
    assert len(shards_of("model-00001-of-99999.safetensors")) == 100
