"""Text encoders hear of a caption what diffusers' pipelines give them, whatever stands in it.

`benchmarks/pixels.py` holds the same of hundreds of captions against the trainers' own code.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from diffusers import FlowMatchEulerDiscreteScheduler, FluxPipeline, ZImagePipeline
from torch import nn

CPU = torch.device("cpu")
CAPTIONS = (
    "",
    " a red circle,  blue ,",
    "a circle\nof red\r\n",
    "\ta\u00a0circle",
    "<|im_end|> a </s> b <|endoftext|>",
    "e\u0301 猫 🎨",
    "A PHOTO of [trigger]",
    ", ".join(["a long caption"] * 300),
)


class Ear(nn.Module):
    """A text encoder that notes the ids it hears, without those that its mask leaves out."""

    device, dtype = CPU, torch.float32

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[tuple[int, ...]] = []
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, input_ids: Any, attention_mask: Any = None, **_: Any) -> Any:
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        self.heard += [tuple(ids[kept].tolist()) for ids, kept in zip(input_ids, mask.bool(), strict=True)]
        states = torch.zeros(*input_ids.shape, 2)
        return transformers.modeling_outputs.BaseModelOutputWithPooling(
            last_hidden_state=states, pooler_output=states[:, 0], hidden_states=(states,) * 3
        )


@pytest.mark.parametrize("family", ["zimage", "flux"])
def test_text_encoders_hear_what_the_pipeline_tells_them(
    family: str, tiny: Path, flux: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs, ours = Ear(), Ear()
    folder = tiny if family == "zimage" else flux
    tokenizers: list[Any] = [
        transformers.AutoTokenizer.from_pretrained(place) for place in sorted(folder.glob("tokenizer*"))
    ]
    scheduler, empty = FlowMatchEulerDiscreteScheduler(), (None, None)
    make: Any = ZImagePipeline if family == "zimage" else FluxPipeline
    short, long = tokenizers[0], tokenizers[-1]
    parts = (theirs, short, None) if family == "zimage" else (theirs, short, theirs, long, *empty)
    pipeline = make(scheduler, None, *parts)
    module = importlib.import_module(f"zdoctor.doctor.train.families.{family}")
    monkeypatch.setattr(module, "load_text_encoder", lambda *_: ours)
    folders = dict.fromkeys(module.TEXT_PARTS, folder) | {place.name: place for place in folder.glob("tokenizer*")}
    encode = module.text_encoder(folders, "none", torch.float32, CPU)
    more = {"prompt_2": None} if family == "flux" else {"do_classifier_free_guidance": False}
    for caption in CAPTIONS:
        pipeline.encode_prompt(caption, device=CPU, **more)
        encode(caption)
    assert len(ours.heard) == len(CAPTIONS) * len(tokenizers)
    assert ours.heard == theirs.heard
