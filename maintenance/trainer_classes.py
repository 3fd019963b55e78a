"""Classes of ai-toolkit's own (27a03a91) as they are rehearsed: built from its checkout, and called as it does.

A checkout must be on sys.path. What a class reads out of a mask's numbers needs a mask with numbers: those are on the
processor, all else is without data.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch.utils import checkpoint

from zdoctor.doctor.train.rehearsal.inputs import Batch, Called, inputs_of
from zdoctor.doctor.train.rehearsal.step import Own
from zdoctor.maintenance.builders import maker_of
from zdoctor.maintenance.classes import CLASSES, Source

_again = checkpoint.checkpoint


def own(name: str) -> Own | None:
    """How a class of ai-toolkit's own is rehearsed; None for a class of diffusers."""
    source = _COPIES.get(name) or next((one for one in CLASSES if one.name == name and one.trainer), None)
    if name in _OF_DIFFUSERS:
        source = Source(name, "diffusers")
    if source is None:
        return None
    setattr(checkpoint, "checkpoint", _without_random_state)  # noqa: B010 (before the modules take it)
    maker = maker_of(source)

    def build(config: Mapping[str, Any]) -> Any:
        model = maker.build(config).to("meta", torch.get_default_dtype())
        _CHANGED.get(name, lambda model: None)(model)
        return model

    return Own(build, _INPUTS.get(name, inputs_of))


def _without_random_state(block: Any, *given: Any, use_reentrant: bool = False, **named: Any) -> Any:
    """The state of the random generator of a device without data cannot be kept."""
    return _again(partial(block, **named), *given, use_reentrant=False, preserve_rng_state=False)


def _times(batch: Batch, dtype: torch.dtype) -> torch.Tensor:
    return torch.full((batch.size,), 0.5, dtype=dtype)


def _mask(batch: Batch) -> torch.Tensor:
    return torch.ones(batch.size, batch.text, dtype=torch.bool, device="cpu")


def _picture(channels: int, batch: Batch, dtype: torch.dtype, patch: int) -> torch.Tensor:
    return torch.zeros(batch.size, channels, batch.cells[1] * patch, batch.cells[2] * patch, dtype=dtype)


def _flux2(model: Any, batch: Batch, dtype: torch.dtype) -> Called:
    return (), {
        "x": torch.zeros(batch.size, batch.image, model.in_channels, dtype=dtype),
        "x_ids": torch.zeros(batch.size, batch.image, 4),
        "timesteps": _times(batch, dtype),
        "ctx": torch.zeros(batch.size, batch.text, model.txt_in.in_features, dtype=dtype),
        "ctx_ids": torch.zeros(batch.size, batch.text, 4),
        "guidance": _times(batch, dtype),
    }


def _chroma(model: Any, batch: Batch, dtype: torch.dtype) -> Called:
    return (), {
        "img": torch.zeros(batch.size, batch.image, model.in_channels, dtype=dtype),
        "img_ids": torch.zeros(batch.size, batch.image, 3),
        "txt": torch.zeros(batch.size, batch.text, model.txt_in.in_features, dtype=dtype),
        "txt_ids": torch.zeros(batch.size, batch.text, 3),
        "txt_mask": torch.ones(batch.size, batch.text, dtype=dtype),
        "timesteps": _times(batch, torch.float32),
        "guidance": _times(batch, torch.float32),
    }


def _krea2(model: Any, batch: Batch, dtype: torch.dtype) -> Called:
    config, together = model.config, batch.image + batch.text
    return (), {
        "img": torch.zeros(batch.size, batch.image, config.channels * config.patch**2, dtype=dtype),
        "context": torch.zeros(batch.size, batch.text, config.txtlayers, config.txtdim, dtype=dtype),
        "t": _times(batch, torch.float32),
        "pos": torch.zeros(batch.size, together, 3),
        "mask": torch.ones(batch.size, together, dtype=torch.bool),
    }


def _ideogram4(model: Any, batch: Batch, dtype: torch.dtype) -> Called:
    shape = (batch.size, batch.image + batch.text)
    return (), {
        "llm_features": torch.zeros(*shape, model.config.llm_features_dim, dtype=dtype),
        "x": torch.zeros(*shape, model.config.in_channels, dtype=dtype),
        "t": _times(batch, torch.float32),
        "position_ids": torch.zeros(*shape, 3, dtype=torch.int64),
        "segment_ids": torch.ones(*shape, dtype=torch.int64),
        "indicator": torch.ones(*shape, dtype=torch.int64),
    }


def _zeta_chroma(model: Any, batch: Batch, dtype: torch.dtype) -> Called:
    return (), {
        "img": torch.zeros(batch.size, batch.image, model.in_channels, dtype=dtype),
        "img_ids": torch.zeros(batch.size, batch.image, 3, dtype=torch.int32),
        "img_mask": torch.ones(batch.size, batch.image, dtype=torch.bool),
        "txt": torch.zeros(batch.size, batch.text, model.cap_embedder[-1].in_features, dtype=dtype),
        "txt_ids": torch.zeros(batch.size, batch.text, 3, dtype=torch.int32),
        "txt_mask": torch.ones(batch.size, batch.text, dtype=torch.bool),
        "timesteps": _times(batch, torch.float32),
    }


def _freqs(model: Any) -> Any:
    config = model.config
    return type(model.rope_embedder).get_freqs_cis(config.axes_dim_rope, config.axes_lens, theta=10000)


