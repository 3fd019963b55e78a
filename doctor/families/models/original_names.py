"""The names that diffusers' tensors have in the authors' own files, which ComfyUI and most trainers' LoRAs use."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

Original = Callable[[str], str]


def by_table(parts: Mapping[str, str]) -> Original:
    """A function of names that replaces these parts, patterns of whole words between dots, each where it stands."""
    words = list(parts.items())
    any_of = re.compile(rf"(?<![^.])(?:{'|'.join(f'({pattern})' for pattern, _ in words)})(?![^.])")

    def name_of(name: str) -> str:
        return any_of.sub(lambda found: words[(found.lastindex or 1) - 1][1], name)

    return name_of


_TO_QKV = {"to_q": "q", "to_k": "k", "to_v": "v", r"to_out\.0": "o"}
_Q_PROJ = {"to_q": "q_proj", "to_k": "k_proj", "to_v": "v_proj", r"to_out\.0": "output_proj"}
_TIME = r"condition_embedder\.time_embedder\.linear_"
_TEXT = r"condition_embedder\.text_embedder\.linear_"
_IMAGE = r"condition_embedder\.image_embedder\."

wan = by_table(
    {
        "attn1": "self_attn",
        "attn2": "cross_attn",
        **_TO_QKV,
        "add_k_proj": "k_img",
        "add_v_proj": "v_img",
        "norm_added_k": "norm_k_img",
        r"ffn\.net\.0\.proj": "ffn.0",
        r"ffn\.net\.2": "ffn.2",
        _IMAGE + "norm1": "img_emb.proj.0",
        _IMAGE + r"ff\.net\.0\.proj": "img_emb.proj.1",
        _IMAGE + r"ff\.net\.2": "img_emb.proj.3",
        _IMAGE + "norm2": "img_emb.proj.4",
        _IMAGE + "pos_embed": "img_emb.emb_pos",
        "norm2": "norm3",
        _TIME + "1": "time_embedding.0",
        _TIME + "2": "time_embedding.2",
        _TEXT + "1": "text_embedding.0",
        _TEXT + "2": "text_embedding.2",
        r"condition_embedder\.time_proj": "time_projection.1",
        "^scale_shift_table": "head.modulation",
        "scale_shift_table": "modulation",
        "proj_out": "head.head",
    }
)
cosmos = by_table(
    {
        "transformer_blocks": "blocks",
        "attn1": "self_attn",
        "attn2": "cross_attn",
        **_Q_PROJ,
        "norm_q": "q_norm",
        "norm_k": "k_norm",
        r"norm1\.linear_1": "adaln_modulation_self_attn.1",
        r"norm1\.linear_2": "adaln_modulation_self_attn.2",
        r"norm2\.linear_1": "adaln_modulation_cross_attn.1",
        r"norm2\.linear_2": "adaln_modulation_cross_attn.2",
        r"norm3\.linear_1": "adaln_modulation_mlp.1",
        r"norm3\.linear_2": "adaln_modulation_mlp.2",
        r"ff\.net\.0\.proj": "mlp.layer1",
        r"ff\.net\.2": "mlp.layer2",
        r"norm_out\.linear_1": "final_layer.adaln_modulation.1",
        r"norm_out\.linear_2": "final_layer.adaln_modulation.2",
        "proj_out": "final_layer.linear",
        r"time_embed\.t_embedder": "t_embedder.1",
        r"time_embed\.norm": "t_embedding_norm",
        r"patch_embed\.proj": "x_embedder.proj.1",
    }
)
lumina2 = by_table(
    {
        r"attn\.to_[qkv]": "attention.qkv",
        r"attn\.to_out\.0": "attention.out",
        r"attn\.norm_q": "attention.q_norm",
        r"attn\.norm_k": "attention.k_norm",
        r"feed_forward\.linear_1": "feed_forward.w1",
        r"feed_forward\.linear_2": "feed_forward.w2",
        r"feed_forward\.linear_3": "feed_forward.w3",
        r"norm1\.linear": "adaLN_modulation.1",
        r"norm1\.norm": "attention_norm1",
        "norm1": "attention_norm1",
        "norm2": "attention_norm2",
        r"time_caption_embed\.timestep_embedder\.linear_1": "t_embedder.mlp.0",
        r"time_caption_embed\.timestep_embedder\.linear_2": "t_embedder.mlp.2",
        r"time_caption_embed\.caption_embedder": "cap_embedder",
        r"norm_out\.linear_1": "final_layer.adaLN_modulation.1",
        r"norm_out\.linear_2": "final_layer.linear",
    }
)
ltx2 = by_table(
    {
        "proj_in": "patchify_proj",
        "audio_proj_in": "audio_patchify_proj",
        "time_embed": "adaln_single",
        "audio_time_embed": "audio_adaln_single",
        "av_cross_attn_video_scale_shift": "av_ca_video_scale_shift_adaln_single",
        "av_cross_attn_video_a2v_gate": "av_ca_a2v_gate_adaln_single",
        "av_cross_attn_audio_scale_shift": "av_ca_audio_scale_shift_adaln_single",
        "av_cross_attn_audio_v2a_gate": "av_ca_v2a_gate_adaln_single",
        "video_a2v_cross_attn_scale_shift_table": "scale_shift_table_a2v_ca_video",
        "audio_a2v_cross_attn_scale_shift_table": "scale_shift_table_a2v_ca_audio",
        "norm_q": "q_norm",
        "norm_k": "k_norm",
        "prompt_adaln": "prompt_adaln_single",
        "audio_prompt_adaln": "audio_prompt_adaln_single",
    }
)
krea2 = by_table(
    {
        "transformer_blocks": "blocks",
        "text_fusion": "txtfusion",
        "to_q": "wq",
        "to_k": "wk",
        "to_v": "wv",
        r"to_out\.0": "wo",
        "to_gate": "gate",
        "ff": "mlp",
        "img_in": "first",
        "final_layer": "last",
        r"time_embed\.linear_1": "tmlp.0",
        r"time_embed\.linear_2": "tmlp.2",
        "time_mod_proj": "tproj.1",
        r"txt_in\.norm": "txtmlp.0",
        r"txt_in\.linear_1": "txtmlp.1",
        r"txt_in\.linear_2": "txtmlp.3",
    }
)
