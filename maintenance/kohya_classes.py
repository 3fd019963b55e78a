"""Classes of musubi-tuner (30c658c4) and sd-scripts (48d368fa) as a step of them is rehearsed.

A checkout must be on sys.path: of musubi-tuner its src. Inputs and the LoRA are in 32 bits and the model in 16, or,
quantized, in 8; autocast in bfloat16 stands between them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import Any
from unittest.mock import Mock

import torch
from torch import Tensor, nn
from torch.utils import checkpoint

from zdoctor.doctor.families.models.flux2 import KLEIN_4B_CONFIG, KLEIN_9B_CONFIG
from zdoctor.doctor.families.models.hunyuan_video import FRAMEPACK, HUNYUAN_VIDEO
from zdoctor.doctor.families.models.krea2 import CONFIG as KREA2_CONFIG
from zdoctor.doctor.families.models.wan import WAN_1B, WAN_14B, WAN_22, WAN_SEEING, WAN_SEEING_22
from zdoctor.doctor.families.record.steps import WHOLE
from zdoctor.doctor.train.rehearsal.inputs import Batch, Called
from zdoctor.doctor.train.rehearsal.step import Own
from zdoctor.doctor.train.weights.materialize import replace_module
from zdoctor.maintenance.autocast import Autocast
from zdoctor.maintenance.builders import module_of

WAYS = ("autocast", "autocast float8")
AUTOCAST = Autocast()
_again = checkpoint.checkpoint


@dataclass(frozen=True)
class OfTrainer:
    """A class: how it is built and called, its lists of blocks with what counts them, and its published configs.

    `left_out` finds the Linears of blocks that get no LoRA, `left_out_of_windows` those that get none where
    convolutions of several pixels do; with `everywhere` those outside of blocks get one, too. `ways` are those that a
    step may compute in: "float8" says that frozen weights are in 8 bits (`scaled`, or as they are), "half" that the
    LoRA is in 16, "windows" that convolutions are trained, "full" that attention is computed in full. `alike`: each
    of several pictures holds what one does. Blocks of the list `adapted` have another LoRA, which does not learn.
    `unlike` is a key of a config by which blocks differ, with how many of them each of its values makes.
    """

    build: Callable[[Mapping[str, Any]], Any]
    inputs: Callable[[Any, Batch], dict[str, Any]]
    lists: Mapping[str, str]
    configs: tuple[Mapping[str, Any], ...] = ({},)
    left_out: str = ""
    ways: tuple[str, ...] = WAYS
    everywhere: bool = False
    adapted: str = ""
    unlike: tuple[str, tuple[tuple[int, Any], ...]] = ("", ())
    left_out_of_windows: str = ""
    scaled: bool = True
    alike: bool = False

    def excluded(self, way: str) -> str:
        """What finds the Linears without a LoRA."""
        return self.left_out_of_windows if "windows" in way else self.left_out


def own_of_kohya(of: OfTrainer, way: str) -> Own:
    """How one of these classes is rehearsed."""

    def build(config: Mapping[str, Any]) -> Any:
        under_autocast()
        model = of.build(config).to("meta", torch.bfloat16)
        for block, module in list(model.named_modules()) if "float8" in way else ():
            if WHOLE in of.lists or block.partition(".")[0] in of.lists:
                _put_in_8_bits(model, block, module, of.scaled)
        if way.endswith("full"):
            model.set_use_sdpa(False)
        model.forward = partial(AUTOCAST.computes, model.forward)
        return model

    def inputs(model: Any, batch: Batch, dtype: torch.dtype) -> Called:
        return (), of.inputs(model, batch)

    lora = partial(Lora, dtype=torch.bfloat16 if "half" in way else torch.float32)
    return Own(build, inputs, lora=lora, trains=True, windows="windows" in way)


def _put_in_8_bits(model: nn.Module, name: str, module: nn.Module, scaled: bool) -> None:
    if scaled and isinstance(module, nn.Linear):
        replace_module(model, name, Float8(module))
    elif not scaled and isinstance(module, nn.Linear | nn.Conv2d):
        module.weight = nn.Parameter(module.weight.detach().to(torch.float8_e4m3fn), requires_grad=False)


def under_autocast() -> None:
    """What classes take of PyTorch does as under autocast, before their modules take it."""
    for module in (torch, torch.amp):
        setattr(module, "autocast", AUTOCAST.turned)  # noqa: B010
    attends = nn.functional.scaled_dot_product_attention
    nn.functional.scaled_dot_product_attention = AUTOCAST.attends(attends)
    setattr(checkpoint, "checkpoint", _checkpoint)  # noqa: B010


def _checkpoint(block: Any, *given: Any, use_reentrant: bool = False, **named: Any) -> Any:
    """The state of the random generator of a device without data cannot be kept; autocast is on again."""
    computes = partial(AUTOCAST.computes, block, **named)
    return _again(computes, *given, use_reentrant=False, preserve_rng_state=False)


class Lora(nn.Module):
    """A Linear or convolution with a LoRA in 32 bits or 16, which is multiplied in the type of autocast."""

    def __init__(
        self, base: nn.Module, shape: tuple[int, int], rank: int, dtype: torch.dtype = torch.float32
    ) -> None:
        super().__init__()
        self.base = base
        window = base.kernel_size if isinstance(base, nn.Conv2d) else ()
        self.down = nn.Parameter(torch.zeros(rank, shape[1], *window, dtype=dtype))
        self.up = nn.Parameter(torch.zeros(shape[0], rank, *(1 for _ in window), dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.base(x)
        if isinstance(self.base, nn.Conv2d):
            down = nn.functional.conv2d(x, self.down, None, self.base.stride, self.base.padding)
            added = nn.functional.conv2d(down, self.up)
        else:
            added = nn.functional.linear(nn.functional.linear(x, self.down), self.up)
        return found + added * 1.0 * 0.5

    def __getattr__(self, name: str) -> Any:
        """The classes ask a Linear for its weight."""
        if name in ("weight", "bias", "in_features", "out_features"):
            return getattr(self._modules["base"], name)
        return super().__getattr__(name)


class Float8(nn.Linear):
    """A Linear in 8 bits, which are made 16 and scaled before each product."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__(base.in_features, base.out_features, bias=False)
        self.weight = nn.Parameter(base.weight.detach().to(torch.float8_e4m3fn), requires_grad=False)
        self.bias = base.bias
        self.register_buffer("scale", torch.zeros(1, dtype=torch.bfloat16))

    def forward(self, input: Tensor) -> Tensor:
        scale = self.get_buffer("scale")
        return nn.functional.linear(input, self.weight.to(scale.dtype) * scale, self.bias)


