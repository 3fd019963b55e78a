"""What the transformer of each class is called with, as diffusers' pipelines and the trainers call it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any, NamedTuple

import torch

Called = tuple[tuple[Any, ...], dict[str, Any]]


class Batch(NamedTuple):
    """`size` pictures of `cells` (frames, height, width) in tokens, with `text` tokens each.

    `controls` are the cells of control images that every picture has.
    """

    size: int
    cells: tuple[int, int, int]
    text: int
    controls: tuple[tuple[int, int, int], ...] = ()

    @property
    def image(self) -> int:
        """Tokens of a picture with its control images."""
        return sum(map(prod, (self.cells, *self.controls)))


def inputs_of(model: Any, batch: Batch, dtype: torch.dtype) -> Called:
    """The arguments of a call. Raises KeyError for a class that is not known here."""
    args, named = CALLS[type(model).__name__](model.config, batch, dtype)
    return args, {**named, "return_dict": False}


def _times(batch: Batch, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.full((batch.size,), 0.5, dtype=dtype)


def _picture(
    channels: int, batch: Batch, dtype: torch.dtype, patch: tuple[int, int, int] = (1, 2, 2)
) -> torch.Tensor:
    sides = (cells * step for cells, step in zip(batch.cells, patch, strict=True))
    return torch.zeros(batch.size, channels, *sides, dtype=dtype)


def _zimage(config: Any, batch: Batch, dtype: torch.dtype) -> Called:
    images = list(_picture(config.in_channels, batch, dtype).unbind(0))
    states = [torch.zeros(batch.text, config.cap_feat_dim, dtype=dtype)] * batch.size
    return (images, _times(batch), states), {}


def _sequences(channels: int, width: int, batch: Batch, dtype: torch.dtype) -> dict[str, Any]:
    return {
        "hidden_states": torch.zeros(batch.size, batch.image, channels, dtype=dtype),
        "encoder_hidden_states": torch.zeros(batch.size, batch.text, width, dtype=dtype),
        "timestep": _times(batch, dtype),
    }


def _ids(batch: Batch, axes: int) -> dict[str, Any]:
    return {"img_ids": torch.zeros(batch.image, axes), "txt_ids": torch.zeros(batch.text, axes)}


def _flux(config: Any, batch: Batch, dtype: torch.dtype) -> Called:
    named = _sequences(config.in_channels, config.joint_attention_dim, batch, dtype) | _ids(batch, 3)
    named["pooled_projections"] = torch.zeros(batch.size, config.pooled_projection_dim, dtype=dtype)
    named["guidance"] = torch.ones(batch.size) if config.guidance_embeds else None
    return (), named


def _flux2(config: Any, batch: Batch, dtype: torch.dtype) -> Called:
    named = _sequences(config.in_channels, config.joint_attention_dim, batch, dtype) | _ids(batch, 4)
    named["guidance"] = torch.ones(batch.size) if config.guidance_embeds else None
    return (), named


def _chroma(config: Any, batch: Batch, dtype: torch.dtype) -> Called:
    named = _sequences(config.in_channels, config.joint_attention_dim, batch, dtype) | _ids(batch, 3)
    return (), named


def _qwen_image(config: Any, batch: Batch, dtype: torch.dtype) -> Called:
    named = _sequences(config.in_channels, config.joint_attention_dim, batch, dtype)
    named["img_shapes"] = [[batch.cells, *batch.controls]] * batch.size
    named["encoder_hidden_states_mask"] = torch.ones(batch.size, batch.text, dtype=torch.int64)
    return (), named


def _krea2(config: Any, batch: Batch, dtype: torch.dtype) -> Called:
    return (), {
        "hidden_states": torch.zeros(batch.size, batch.image, config.in_channels, dtype=dtype),
        "encoder_hidden_states": torch.zeros(
            batch.size, batch.text, config.num_text_layers, config.text_hidden_dim, dtype=dtype
        ),
        "timestep": _times(batch),
        "position_ids": torch.zeros(batch.text + batch.image, 3),
    }


def _ideogram4(config: Any, batch: Batch, dtype: torch.dtype) -> Called:
    together = batch.text + batch.image
    shape = (batch.size, together)
    return (), {
        "hidden_states": torch.zeros(*shape, config.in_channels, dtype=dtype),
        "encoder_hidden_states": torch.zeros(*shape, config.llm_features_dim, dtype=dtype),
        "timestep": _times(batch),
        "position_ids": torch.zeros(*shape, 3, dtype=torch.int64),
        "segment_ids": torch.zeros(*shape, dtype=torch.int64),
        "indicator": torch.zeros(*shape, dtype=torch.int64),
    }


def _wan(config: Any, batch: Batch, dtype: torch.dtype) -> Called:
    seen = torch.zeros(batch.size, 257, config.image_dim, dtype=dtype) if config.image_dim else None
    return (), {
        "hidden_states": _picture(config.in_channels, batch, dtype, tuple(config.patch_size)),
        "encoder_hidden_states": torch.zeros(batch.size, batch.text, config.text_dim, dtype=dtype),
        "encoder_hidden_states_image": seen,
        "timestep": torch.full((batch.size,), 500),
    }


def _sd3(config: Any, batch: Batch, dtype: torch.dtype) -> Called:
    return (), {
        "hidden_states": _picture(config.in_channels, batch, dtype)[:, :, 0],
        "encoder_hidden_states": torch.zeros(batch.size, batch.text, config.joint_attention_dim, dtype=dtype),
        "pooled_projections": torch.zeros(batch.size, config.pooled_projection_dim, dtype=dtype),
        "timestep": _times(batch),
    }


def _unet(config: Any, batch: Batch, dtype: torch.dtype) -> Called:
    added = {"text_embeds": torch.zeros(batch.size, 1280, dtype=dtype), "time_ids": torch.zeros(batch.size, 6)}
    return (), {
        "sample": _picture(config.in_channels, batch, dtype, (1, 1, 1))[:, :, 0],
        "timestep": torch.full((batch.size,), 500),
        "encoder_hidden_states": torch.zeros(batch.size, batch.text, config.cross_attention_dim, dtype=dtype),
        "added_cond_kwargs": added if config.addition_embed_type else None,
    }


def _lumina2(config: Any, batch: Batch, dtype: torch.dtype) -> Called:
    return (), {
        "hidden_states": _picture(config.in_channels, batch, dtype)[:, :, 0],
        "timestep": _times(batch, dtype),
        "encoder_hidden_states": torch.zeros(batch.size, batch.text, config.cap_feat_dim, dtype=dtype),
        # how long a prompt is is read out of it
        "encoder_attention_mask": torch.ones(batch.size, batch.text, dtype=torch.bool, device="cpu"),
    }


def _cosmos(config: Any, batch: Batch, dtype: torch.dtype) -> Called:
    return (), {
        "hidden_states": _picture(config.in_channels, batch, dtype, tuple(config.patch_size)),
        "timestep": _times(batch, dtype),
        "encoder_hidden_states": torch.zeros(batch.size, batch.text, config.text_embed_dim, dtype=dtype),
        "padding_mask": torch.zeros(1, 1, batch.cells[1] * 16, batch.cells[2] * 16, dtype=dtype),
    }


def _ltx2(config: Any, batch: Batch, dtype: torch.dtype) -> Called:
    """With as many tokens of silence as the film is long, at 24 pictures and 25 such tokens a second."""
    frames, height, width = batch.cells
    sound = max(1, round((8 * (frames - 1) + 1) / 24 * 25))
    states = torch.zeros(batch.size, batch.text, config.caption_channels, dtype=dtype)
    mask = torch.zeros(batch.size, 1, batch.text, dtype=dtype)
    return (), {
        "hidden_states": torch.zeros(batch.size, batch.image, config.in_channels, dtype=dtype),
        "audio_hidden_states": torch.zeros(batch.size, sound, config.audio_in_channels, dtype=dtype),
        "encoder_hidden_states": states,
        "audio_encoder_hidden_states": states.clone(),
        "timestep": torch.full((batch.size,), 500.0),
        "audio_timestep": torch.full((batch.size,), 500.0),
        "encoder_attention_mask": mask,
        "audio_encoder_attention_mask": mask,
        "num_frames": frames,
        "height": height,
        "width": width,
        "audio_num_frames": sound,
    }


def _ernie(config: Any, batch: Batch, dtype: torch.dtype) -> Called:
    return (), {
        "hidden_states": _picture(config.in_channels, batch, dtype, (1, config.patch_size, config.patch_size))[
            :, :, 0
        ],
        "timestep": _times(batch),
        "text_bth": torch.zeros(batch.size, batch.text, config.text_in_dim, dtype=dtype),
        "text_lens": torch.full((batch.size,), batch.text),
    }


def _nucleus(config: Any, batch: Batch, dtype: torch.dtype) -> Called:
    return (), {
        "hidden_states": torch.zeros(batch.size, batch.image, config.in_channels, dtype=dtype),
        "img_shapes": [batch.cells] * batch.size,
        "encoder_hidden_states": torch.zeros(batch.size, batch.text, config.joint_attention_dim, dtype=dtype),
        "encoder_hidden_states_mask": torch.ones(batch.size, batch.text, dtype=torch.bool),
        "timestep": _times(batch, dtype),
    }


def _prx(config: Any, batch: Batch, dtype: torch.dtype) -> Called:
    return (), {
        "hidden_states": _picture(config.in_channels, batch, dtype, (1, config.patch_size, config.patch_size))[
            :, :, 0
        ],
        "timestep": _times(batch),
        "encoder_hidden_states": torch.zeros(batch.size, batch.text, config.context_in_dim, dtype=dtype),
        "attention_mask": torch.ones(batch.size, batch.text, dtype=torch.bool),
    }


CALLS: Mapping[str, Callable[[Any, Batch, torch.dtype], Called]] = {
    "ZImageTransformer2DModel": _zimage,
    "FluxTransformer2DModel": _flux,
    "Flux2Transformer2DModel": _flux2,
    "ChromaTransformer2DModel": _chroma,
    "QwenImageTransformer2DModel": _qwen_image,
    "Krea2Transformer2DModel": _krea2,
    "Ideogram4Transformer2DModel": _ideogram4,
    "WanTransformer3DModel": _wan,
    "SD3Transformer2DModel": _sd3,
    "UNet2DConditionModel": _unet,
    "Lumina2Transformer2DModel": _lumina2,
    "CosmosTransformer3DModel": _cosmos,
    "LTX2VideoTransformer3DModel": _ltx2,
    "ErnieImageTransformer2DModel": _ernie,
    "NucleusMoEImageTransformer2DModel": _nucleus,
    "PRXTransformer2DModel": _prx,
}