def _omnigen2(model: Any, batch: Batch, dtype: torch.dtype) -> Called:
    config = model.config
    return (), {
        "hidden_states": _picture(config.in_channels, batch, dtype, config.patch_size),
        "timestep": _times(batch, dtype),
        "text_hidden_states": torch.zeros(batch.size, batch.text, config.text_feat_dim, dtype=dtype),
        "freqs_cis": _freqs(model),
        "text_attention_mask": _mask(batch),
    }


def boogu(model: Any, batch: Batch, dtype: torch.dtype) -> Called:
    width = model.config.instruction_feature_configs["instruction_feat_dim"]
    return (), {
        "hidden_states": _picture(model.config.in_channels, batch, dtype, model.config.patch_size),
        "timestep": _times(batch, torch.float32),
        "instruction_hidden_states": torch.zeros(batch.size, batch.text, width, dtype=dtype),
        "freqs_cis": _freqs(model),
        "instruction_attention_mask": _mask(batch),
    }


def hidream(model: Any, batch: Batch, dtype: torch.dtype) -> Called:
    """A picture that is no square: of others the tokens are not filled up to the most there can be."""
    config = model.config
    states = [torch.zeros(batch.size, batch.text // 2, width, dtype=dtype) for width in config.caption_channels]
    every = torch.zeros(
        len(config.llama_layers), batch.size, batch.text // 2, config.caption_channels[1], dtype=dtype
    )
    return (), {
        "hidden_states": _picture(config.in_channels, batch, dtype, config.patch_size),
        "timesteps": _times(batch, torch.float32),
        "encoder_hidden_states": [states[0], every],
        "pooled_embeds": torch.zeros(batch.size, config.text_emb_dim, dtype=dtype),
        "return_dict": False,
    }


def _evenly_routed(model: Any) -> None:
    """Each expert has as many tokens: which one a token is for is read out of numbers."""

    def routed(self: Any, x: Any, indices: Any, weights: Any) -> Any:
        found, order = torch.zeros_like(x), indices.argsort()
        tokens = order // self.num_activated_experts
        share = len(order) // len(self.experts)
        for number, expert in enumerate(self.experts):
            part = slice(number * share, (number + 1) * share)
            out = expert(x[tokens[part]])
            out.mul_(weights[order[part]])
            index = tokens[part].view(-1, 1).repeat(1, x.shape[-1])
            # in place, which autograd lets pass where the block is computed again
            add = found.scatter_reduce_ if model.gradient_checkpointing else found.scatter_reduce
            found = add(0, index, out, reduce="sum")
        return found

    for module in model.modules():
        if hasattr(module, "moe_infer"):
            type(module).moe_infer = routed


def _chroma_without_loops(model: Any) -> None:
    """The mask is taken as it is: what it is made to let through does not change its size."""
    vars(sys.modules[type(model).__module__])["modify_mask_to_attend_padding"] = lambda mask, *others: mask


def _experts(self: Any, x: Any, counts: Any) -> Any:
    """Each of the experts has as many tokens, as that class's router has it."""
    outs = []
    for number, part in enumerate(x.split(len(x) // self.num_experts)):
        gate, up = torch.matmul(part, self.gate_up_proj[number]).chunk(2, dim=-1)
        outs.append(torch.matmul(torch.nn.functional.silu(gate) * up, self.down_proj[number]))
    out = torch.cat(outs, dim=0)
    return torch.vstack((out, out.new_zeros((0, out.shape[-1]))))


def _alike(model: Any) -> None:
    for module in model.modules():
        if hasattr(module, "gate_up_proj"):
            type(module)._run_experts_for_loop = _experts


def _resizing(model: Any) -> None:
    """In place of torchvision's resize, of which no more than the size of what it gives counts."""

    def resize(picture: Any, size: Any, **how: Any) -> Any:
        return picture.new_zeros(*picture.shape[:-2], *size)

    made = SimpleNamespace(functional=SimpleNamespace(resize=resize), InterpolationMode=SimpleNamespace(NEAREST=0))
    vars(sys.modules[type(model).__module__])["transforms"] = made


_INPUTS: Mapping[str, Callable[[Any, Batch, torch.dtype], Called]] = {
    "Flux2": _flux2,
    "Chroma": _chroma,
    "SingleStreamDiT": _krea2,
    "Ideogram4": _ideogram4,
    "ZImageDCT": _zeta_chroma,
    "OmniGen2Transformer2DModel": _omnigen2,
    "BooguImageTransformer2DModel": boogu,
    "HiDreamImageTransformer2DModel": hidream,
}
_CHANGED: Mapping[str, Callable[[Any], None]] = {
    "Chroma": _chroma_without_loops,
    "HiDreamImageTransformer2DModel": _evenly_routed,
    "NucleusMoEImageTransformer2DModel": _alike,
    "CosmosTransformer3DModel": _resizing,
}
# Of diffusers, with something in it changed.
_OF_DIFFUSERS = ("NucleusMoEImageTransformer2DModel", "CosmosTransformer3DModel")
# Of diffusers, too, which computes it in another way.
_COPIES = {
    "HiDreamImageTransformer2DModel": Source(
        "HiDreamImageTransformer2DModel",
        "extensions_built_in.diffusion_models.hidream.src.models.transformers.transformer_hidream_image",
        trainer="ai-toolkit 27a03a91",
    )
}
