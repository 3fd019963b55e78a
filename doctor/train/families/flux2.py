"""FLUX.2 Klein, and what dev has of it: Qwen3's states in a stream with picture cells, all blocks modulated alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...families.models.flux2_in_diffusers import KLEIN_4B
from ...families.record import Family
from ..components.pretrained import load_tokenizer
from ..components.text_encoder import load_text_encoder
from ..kernels.quantized_linear import Quantization
from ..runtime.transfer import to_device
from . import packed, packed_channels, shifted_by_size, stacked, unpacked

RECORD: Family = KLEIN_4B
MODULE: str = "diffusers.models.transformers.transformer_flux2"
TEXT_PARTS: Mapping[str, str] = {"text_encoder": "Qwen3Model", "tokenizer": ""}
channels = packed_channels
RESCALES: bool = False

PROMPT = 512
# Of Qwen3's hidden states these are put one beside the other.
LAYERS = (9, 18, 27)


def text_encoder(
    folders: Mapping[str, Path], kind: Quantization, dtype: torch.dtype, device: torch.device, *, masked: bool = False
) -> Callable[[str], dict[str, Tensor]]:
    """Qwen3 with its chat template; `states` are 512 x three times its width, whatever the prompt's length.

    What fills a prompt up is part of what the transformer was made with, so none is `masked`.
    """
    from transformers.models.qwen3.modeling_qwen3 import Qwen3Model

    tokenizer = load_tokenizer(folders["tokenizer"])
    model: Any = load_text_encoder(Qwen3Model, folders["text_encoder"], "text encoder", kind, dtype, device)

    @torch.no_grad()
    def encode(text: str) -> dict[str, Tensor]:
        prompt = tokenizer.apply_chat_template(
            [{"role": "user", "content": text}], tokenize=False, add_generation_prompt=True, enable_thinking=False
        )
        given = tokenizer(prompt, padding="max_length", truncation=True, max_length=PROMPT, return_tensors="pt")
        return stacked_states(model, given, LAYERS)

    return encode


def stacked_states(model: Any, given: Any, layers: Sequence[int]) -> dict[str, Tensor]:
    """What these layers of a language model give for one tokenized prompt, side by side; on the CPU."""
    found = model(
        input_ids=given.input_ids.to(model.device),
        attention_mask=given.attention_mask.to(model.device),
        output_hidden_states=True,
        use_cache=False,
    ).hidden_states
    return {"states": torch.cat([found[layer][0] for layer in layers], dim=-1).cpu()}


def predict(
    model: nn.Module,
    noisy: Tensor,
    t: Tensor,
    texts: Sequence[Mapping[str, Tensor]],
    guidance: float = 1.0,
    controls: Sequence[Tensor] = (),
) -> Tensor:
    """A cell has four ids: which image (0, and of control images 10, 20, …), row, column, and of the prompt which
    token.
    """
    height, width = noisy.shape[2:]
    images = [noisy, *(to_device(one, noisy.device, noisy.dtype) for one in controls)]
    states = stacked(texts, "states", noisy)
    tokens = torch.arange(states.shape[1])
    none = torch.zeros_like(tokens)
    config: Any = model.config
    scale = torch.full((len(texts),), guidance, device=noisy.device) if config.guidance_embeds else None
    output = model(
        hidden_states=torch.cat([packed(one) for one in images], dim=1),
        encoder_hidden_states=states,
        timestep=to_device(t, noisy.device, torch.float32),
        img_ids=to_device(torch.cat([_ids(10 * number, one) for number, one in enumerate(images)]), noisy.device),
        txt_ids=to_device(torch.stack([none, none, none, tokens], dim=-1), noisy.device),
        guidance=scale,
        return_dict=False,
    )[0]
    return unpacked(output[:, : height * width // 4].float(), height, width)


def _ids(image: int, latent: Tensor) -> Tensor:
    rows, columns = (side // 2 for side in latent.shape[2:])
    cells = torch.arange(rows * columns)
    nothing = torch.zeros_like(cells)
    return torch.stack([nothing + image, cells // columns, cells % columns, nothing], dim=-1)


def mu(cells: int, steps: int, scheduler: Mapping[str, Any]) -> float:
    """Fitted by its authors to the picture's cells and the steps; from 4300 cells on the steps do not count."""
    of_200 = 0.00016927 * cells + 0.45666666
    if cells > 4300:
        return of_200
    of_10 = 8.73809524e-05 * cells + 1.89833333
    return of_200 + (of_200 - of_10) / 190.0 * (steps - 200.0)


def shifted_times(count: int, cells: int) -> Tensor:
    """Shifted by the picture's size, as ai-toolkit's scheduler for it does."""
    return shifted_by_size(cells, count, RECORD.scheduler({}))
