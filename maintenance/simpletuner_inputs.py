"""What SimpleTuner's own classes (bc8e6ab7) are called with, beside what diffusers' take."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import torch
from torch import Tensor

from zdoctor.doctor.train.rehearsal.inputs import Batch
from zdoctor.maintenance.trainer_classes import boogu, hidream

_OF_SD3 = "_sd3_apply_joint_transformer_block"


def nothing(model: Any, batch: Batch) -> dict[str, Any]:
    return {}


def of_qwen_image(model: Any, batch: Batch) -> dict[str, Any]:
    """How long a prompt is is read out of the mask: that one has numbers."""
    vars(sys.modules[type(model).__module__])["compute_text_seq_len_from_mask"] = _as_long_as_all
    mask = torch.ones(batch.size, batch.text, dtype=torch.int64, device="cpu") if batch.size > 1 else None
    return {"encoder_hidden_states_mask": mask, "txt_seq_lens": [batch.text] * batch.size}


def _as_long_as_all(states: Tensor, mask: Tensor | None) -> tuple[int, None, Tensor | None]:
    return states.shape[1], None, mask


def of_sd3(model: Any, batch: Batch) -> dict[str, Any]:
    """A function computes its blocks, which are never called: the blocks call it."""
    module = vars(sys.modules[type(model).__module__])
    computes = module.setdefault("_computes", module[_OF_SD3])
    for block in model.transformer_blocks:
        block.forward = partial(computes, block)
    module[_OF_SD3] = lambda block, *given, **named: block(*given, **named)
    return {}


def _routed(self: Any, x: Tensor) -> Tensor:
    _, weights, _ = self.gate(x)
    each = x.view(-1, x.shape[-1]).repeat_interleave(self.num_activated_experts, dim=0)
    found = torch.empty_like(each)
    share = len(each) // len(self.experts)
    for expert in self.experts:
        index = torch.zeros(share, dtype=torch.int64, device=x.device)
        found[index] = expert(each[index]).to(x.dtype)
    found = (found.view(*weights.shape, -1) * weights.unsqueeze(-1)).sum(dim=1)
    every: Tensor = found.view(x.shape).to(x.dtype) + self.shared_experts(x)
    return every


def of_hidream(model: Any, batch: Batch) -> dict[str, Any]:
    """As many tokens for each expert: which one a token is for is read out of numbers."""
    for module in model.modules():
        if hasattr(module, "moe_infer"):
            module.forward = partial(_routed, module)
    named = hidream(model, batch, torch.bfloat16)[1]
    t5, llama = named.pop("encoder_hidden_states")
    return {**named, "t5_hidden_states": t5, "llama_hidden_states": llama}


def of_boogu(model: Any, batch: Batch) -> dict[str, Any]:
    return boogu(model, batch, torch.bfloat16)[1]


def of_ideogram4(model: Any, batch: Batch) -> dict[str, Any]:
    """Prompts are projected before they are cached, and given in 32 bits."""
    together = (batch.size, batch.text + batch.image)
    return {
        "llm_features": torch.zeros(*together, model.config.emb_dim),
        "x": torch.zeros(*together, model.config.in_channels, dtype=torch.bfloat16),
        "t": torch.full((batch.size,), 0.5),
        "position_ids": torch.zeros(*together, 3, dtype=torch.int64),
        "segment_ids": torch.ones(*together, dtype=torch.int64),
        "indicator": torch.ones(*together, dtype=torch.int64),
    }
