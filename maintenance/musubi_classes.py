"""Classes of musubi-tuner (30c658c4) as a step of them is rehearsed; its src must be on sys.path."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from importlib import import_module
from typing import Any

import torch

from zdoctor.doctor.families.models.flux2 import KLEIN_4B_CONFIG, KLEIN_9B_CONFIG
from zdoctor.doctor.families.models.hunyuan_video import FRAMEPACK, HUNYUAN_VIDEO
from zdoctor.doctor.families.models.krea2 import CONFIG as KREA2_CONFIG
from zdoctor.doctor.families.models.wan import WAN_1B, WAN_14B, WAN_22, WAN_SEEING, WAN_SEEING_22
from zdoctor.doctor.train.rehearsal.inputs import Batch
from zdoctor.maintenance.builders import module_of
from zdoctor.maintenance.kohya_classes import DOUBLE_AND_SINGLE, OfTrainer, flux_of, given, half, inputs_of_flux


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
        given(model, batch.size, channels, 1, height, width),
        given(model, batch.size, batch.text, text),
    )
    return {"x": picture, "t": half(batch), "cap_feats": prompt, "cap_mask": None}


def _qwen_image(config: Mapping[str, Any]) -> Any:
    module = import_module("musubi_tuner.qwen_image.qwen_image_model")
    every = {"out_channels": 16, "num_layers": 60, **config}
    return module.QwenImageTransformer2DModel(attn_mode="torch", **every)


def _of_qwen_image(model: Any, batch: Batch) -> dict[str, Any]:
    return {
        "hidden_states": given(model, batch.size, batch.image, model.in_channels),
        "timestep": half(batch),
        "encoder_hidden_states": given(model, batch.size, batch.text, model.txt_in.in_features),
        "encoder_hidden_states_mask": None,
        "img_shapes": [[batch.cells, *batch.controls]],
        "txt_seq_lens": [batch.text] * batch.size,
    }


def _flux2(config: Mapping[str, Any]) -> Any:
    module = import_module("musubi_tuner.flux_2.flux2_models")
    return module.Flux2(module.Flux2Params(**config), attn_mode="torch")


def _of_flux2(model: Any, batch: Batch) -> dict[str, Any]:
    return {
        "x": given(model, batch.size, batch.image, model.in_channels),
        "x_ids": torch.zeros(batch.size, batch.image, 4),
        "ctx": given(model, batch.size, batch.text, model.txt_in.in_features),
        "ctx_ids": torch.zeros(batch.size, batch.text, 4),
        "timesteps": half(batch),
        "guidance": half(batch),
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
        "x": given(model, batch.size, model.out_dim, *film),
        "t": half(batch),
        "context": [given(model, batch.text, model.text_dim) for _ in range(batch.size)],
        "seq_len": frames * height * width,
        "clip_fea": given(model, batch.size, 257, 1280) if by_clip else None,
        "y": given(model, batch.size, seen, *film) if seen else None,
    }


def _krea2(config: Mapping[str, Any]) -> Any:
    module = module_of("musubi_tuner.krea2.krea2_mmdit")
    return module.SingleStreamDiT(module.SingleMMDiTConfig(**{**KREA2_CONFIG, **config}), attn_mode="torch")


def _of_krea2(model: Any, batch: Batch) -> dict[str, Any]:
    """How long a prompt is is read out of the mask."""
    of, both = model.config, batch.image + batch.text
    return {
        "img": given(model, batch.size, batch.image, of.channels * of.patch**2),
        "context": given(model, batch.size, batch.text, of.txtlayers, of.txtdim),
        "t": half(batch),
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
        "x": given(model, batch.size, model.in_channels, frames, 2 * height, 2 * width),
        "t": half(batch),
        "text_states": torch.zeros(batch.size, batch.text, model.text_states_dim, dtype=torch.bfloat16),
        "text_mask": torch.ones(batch.size, batch.text, dtype=torch.long, device="cpu"),
        "text_states_2": torch.zeros(batch.size, model.text_states_dim_2, dtype=torch.bfloat16),
        "freqs_cos": torch.zeros(batch.image, sum(model.rope_dim_list)),
        "freqs_sin": torch.zeros(batch.image, sum(model.rope_dim_list)),
        "guidance": half(batch),
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
        "hidden_states": given(model, batch.size, 16, frames, 2 * height, 2 * width),
        "timestep": half(batch),
        "encoder_hidden_states": torch.zeros(batch.size, batch.text - seen, 4096),
        "encoder_attention_mask": torch.ones(batch.size, batch.text - seen, dtype=torch.long, device="cpu"),
        "pooled_projections": torch.zeros(batch.size, 768),
        "guidance": half(batch),
        "image_embeddings": torch.zeros(batch.size, seen, 1152),
        "return_dict": False,
    }


_MM_BLOCKS = {"double_blocks": "mm_double_blocks_depth", "single_blocks": "mm_single_blocks_depth"}
OF_MUSUBI: Mapping[str, OfTrainer] = {
    "musubi-tuner/ZImageTransformer2DModel": OfTrainer(
        _zimage,
        _of_zimage,
        {"noise_refiner": "n_refiner_layers", "context_refiner": "n_refiner_layers", "layers": "n_layers"},
        left_out="_modulation",
    ),
    "musubi-tuner/Flux": OfTrainer(
        partial(flux_of, "musubi_tuner.flux.flux_models", attn_mode="torch"),
        inputs_of_flux,
        DOUBLE_AND_SINGLE,
        left_out=r"_mod\.|modulation",
    ),
    "musubi-tuner/QwenImageTransformer2DModel": OfTrainer(
        _qwen_image,
        _of_qwen_image,
        {"transformer_blocks": "num_layers"},
        ({}, {"zero_cond_t": True}),
    ),
    "musubi-tuner/Flux2": OfTrainer(_flux2, _of_flux2, DOUBLE_AND_SINGLE, ({}, KLEIN_4B_CONFIG, KLEIN_9B_CONFIG)),
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
}