def _given(model: Any, *shape: int) -> Tensor:
    """What a step that computes again is given requires gradients, as there a block's input must."""
    return torch.zeros(*shape).requires_grad_(model.gradient_checkpointing)


def _half(batch: Batch) -> Tensor:
    return torch.full((batch.size,), 0.5)


def _zimage(config: Mapping[str, Any]) -> Any:
    module = import_module("musubi_tuner.zimage.zimage_model")
    published = import_module("musubi_tuner.zimage.zimage_config")
    names = ("dim", "n_layers", "n_refiner_layers", "n_heads", "n_kv_heads", "cap_feat_dim", "in_channels")
    given = {name: getattr(published, f"DEFAULT_TRANSFORMER_{name.upper()}") for name in names}
    axes = {"axes_dims": published.ROPE_AXES_DIMS, "axes_lens": published.ROPE_AXES_LENS}
    sizes = {"all_patch_size": (2,), "all_f_patch_size": (1,)}
    every = {**given, **axes, **sizes, **config}
    return module.ZImageTransformer2DModel(attn_mode="torch", use_16bit_for_attention=True, **every)


def _of_zimage(model: Any, batch: Batch) -> dict[str, Any]:
    height, width = batch.cells[1] * 2, batch.cells[2] * 2
    channels = model.all_x_embedder["2-1"].in_features // 4
    text = model.cap_embedder[1].in_features
    picture, prompt = (
        _given(model, batch.size, channels, 1, height, width),
        _given(model, batch.size, batch.text, text),
    )
    return {"x": picture, "t": _half(batch), "cap_feats": prompt, "cap_mask": None}


