"""Small training scripts, sick and healthy, as users write them. Each builds its model and a batch by build_model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

HEAD = """
import functools
import torch
import torch.utils.checkpoint as ckpt
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint as cp


class LoraBlock(nn.Module):
    def __init__(self, trained=True):
        super().__init__()
        self.base = nn.Linear(4, 4)
        self.base.requires_grad_(False)
        self.lora_down = nn.Linear(4, 2, bias=False)
        self.lora_up = nn.Linear(2, 4, bias=False)
        self.lora_down.requires_grad_(trained)
        self.lora_up.requires_grad_(trained)

    def forward(self, x):
        return x + self.base(x) + self.lora_up(self.lora_down(x))


def build_model(batch=2):
    torch.manual_seed(0)
    return Net(), torch.randn(batch, 4)
"""

_INIT = (
    HEAD
    + """

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(LoraBlock() for _ in range(4))
"""
)
_PLAIN = """
    def _forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x
"""


@dataclass(frozen=True)
class Case:
    """`rules`: what a check must find, with the severity. `outcome`: what torch does: "error" (element 0), or how
    many of the trainable tensors get no gradient, of how many. `init`: the model's start, and what comes before it.
    """

    name: str
    body: str
    rules: dict[str, str]
    outcome: str | tuple[int, int]
    init: str = _INIT

    @property
    def text(self) -> str:
        return self.init + self.body


OK = (0, 8)
WHOLE = {"SRC010": "error"}
CASES = (
    Case(
        "whole model, re-entrant",
        _PLAIN + "    def forward(self, x):\n        return checkpoint(self._forward, x, use_reentrant=True)\n",
        WHOLE,
        "error",
    ),
    Case(
        "whole model, nothing said, under another name",
        _PLAIN + "    def forward(self, x):\n        return cp(self._forward, x)\n",
        WHOLE,
        "error",
    ),
    Case(
        "whole model through a lambda",
        _PLAIN + "    def forward(self, x):\n        return ckpt.checkpoint(lambda y: self._forward(y), x)\n",
        WHOLE,
        "error",
    ),
    Case(
        "whole model through a factory and functools.partial",
        _PLAIN
        + """
    def forward(self, x):
        def custom_forward(module):
            def run(*inputs):
                return module(*inputs)
            return run
        again = functools.partial(torch.utils.checkpoint.checkpoint, use_reentrant=True)
        x = x.to(torch.float32)
        return again(custom_forward(self._forward), x)
""",
        WHOLE,
        "error",
    ),
    Case(
        "gradient forced on the output",
        _PLAIN
        + """
    def forward(self, x):
        out = checkpoint(self._forward, x, use_reentrant=True)
        return out.requires_grad_(True)
""",
        {"SRC010": "error", "SRC011": "error"},
        (8, 8),
    ),
    Case(
        "gradient forced on the output, on the spot",
        _PLAIN + "    def forward(self, x):\n        return checkpoint(self._forward, x).requires_grad_()\n",
        {"SRC010": "error", "SRC011": "error"},
        (8, 8),
    ),
    Case(
        "gradient forced inside of the checkpoint",
        """
    def _forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x.requires_grad_(True)

    def forward(self, x):
        return checkpoint(self._forward, x, use_reentrant=True)
""",
        {"SRC010": "error", "SRC011": "error"},
        "error",
    ),
    Case(
        "every block, re-entrant",
        """
    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=True)
        return x
""",
        {"SRC012": "warning"},
        "error",
    ),
    Case(
        "every block, nothing said",
        """
    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x)
        return x
""",
        {"SRC013": "warning"},
        "error",
    ),
    Case(
        "the first block re-entrant, the rest not",
        """
    def forward(self, x):
        x = checkpoint(self.blocks[0], x, use_reentrant=True)
        for block in self.blocks[1:]:
            x = block(x)
        return x
""",
        {"SRC012": "warning"},
        (2, 8),
    ),
    Case(
        "blocks in segments, nothing said",
        """
    def forward(self, x):
        return ckpt.checkpoint_sequential(self.blocks, 2, x)
""",
        {"SRC013": "warning"},
        (4, 8),
    ),
    Case(
        "a gradient forced on the loss",
        """
    def forward(self, x):
        with torch.no_grad():
            for block in self.blocks:
                x = block(x)
        loss = x.pow(2).mean()
        loss.requires_grad_(True)
        return loss

def step(model, batch):
    loss = model(batch)
    loss.requires_grad_(True)
    loss.backward()
""",
        {"SRC011": "warning"},
        (8, 8),
    ),
    # healthy, though they look suspicious
    Case(
        "whole model, not re-entrant",
        _PLAIN + "    def forward(self, x):\n        return checkpoint(self._forward, x, use_reentrant=False)\n",
        {},
        OK,
    ),
    Case(
        "each block, not re-entrant, options under a name",
        """
    def forward(self, x):
        options = {"use_reentrant": False}
        for block in self.blocks:
            x = checkpoint(block, x, **options)
        return x
""",
        {},
        OK,
    ),
    Case(
        "each block, re-entrant, the input requires a gradient",
        """
    def forward(self, x):
        x = x.clone()
        x.requires_grad_(True)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=True)
        return x
""",
        {},
        OK,
    ),
    Case(
        "whole model, re-entrant, the caller's input requires a gradient",
        _PLAIN
        + """
    def forward(self, x):
        return checkpoint(self._forward, x, use_reentrant=True)

def build_model(batch=2):
    latents = torch.randn(batch, 4)
    latents.requires_grad_(True)
    model = Net()
    model(latents)
    return model, latents
""",
        {},
        OK,
    ),
    Case(
        "all blocks but the first, re-entrant",
        """
    def forward(self, x):
        for index, block in enumerate(self.blocks):
            if index == 0:
                x = block(x)
            else:
                x = checkpoint(block, x, use_reentrant=True)
        return x
""",
        {},
        OK,
    ),
    Case(
        "all blocks but the first, which is not trained: only a step tells",
        """
    def forward(self, x):
        self.blocks[0].requires_grad_(False)
        for index, block in enumerate(self.blocks):
            x = block(x) if index == 0 else checkpoint(block, x, use_reentrant=True)
        return x
""",
        {},
        "error",
    ),
    Case(
        "a full fine-tune behind a trained embedder, re-entrant",
        """
    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=True)
        return x
""",
        {},
        (0, 10),
        """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

def build_model(batch=2):
    return Net(), torch.randn(batch, 4)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(4, 4)
        self.blocks = nn.ModuleList(nn.Linear(4, 4) for _ in range(4))
""",
    ),
    Case(
        "a data function that asks for gradients of its result",
        _PLAIN
        + """
    def forward(self, x):
        return self._forward(x)

def prepare(latents):
    return latents.clone().requires_grad_(True)
""",
        {},
        OK,
    ),
    Case(
        "the parameters of the adapter are switched on",
        _PLAIN
        + """
    def forward(self, x):
        for p in self.blocks.parameters():
            p.requires_grad_(p.requires_grad)
        for name, p in self.named_parameters():
            if "lora" in name:
                p.requires_grad_(True)
        return checkpoint(self._forward, x, use_reentrant=False)
""",
        {},
        OK,
    ),
)
BY_NAME: dict[str, Case] = {case.name: case for case in CASES}


def built(text: str) -> tuple[Any, Any]:
    """What build_model of a script returns."""
    space: dict[str, Any] = {"__name__": "script"}
    exec(compile(text, "script.py", "exec"), space)
    model, batch = space["build_model"]()
    return model, batch
