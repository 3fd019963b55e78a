"""Flux.1 (dev, schnell, Kontext): a stream of T5's states and picture cells, with CLIP's pooled state beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...families.flux.record import FLUX
from ...families.record import Family
from ..components.pretrained import load_tokenizer
from ..components.text_encoder import load_text_encoder
from ..kernels.quantized_linear import Quantization
from ..runtime.transfer import to_device
from . import mu_of_cells, packed, packed_channels, shifted_by_size, stacked, unpacked

RECORD: Family = FLUX
MODULE: str = "diffusers.models.transformers.transformer_flux"
TEXT_PARTS: Mapping[str, str] = {
    "text_encoder": "CLIPTextModel",
    "text_encoder_2": "T5EncoderModel",
    "tokenizer": "",
    "tokenizer_2": "",
}
# What stands before the names of a text encoder's Linears in a LoRA's file: of CLIP-L as diffusers and ComfyUI read
# it, of T5 as ComfyUI does.
TEXT_PREFIXES: Mapping[str, str] = {
    "text_encoder": "text_encoder.text_model.",
    "text_encoder_2": "text_encoders.t5xxl.transformer.",
}
channels = packed_channels
mu = mu_of_cells
RESCALES: bool = False

# T5's tokens, of schnell too: ai-toolkit asks for as many of both.
PROMPT = 512


def text_encoder(
    folders: Mapping[str, Path], kind: Quantization, dtype: torch.dtype, device: torch.device, *, masked: bool = False
) -> Callable[[str], dict[str, Tensor]]:
    """CLIP and T5; `states` are 512 x width, whatever the prompt's length, `pooled` is width.

    `masked`: T5 does not look at what fills the prompt up, and `kept` says by 1 and 0 what is none of that.
    """
    parts = [text_part(name, folders, kind, dtype, device, masked=masked)[1] for name in TEXT_PREFIXES]

    @torch.no_grad()
    def encode(text: str) -> dict[str, Tensor]:
        return {name: values[0].cpu() for part in parts for name, values in part([text]).items()}

    return encode


def text_part(
    name: str,
    folders: Mapping[str, Path],
    kind: Quantization,
    dtype: torch.dtype,
    device: torch.device,
    *,
    masked: bool = False,
) -> tuple[nn.Module, Callable[[Sequence[str]], dict[str, Tensor]]]:
    """One of the two by the name of its component, and what it gives for prompts: b x what `text_encoder` says."""
    from transformers.models.clip.modeling_clip import CLIPTextModel
    from transformers.models.t5.modeling_t5 import T5EncoderModel

    pooled = name == "text_encoder"
    tokenizer = load_tokenizer(folders["tokenizer" if pooled else "tokenizer_2"])
    make, title = (CLIPTextModel, "text encoder") if pooled else (T5EncoderModel, "second text encoder")
    model: Any = load_text_encoder(make, folders[name], title, "none" if pooled else kind, dtype, device)
    length = tokenizer.model_max_length if pooled else PROMPT

    def encode(texts: Sequence[str]) -> dict[str, Tensor]:
        given = tokenizer(list(texts), padding="max_length", truncation=True, max_length=length, return_tensors="pt")
        ids, mask = (to_device(given[name], device) for name in ("input_ids", "attention_mask"))
        if pooled:
            return {"pooled": model(ids).pooler_output}
        if not masked:
            return {"states": model(ids)[0]}
        return {"states": model(ids, attention_mask=mask)[0], "kept": mask.float()}

    return model, encode


def predict(
    model: nn.Module,
    noisy: Tensor,
    t: Tensor,
    texts: Sequence[Mapping[str, Tensor]],
    guidance: float = 1.0,
    controls: Sequence[Tensor] = (),
) -> Tensor:
    """The cells of a control image follow those of the picture, told apart by the first of their three ids."""
    _, _, height, width = noisy.shape
    cells, ids = packed(noisy), cell_ids(height, width, 0)
    count = cells.shape[1]
    for control in controls:
        cells = torch.cat([cells, packed(to_device(control, noisy.device, noisy.dtype))], dim=1)
        ids = torch.cat([ids, cell_ids(control.shape[2], control.shape[3], 1)])
    states, pooled = (stacked(texts, name, noisy) for name in ("states", "pooled"))
    config: Any = model.config
    scale = torch.full((len(texts),), guidance, device=noisy.device) if config.guidance_embeds else None
    attention: dict[str, Tensor] | None = None
    if "kept" in texts[0]:
        kept = to_device(torch.stack([text["kept"] for text in texts]), noisy.device).bool()
        every = torch.ones(len(texts), cells.shape[1], dtype=torch.bool, device=noisy.device)
        attention = {"attention_mask": torch.cat([kept, every], dim=1)[:, None, None, :]}
    output = model(
        hidden_states=cells,
        encoder_hidden_states=states,
        pooled_projections=pooled,
        timestep=to_device(t, noisy.device, torch.float32),
        img_ids=to_device(ids, noisy.device),
        txt_ids=torch.zeros(states.shape[1], 3, device=noisy.device),
        guidance=scale,
        joint_attention_kwargs=attention,
        return_dict=False,
    )[0]
    return unpacked(output[:, :count].float(), height, width)


def cell_ids(height: int, width: int, image: int) -> Tensor:
    """Which image, row and column each cell is of."""
    rows, columns = torch.meshgrid(torch.arange(height // 2), torch.arange(width // 2), indexing="ij")
    return torch.stack([torch.full_like(rows, image), rows, columns], dim=-1).reshape(-1, 3).float()


def shifted_times(count: int, cells: int) -> Tensor:
    """Shifted by the picture's size, as dev's scheduler does; of schnell too."""
    return shifted_by_size(cells, count, RECORD.scheduler({}))
