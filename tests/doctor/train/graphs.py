"""The blocks of each family as torch.compile sees them on a card: whole graphs, of tensors that lie there.

A process of its own with card.cpp, as card.py. A block that a step on the CPU has called is put on the card as fake
tensors (PyTorch's own, whose operations check devices and give shapes alone) and is traced forward and backward, its
forward once more as a checkpoint computes it again. No kernel is made of the graphs. Those of nf4 make
tensors on the card by themselves, and cannot run here.
"""

from __future__ import annotations

import json
import pickle
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch._dynamo.backends.common import aot_autograd
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_map
from torch.utils.checkpoint import checkpoint

from zdoctor.doctor.families import family_of
from zdoctor.doctor.train.families import module_of
from zdoctor.doctor.train.kernels.quantized_linear import Quantization
from zdoctor.doctor.train.network.lora import add_network, lora_targets
from zdoctor.doctor.train.transformer.load_transformer import (
    build_empty_transformer,
    fill_transformer,
    transformer_folder,
)
from zdoctor.doctor.train.transformer.transformer_blocks import transformer_blocks
from zdoctor.tests.doctor.train.patient import run_with

from . import card

# What makes the CPU wait for the card, or a graph end where a number decides.
WIDTHS = ("joint_attention_dim", "cross_attention_dim", "cap_feat_dim")
WAITING = ("_local_scalar_dense", "nonzero", "is_nonzero", "equal", "masked_select", "unique", "item")


@dataclass(frozen=True)
class Traced:
    """A transformer of an architecture in a folder with frozen weights in this format."""

    folder: Path
    architecture: str
    kind: Quantization


@dataclass
class Seen:
    """What the graphs hold: how many there are, operations that wait, and those of tensors that lie on the CPU."""

    graphs: int = 0
    waiting: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)
    operations: Counter[str] = field(default_factory=Counter)

    def take(self, graph: Any, inputs: Any) -> Callable[..., Any]:
        self.graphs += 1
        for node in graph.graph.nodes:
            name = str(node.target)
            self.operations[name] += node.op == "call_function"
            if node.op == "call_function" and any(word in name.split(".") for word in WAITING):
                self.waiting.append(name)
            for value in torch.utils._pytree.tree_leaves(node.meta.get("val")):
                if isinstance(value, Tensor) and value.dim() and value.device.type != "cuda":
                    self.elsewhere.append(f"{name} on {value.device}")
        return graph.forward  # type: ignore[no-any-return]


def calls_of(asked: Traced) -> list[tuple[nn.Module, Any, Any]]:
    """One block of each class, with what a step calls it with."""
    place = transformer_folder(asked.folder)
    model = build_empty_transformer(place)
    cpu = torch.device("cpu")
    fill_transformer(model, place, quantization=asked.kind, adapter={}, dtype=torch.bfloat16, device=cpu)
    add_network(model, lora_targets(model), run_with(rank=4).recipe.network, 1)
    found: dict[str, tuple[nn.Module, Any, Any]] = {}
    for block in transformer_blocks(model):
        name = type(block).__name__ + str(sum(p.requires_grad for p in block.parameters()) > 0)

        def note(block: nn.Module, args: Any, named: Any, name: str = name) -> None:
            found.setdefault(name, (block, args, named))

        block.register_forward_pre_hook(note, with_kwargs=True)
    family = module_of(family_of(asked.architecture))
    config: Any = model.config
    width = next(config[key] for key in WIDTHS if key in config)
    texts = [{"states": torch.randn(77, width), "pooled": torch.randn(pooled_of(config))}]
    with torch.no_grad():
        family.predict(model, torch.randn(1, family.channels(model), 16, 16).bfloat16(), torch.tensor([0.4]), texts)
    for block, _, _ in found.values():
        block._forward_pre_hooks.clear()
        block._forward_pre_hooks_with_kwargs.clear()
    return list(found.values())


def pooled_of(config: Any) -> int:
    added = config.get("projection_class_embeddings_input_dim")
    return int(added - 6 * config["addition_time_embed_dim"] if added else config.get("pooled_projection_dim", 1))


def traced(asked: Traced) -> dict[str, Any]:
    """What was seen by the class of each block."""
    answers: dict[str, Any] = {}
    for block, args, named in calls_of(asked):
        torch._dynamo.reset()
        seen = Seen()
        mode: Any = FakeTensorMode(allow_non_fake_inputs=False)

        def there(value: Any, mode: Any = mode) -> Any:
            if not isinstance(value, Tensor):
                return value
            with mode:
                return mode.from_tensor(value).to(card.CARD)

        for module in block.modules():
            for name, parameter in module._parameters.items():
                if parameter is not None:
                    value = there(parameter.detach())
                    module._parameters[name] = nn.Parameter(value, parameter.requires_grad)
            for name, buffer in module._buffers.items():
                module._buffers[name] = there(buffer)
        args, named = tree_map(there, (args, named))
        block.compile(backend=aot_autograd(fw_compiler=seen.take, bw_compiler=seen.take), fullgraph=True)
        args = tuple(a.requires_grad_() if isinstance(a, Tensor) and a.is_floating_point() else a for a in args)
        out = checkpoint(block, *args, use_reentrant=False, preserve_rng_state=False, **named)
        outs = [one for one in torch.utils._pytree.tree_leaves(out) if isinstance(one, Tensor)]
        sum(one.float().sum() for one in outs).backward()  # type: ignore[union-attr]
        learns = [parameter for parameter in block.parameters() if parameter.requires_grad]
        answers[type(block).__name__ + ("" if learns else ", without a LoRA")] = {
            "graphs": seen.graphs,
            "waiting": seen.waiting,
            "elsewhere": seen.elsewhere,
            "operations": sum(seen.operations.values()),
            "learnt": all(parameter.grad is not None for parameter in learns),
        }
    return answers


def main() -> None:
    torch.set_num_threads(1)
    asked = pickle.load(sys.stdin.buffer)
    answers = []
    for one in asked:
        answers.append(traced(one))
        print("done", one, file=sys.stderr, flush=True)
    print(json.dumps(answers))