def _flux(module: str, config: Mapping[str, Any], **named: Any) -> Any:
    found = import_module(module)
    every = {
        "in_channels": 64,
        "vec_in_dim": 768,
        "context_in_dim": 4096,
        "hidden_size": 3072,
        "mlp_ratio": 4.0,
        "num_heads": 24,
        "depth": 19,
        "depth_single_blocks": 38,
        "axes_dim": [16, 56, 56],
        "theta": 10_000,
        "qkv_bias": True,
        "guidance_embed": True,
        **config,
    }
    return found.Flux(found.FluxParams(**every), **named)


def _flux_of_sd_scripts(config: Mapping[str, Any]) -> Any:
    without_helpers()
    return _flux("library.flux_models", config)


def without_helpers() -> None:
    """In place of what no forward pass takes, and what asks for packages that need not be there."""
    for other in ("utils", "device_utils", "custom_offloading_utils"):
        sys.modules.setdefault(f"library.{other}", Mock())


def _chroma(config: Mapping[str, Any]) -> Any:
    without_helpers()
    module = import_module("library.chroma_models")
    return module.Chroma(replace(module.chroma_params, **config))


def _of_chroma(model: Any, batch: Batch) -> dict[str, Any]:
    """How long a prompt is is read out of the mask: that one has numbers."""
    return {**_of_flux(model, batch), "txt_attention_mask": torch.ones(batch.size, batch.text, device="cpu")}


def _of_flux(model: Any, batch: Batch) -> dict[str, Any]:
    image, text = batch.image, batch.text
    return {
        "img": _given(model, batch.size, image, model.in_channels),
        "img_ids": torch.zeros(batch.size, image, 3),
        "txt": _given(model, batch.size, text, model.txt_in.in_features),
        "txt_ids": torch.zeros(batch.size, text, 3),
        "y": torch.zeros(batch.size, 768),
        "timesteps": _half(batch),
        "guidance": _half(batch),
    }


def _qwen_image(config: Mapping[str, Any]) -> Any:
    module = import_module("musubi_tuner.qwen_image.qwen_image_model")
    every = {"out_channels": 16, "num_layers": 60, **config}
    return module.QwenImageTransformer2DModel(attn_mode="torch", **every)


def _of_qwen_image(model: Any, batch: Batch) -> dict[str, Any]:
    return {
        "hidden_states": _given(model, batch.size, batch.image, model.in_channels),
        "timestep": _half(batch),
        "encoder_hidden_states": _given(model, batch.size, batch.text, model.txt_in.in_features),
        "encoder_hidden_states_mask": None,
        "img_shapes": [[batch.cells, *batch.controls]],
        "txt_seq_lens": [batch.text] * batch.size,
    }


def _flux2(config: Mapping[str, Any]) -> Any:
    module = import_module("musubi_tuner.flux_2.flux2_models")
    return module.Flux2(module.Flux2Params(**config), attn_mode="torch")


def _of_flux2(model: Any, batch: Batch) -> dict[str, Any]:
    return {
        "x": _given(model, batch.size, batch.image, model.in_channels),
        "x_ids": torch.zeros(batch.size, batch.image, 4),
        "ctx": _given(model, batch.size, batch.text, model.txt_in.in_features),
        "ctx_ids": torch.zeros(batch.size, batch.text, 4),
        "timesteps": _half(batch),
        "guidance": _half(batch),
    }


def _wan(config: Mapping[str, Any]) -> Any:
    """The clock of Wan 2.2 may be told to run as that of 2.1, of one time for all of a film."""
    module = module_of("musubi_tuner.wan.modules.model")
    sizes = {name: value for name, value in config.items() if name != "force_v2_1_time_embedding"}
    model = module.WanModel(attn_mode="torch", **sizes)
    model.set_time_embedding_v2_1(len(sizes) < len(config))
    return model


