"""A part of a model in a file of its own, without a config.json: what it is, and the config that it would have.

Numbers come from the shapes of the tensors. What shapes do not tell is as published and as sd-scripts 48d368fa
(library/flux_utils.py, library/flux_models.py) and musubi-tuner 30c658c4 (zimage/zimage_config.py and
zimage_utils.py, flux/flux_utils.py and flux_models.py) write it into their source.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from ..model.weights import COMFYUI_PREFIX
from .components.autoencoder_kl import original_names
from .shapes import BadConfig, Shapes
from .single_file import original_layout
from .tensors import in_the_dialect_of

_CLIP_HEAD = 64
_FLUX_AXES = (16, 56, 56)
_ZIMAGE_AXES = (32, 48, 48)
_VAE_GROUPS = 32
_VAE_LATENTS = 16
_SHARD = re.compile(r"(.*?)(\d{5})-of-(\d{5})\.safetensors")
_MOST_SHARDS = 100
_ENCODER = r"^(?:text_model\.|transformer\.|model\.)?"
_AE_BLOCKS = r"^encoder\.(?:down\.(\d+)\.block|down_blocks\.(\d+)\.resnets)\."


class _Tensors:
    """Shapes by name; a tensor is asked for by all the names that it may have."""

    def __init__(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.shapes = shapes

    def has(self, *names: str) -> bool:
        return any(name in self.shapes for name in names)

    def shape(self, rank: int, *names: str) -> tuple[int, ...]:
        """The shape of the tensor, of so many dimensions. Raises BadConfig."""
        name = next((name for name in names if name in self.shapes), None)
        if name is None:
            raise BadConfig(f"it has no {names[-1]}")
        shape = self.shapes[name]
        if len(shape) != rank or 0 in shape:
            raise BadConfig(f"{name} is {list(shape)}")
        return shape

    def count(self, pattern: str) -> int:
        """How many blocks there are: the highest number that the pattern finds, and one."""
        found = (re.match(pattern, name) for name in self.shapes)
        return 1 + max((int(next(filter(None, match.groups()))) for match in found if match), default=-1)


def shards_of(name: str) -> list[str]:
    """The names of the files of one part by the first's: a numbered set in its order, else that name alone."""
    shard = _SHARD.fullmatch(name)
    if shard is None:
        return [name]
    count = min(int(shard.group(3)), _MOST_SHARDS)
    return [f"{shard.group(1)}{number:05d}-of-{count:05d}.safetensors" for number in range(1, count + 1)]


def class_in(names: Collection[str]) -> str | None:
    """The class of the part that a file with these tensors holds, by one name that no other has; else None."""
    plain = {name.removeprefix(COMFYUI_PREFIX) for name in names}
    return next((kind for kind, (_, marks, _) in _KINDS.items() if not plain.isdisjoint(marks)), None)


def title_of(class_name: str | None) -> str:
    """A class for people, with its article; "" for None."""
    return "" if class_name is None else _KINDS[_WITHOUT_HEAD.get(class_name, class_name)][0]


