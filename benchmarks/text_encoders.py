"""What a text encoder with a LoRA of sd-scripts holds for a prompt, traced on tensors without data.

    python benchmarks/text_encoders.py [CLASS ...]

The real class of transformers, of the published size and in 16 bits, with kohya's LoRA of rank 16 in 32 bits on its
Linears, makes a step under autocast: with its layers computed again, and all kept. Counted is what there is above
weights and gradients at the highest.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
import transformers

from zdoctor.doctor.families.components.clip_text import CLIP_L
from zdoctor.doctor.families.components.published import CLIP_G, QWEN3_06B
from zdoctor.doctor.families.record.steps import WHOLE
from zdoctor.doctor.model.recipe import Network
from zdoctor.doctor.train.rehearsal.inputs import Batch, Called
from zdoctor.doctor.train.rehearsal.step import Own, Step, rehearsed
from zdoctor.maintenance.kohya_classes import AUTOCAST, Lora, under_autocast

MIB = 1 << 20
# class -> config, and tokens of a prompt
ENCODERS: Mapping[str, tuple[Mapping[str, Any], int]] = {
    "CLIPTextModel": (CLIP_L, 77),
    "CLIPTextModelWithProjection": (CLIP_G, 77),
    "Gemma2Model": ({}, 256),
    "Qwen3Model": (QWEN3_06B, 512),
}


def built(name: str, config: Mapping[str, Any]) -> Any:
    under_autocast()
    kind = getattr(transformers, name)
    how = "sdpa" if kind._supports_sdpa else "eager"
    made = kind.config_class(**config, attn_implementation=how, use_cache=False)
    model = kind(made).to("meta", torch.bfloat16)
    run = partial(AUTOCAST.computes, model.forward)
    model.forward = lambda **given: run(**given, output_hidden_states=True).hidden_states[-1]
    model.enable_gradient_checkpointing = lambda: again(model)
    return model


def again(model: Any) -> None:
    """As the scripts have it: the embeddings require gradients, so that what is computed again does."""
    model.gradient_checkpointing_enable()
    model.get_input_embeddings().requires_grad_()


def given(model: Any, batch: Batch, dtype: torch.dtype) -> Called:
    return (), {"input_ids": torch.zeros(batch.size, batch.text, dtype=torch.int64)}


def main(names: list[str]) -> None:
    for name in names or ENCODERS:
        config, tokens = ENCODERS[name]
        for checkpointing in (True, False):
            own = Own(
                partial(built, name),
                given,
                lora=Lora,
                trains=True,
            )
            batch, network = Batch(1, (1, 1, 1), tokens), Network(rank=16, alpha=16.0)
            step = Step(name, config, (WHOLE,), (WHOLE,), batch, network, checkpointing=checkpointing, own=own)
            held = rehearsed(step)
            gradients = held.at_peak.get("gradients", 0)
            said = "computed again" if checkpointing else "kept"
            print(f"{name:28} {said:15} {(held.peak - held.static - gradients) / MIB:8.1f} MiB", held.at_peak)


if __name__ == "__main__":
    main(sys.argv[1:])