def _of_wan(model: Any, batch: Batch) -> dict[str, Any]:
    """A model that sees pictures is given their latents beside the noise, Wan 2.1 what CLIP says of them, too."""
    frames, height, width = batch.cells
    model.text_len = batch.text
    seen = model.in_dim - model.out_dim
    film = (frames, 2 * height, 2 * width)
    by_clip = seen and model.model_version == "2.1"
    return {
        "x": _given(model, batch.size, model.out_dim, *film),
        "t": _half(batch),
        "context": [_given(model, batch.text, model.text_dim) for _ in range(batch.size)],
        "seq_len": frames * height * width,
        "clip_fea": _given(model, batch.size, 257, 1280) if by_clip else None,
        "y": _given(model, batch.size, seen, *film) if seen else None,
    }


def _krea2(config: Mapping[str, Any]) -> Any:
    module = module_of("musubi_tuner.krea2.krea2_mmdit")
    return module.SingleStreamDiT(module.SingleMMDiTConfig(**{**KREA2_CONFIG, **config}), attn_mode="torch")


def _of_krea2(model: Any, batch: Batch) -> dict[str, Any]:
    """How long a prompt is is read out of the mask."""
    of, both = model.config, batch.image + batch.text
    return {
        "img": _given(model, batch.size, batch.image, of.channels * of.patch**2),
        "context": _given(model, batch.size, batch.text, of.txtlayers, of.txtdim),
        "t": _half(batch),
        "pos": torch.zeros(batch.size, both, 3),
        "mask": torch.ones(batch.size, both, dtype=torch.bool, device="cpu"),
    }


def _hunyuan_video(config: Mapping[str, Any], *, split: bool) -> Any:
    """Without split_attn there is a mask of all pairs of tokens. Lengths are read from the mask: it has numbers."""
    module = module_of("musubi_tuner.hunyuan_model.models")
    module.get_cu_seqlens = lambda mask, image: torch.zeros(2 * mask.shape[0] + 1, device="cpu")
    sizes = {**HUNYUAN_VIDEO, **config}
    model = module.HYVideoDiffusionTransformer(attn_mode="torch", split_attn=split, **sizes)
    refines = model.txt_in.forward
    model.txt_in.forward = lambda x, t, mask: refines(x, t, torch.ones(mask.shape))
    return model


def _of_hunyuan_video(model: Any, batch: Batch) -> dict[str, Any]:
    frames, height, width = batch.cells
    return {
        "x": _given(model, batch.size, model.in_channels, frames, 2 * height, 2 * width),
        "t": _half(batch),
        "text_states": torch.zeros(batch.size, batch.text, model.text_states_dim, dtype=torch.bfloat16),
        "text_mask": torch.ones(batch.size, batch.text, dtype=torch.long, device="cpu"),
        "text_states_2": torch.zeros(batch.size, model.text_states_dim_2, dtype=torch.bfloat16),
        "freqs_cos": torch.zeros(batch.image, sum(model.rope_dim_list)),
        "freqs_sin": torch.zeros(batch.image, sum(model.rope_dim_list)),
        "guidance": _half(batch),
        "return_dict": False,
    }


def _framepack(config: Mapping[str, Any]) -> Any:
    module = module_of("musubi_tuner.frame_pack.hunyuan_video_packed")
    module.attn_varlen_func = partial(_of_each, module.attn_varlen_func)
    model = module.HunyuanVideoTransformer3DModelPacked(attn_mode="torch", **config)
    refines = model.context_embedder.forward
    model.context_embedder.forward = lambda x, t, mask: refines(x, t, torch.ones(mask.shape))
    return model


def _of_each(attends: Any, *given: Any, split_attn: bool = False, **named: Any) -> Any:
    """Attention of several pictures without split_attn asks for another package."""
    return attends(*given, split_attn=given[7] is not None, **named)