def inferred_config(class_name: str, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """The config.json of the class that these tensors are of. Raises BadConfig where they are of none.

    That all tensors are there, in the shapes that follow from it, is for the caller to compare.
    """
    class_name = _WITHOUT_HEAD.get(class_name, class_name)
    plain = {name.removeprefix(COMFYUI_PREFIX): shape for name, shape in shapes.items()}
    held = class_in(plain)
    if held != class_name:
        raise BadConfig(f"it holds {title_of(held)}" if held else "its tensors have other names")
    config = _KINDS[class_name][2](_Tensors(plain))
    key, width, counts = _DEPTHS.get(class_name, ("", 0, {}))
    return {**config, **counts} if config.get(key) == width else config


def as_in_file(class_name: str, needed: Shapes, present: Collection[str]) -> Shapes:
    """`needed` under the names that a file with `present` has for it, one for each but of fused tensors, in order."""
    if class_name in ("FluxTransformer2DModel", "ZImageTransformer2DModel"):
        prefix = COMFYUI_PREFIX if any(name.startswith(COMFYUI_PREFIX) for name in present) else ""
        original = original_layout(class_name, needed, {name.removeprefix(prefix) for name in present})
        return {prefix + name: shape for name, shape in original.items()}
    if class_name == "AutoencoderKL" and any(name.startswith(("encoder.down.", "decoder.up.")) for name in present):
        return original_names(needed)
    return in_the_dialect_of(class_name, needed, present)


def _flux(tensors: _Tensors) -> dict[str, Any]:
    width, channels = tensors.shape(2, "x_embedder.weight", "img_in.weight")
    head = tensors.shape(
        1, "transformer_blocks.0.attn.norm_q.weight", "double_blocks.0.img_attn.norm.query_norm.scale"
    )[0]
    text = ("time_text_embed.text_embedder.linear_1.weight", "vector_in.in_layer.weight")
    guidance = ("time_text_embed.guidance_embedder.linear_1.weight", "guidance_in.in_layer.weight")
    _axes(head, _FLUX_AXES)
    return {
        "_class_name": "FluxTransformer2DModel",
        "patch_size": 1,
        "in_channels": channels,
        "out_channels": tensors.shape(2, "proj_out.weight", "final_layer.linear.weight")[0],
        "num_layers": tensors.count(r"^(?:transformer_blocks|double_blocks)\.(\d+)\."),
        "num_single_layers": tensors.count(r"^(?:single_transformer_blocks|single_blocks)\.(\d+)\."),
        "attention_head_dim": head,
        "num_attention_heads": _parts(width, head, "heads"),
        "joint_attention_dim": tensors.shape(2, "context_embedder.weight", "txt_in.weight")[1],
        "pooled_projection_dim": tensors.shape(2, *text)[1],
        "guidance_embeds": tensors.has(*guidance),
        "axes_dims_rope": list(_FLUX_AXES),
    }


def _zimage(tensors: _Tensors) -> dict[str, Any]:
    width, pixels = tensors.shape(2, "all_x_embedder.2-1.weight", "x_embedder.weight")
    norm = ("layers.0.attention.norm_q.weight", "layers.0.attention.q_norm.weight")
    head = tensors.shape(1, *norm)[0]
    heads = _parts(width, head, "heads")
    _axes(head, _ZIMAGE_AXES)
    return {
        "_class_name": "ZImageTransformer2DModel",
        "all_patch_size": [2],
        "all_f_patch_size": [1],
        "in_channels": _parts(pixels, 4, "pixels of a patch"),
        "dim": width,
        "n_layers": tensors.count(r"^layers\.(\d+)\."),
        "n_refiner_layers": tensors.count(r"^noise_refiner\.(\d+)\."),
        "n_heads": heads,
        "n_kv_heads": heads,
        "norm_eps": 1e-5,
        "qk_norm": True,
        "cap_feat_dim": tensors.shape(2, "cap_embedder.1.weight")[1],
        "rope_theta": 256.0,
        "t_scale": 1000.0,
        "axes_dims": list(_ZIMAGE_AXES),
        "axes_lens": [1536, 512, 512],
    }


def _vae(tensors: _Tensors) -> dict[str, Any]:
    latents, channels = tensors.shape(4, "encoder.conv_out.weight")[0], tensors.shape(4, "encoder.conv_in.weight")[1]
    if latents != 2 * _VAE_LATENTS:  # the factors below are not known for others
        raise BadConfig(f"its latents have {latents // 2} channels, those of Z-Image and Flux {_VAE_LATENTS}")
    levels = tensors.count(_AE_BLOCKS)
    widths = [
        tensors.shape(
            4,
            f"encoder.down_blocks.{level}.resnets.0.conv1.weight",
            f"encoder.down.{level}.block.0.conv1.weight",
        )[0]
        for level in range(levels)
    ]
    for width in widths:
        _parts(width, _VAE_GROUPS, "groups of channels")
    return {
        "_class_name": "AutoencoderKL",
        "in_channels": channels,
        "out_channels": tensors.shape(4, "decoder.conv_out.weight")[0],
        "down_block_types": ["DownEncoderBlock2D"] * levels,
        "up_block_types": ["UpDecoderBlock2D"] * levels,
        "block_out_channels": widths,
        "layers_per_block": tensors.count(r"^encoder\.(?:down\.\d+\.block|down_blocks\.\d+\.resnets)\.(\d+)\."),
        "latent_channels": _VAE_LATENTS,
        "norm_num_groups": _VAE_GROUPS,
        "scaling_factor": 0.3611,
        "shift_factor": 0.1159,
        "use_quant_conv": tensors.has("quant_conv.weight"),
        "use_post_quant_conv": tensors.has("post_quant_conv.weight"),
        "mid_block_add_attention": True,
    }


def _clip(tensors: _Tensors) -> dict[str, Any]:
    def shape(name: str) -> tuple[int, ...]:
        return tensors.shape(2, name, f"text_model.{name}")

    words, width = shape("embeddings.token_embedding.weight")
    return {
        "architectures": ["CLIPTextModel"],
        "model_type": "clip_text_model",
        "vocab_size": words,
        "hidden_size": width,
        "intermediate_size": shape("encoder.layers.0.mlp.fc1.weight")[0],
        "num_hidden_layers": tensors.count(_ENCODER + r"encoder\.layers\.(\d+)\."),
        "num_attention_heads": _parts(width, _CLIP_HEAD, "heads"),
        "max_position_embeddings": shape("embeddings.position_embedding.weight")[0],
        "hidden_act": "quick_gelu",
        "layer_norm_eps": 1e-5,
        "bos_token_id": 0,
        "eos_token_id": 2,  # as published: the pooled state is then that of the highest token
        "pad_token_id": 1,
    }


def _t5(tensors: _Tensors) -> dict[str, Any]:
    def shape(name: str) -> tuple[int, ...]:
        return tensors.shape(2, name, f"transformer.{name}")

    first = "encoder.block.0.layer"
    buckets, heads = shape(f"{first}.0.SelfAttention.relative_attention_bias.weight")
    inner, width = shape(f"{first}.0.SelfAttention.q.weight")
    ties = ("shared.weight", "encoder.embed_tokens.weight")
    return {
        "architectures": ["T5EncoderModel"],
        "model_type": "t5",
        "vocab_size": tensors.shape(2, *ties, *(f"transformer.{name}" for name in ties))[0],
        "d_model": width,
        "d_ff": shape(f"{first}.1.DenseReluDense.wi_0.weight")[0],
        "d_kv": _parts(inner, heads, "numbers for each head"),
        "num_heads": heads,
        "num_layers": tensors.count(_ENCODER + r"encoder\.block\.(\d+)\."),
        "relative_attention_num_buckets": buckets,
        "relative_attention_max_distance": 128,
        "feed_forward_proj": "gated-gelu",
        "layer_norm_epsilon": 1e-6,
        "is_encoder_decoder": False,
        "use_cache": False,
    }


def _qwen3(tensors: _Tensors) -> dict[str, Any]:
    def shape(rank: int, name: str) -> tuple[int, ...]:
        return tensors.shape(rank, name, f"model.{name}")

    words, width = shape(2, "embed_tokens.weight")
    head = shape(1, "layers.0.self_attn.q_norm.weight")[0]
    biased = "layers.0.self_attn.q_proj.bias"
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "vocab_size": words,
        "hidden_size": width,
        "intermediate_size": shape(2, "layers.0.mlp.gate_proj.weight")[0],
        "num_hidden_layers": tensors.count(_ENCODER + r"layers\.(\d+)\."),
        "num_attention_heads": _parts(shape(2, "layers.0.self_attn.q_proj.weight")[0], head, "heads"),
        "num_key_value_heads": _parts(shape(2, "layers.0.self_attn.k_proj.weight")[0], head, "heads"),
        "head_dim": head,
        "hidden_act": "silu",
        "attention_bias": tensors.has(biased, f"model.{biased}"),
        "max_position_embeddings": 40960,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1_000_000,
        "tie_word_embeddings": True,
    }


def _parts(whole: int, part: int, what: str) -> int:
    """`whole` / `part`. Raises BadConfig where that is no whole number."""
    if whole % part:
        raise BadConfig(f"a width of {whole} cannot be split into {what} of {part}")
    return whole // part


def _axes(head: int, axes: tuple[int, ...]) -> None:
    if head != sum(axes):
        raise BadConfig(f"its heads are {head} wide; how positions are split is known for {sum(axes)}")


_T5_MARK = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
_CLIP_MARK = "embeddings.token_embedding.weight"
_QWEN_MARK = "layers.0.self_attn.q_norm.weight"
# Of models that are published in one depth, the width that they are known by: the last blocks are then missed, too.
_DEPTHS: Mapping[str, tuple[str, int, Mapping[str, int]]] = {
    "ZImageTransformer2DModel": ("dim", 3840, {"n_layers": 30, "n_refiner_layers": 2}),
    "CLIPTextModel": ("hidden_size", 768, {"num_hidden_layers": 12}),
    "T5EncoderModel": ("d_model", 4096, {"num_layers": 24}),
    "Qwen3Model": ("hidden_size", 2560, {"num_hidden_layers": 36}),
}
_WITHOUT_HEAD = {"Qwen3ForCausalLM": "Qwen3Model"}
# Of each class its name for people, names that only its files have, and how its config is inferred.
_KINDS: Mapping[str, tuple[str, tuple[str, ...], Callable[[_Tensors], dict[str, Any]]]] = {
    "FluxTransformer2DModel": (
        "a Flux transformer",
        ("double_blocks.0.img_attn.norm.query_norm.scale", "transformer_blocks.0.attn.norm_added_q.weight"),
        _flux,
    ),
    "ZImageTransformer2DModel": ("a Z-Image transformer", ("cap_pad_token",), _zimage),
    "AutoencoderKL": ("a VAE", ("decoder.conv_in.weight", "encoder.conv_in.weight"), _vae),
    "CLIPTextModel": ("a CLIP text encoder", (_CLIP_MARK, f"text_model.{_CLIP_MARK}"), _clip),
    "T5EncoderModel": ("a T5 text encoder", (_T5_MARK, f"transformer.{_T5_MARK}"), _t5),
    "Qwen3Model": ("a Qwen3 text encoder", (_QWEN_MARK, f"model.{_QWEN_MARK}"), _qwen3),
}