def _of_framepack(model: Any, batch: Batch) -> dict[str, Any]:
    """All that is seen of a film as if it were frames of the window: blocks make no difference.

    How long a prompt is is read out of the mask: that one has numbers.
    """
    frames, height, width = batch.cells
    seen = batch.text // 2
    model.split_attn, model.gradient_checkpointing = batch.size > 1, model.use_gradient_checkpointing
    return {
        "hidden_states": _given(model, batch.size, 16, frames, 2 * height, 2 * width),
        "timestep": _half(batch),
        "encoder_hidden_states": torch.zeros(batch.size, batch.text - seen, 4096),
        "encoder_attention_mask": torch.ones(batch.size, batch.text - seen, dtype=torch.long, device="cpu"),
        "pooled_projections": torch.zeros(batch.size, 768),
        "guidance": _half(batch),
        "image_embeddings": torch.zeros(batch.size, seen, 1152),
        "return_dict": False,
    }


_DOUBLE_AND_SINGLE = {"double_blocks": "depth", "single_blocks": "depth_single_blocks"}
_MM_BLOCKS = {"double_blocks": "mm_double_blocks_depth", "single_blocks": "mm_single_blocks_depth"}
OF_KOHYA: Mapping[str, OfTrainer] = {
    "musubi-tuner/ZImageTransformer2DModel": OfTrainer(
        _zimage,
        _of_zimage,
        {"noise_refiner": "n_refiner_layers", "context_refiner": "n_refiner_layers", "layers": "n_layers"},
        left_out="_modulation",
    ),
    "musubi-tuner/Flux": OfTrainer(
        partial(_flux, "musubi_tuner.flux.flux_models", attn_mode="torch"),
        _of_flux,
        _DOUBLE_AND_SINGLE,
        left_out=r"_mod\.|modulation",
    ),
    "musubi-tuner/QwenImageTransformer2DModel": OfTrainer(
        _qwen_image,
        _of_qwen_image,
        {"transformer_blocks": "num_layers"},
        ({}, {"zero_cond_t": True}),
    ),
    "musubi-tuner/Flux2": OfTrainer(_flux2, _of_flux2, _DOUBLE_AND_SINGLE, ({}, KLEIN_4B_CONFIG, KLEIN_9B_CONFIG)),
    "musubi-tuner/SingleStreamDiT": OfTrainer(_krea2, _of_krea2, {"blocks": "layers"}, everywhere=True),
    "musubi-tuner/HYVideoDiffusionTransformer": OfTrainer(
        partial(_hunyuan_video, split=False), _of_hunyuan_video, _MM_BLOCKS, left_out="img_mod|txt_mod|modulation"
    ),
    "musubi-tuner/HYVideoDiffusionTransformerSplit": OfTrainer(
        partial(_hunyuan_video, split=True), _of_hunyuan_video, _MM_BLOCKS, left_out="img_mod|txt_mod|modulation"
    ),
    "musubi-tuner/HunyuanVideoTransformer3DModelPacked": OfTrainer(
        _framepack,
        _of_framepack,
        {"transformer_blocks": "num_layers", "single_transformer_blocks": "num_single_layers"},
        (FRAMEPACK,),
        left_out="norm",
    ),
    "musubi-tuner/WanModel": OfTrainer(_wan, _of_wan, {"blocks": "num_layers"}, (WAN_14B, WAN_1B)),
    "musubi-tuner/WanModelI2V": OfTrainer(_wan, _of_wan, {"blocks": "num_layers"}, (WAN_SEEING,)),
    "musubi-tuner/WanModel2.2": OfTrainer(
        _wan, _of_wan, {"blocks": "num_layers"}, (WAN_22, {**WAN_22, "force_v2_1_time_embedding": True})
    ),
    "musubi-tuner/WanModel2.2I2V": OfTrainer(
        _wan,
        _of_wan,
        {"blocks": "num_layers"},
        (WAN_SEEING_22, {**WAN_SEEING_22, "force_v2_1_time_embedding": True}),
    ),
    "sd-scripts/Chroma": OfTrainer(_chroma, _of_chroma, _DOUBLE_AND_SINGLE),
    "sd-scripts/Flux": OfTrainer(_flux_of_sd_scripts, _of_flux, _DOUBLE_AND_SINGLE),
}
