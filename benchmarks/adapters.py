"""Hold the runner's kinds of networks against the trainers' own modules, step for step on the same Linear.

    python benchmarks/adapters.py ai-toolkit CHECKOUT
    python benchmarks/adapters.py musubi-tuner CHECKOUT
    python benchmarks/adapters.py sd-scripts CHECKOUT
    python benchmarks/adapters.py lycoris          LyCORIS as installed, which SimpleTuner trains with

Each module of the trainer wraps a random Linear, its weights are copied into ours, both learn the same 50 random
batches with AdamW, and the largest differences of losses and weights are printed. What a trainer imports and is not
here is stood in for.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from corpus_oracle import StandIn, imported
from torch import Tensor, nn

from zdoctor.doctor.model.recipe import Network
from zdoctor.doctor.train.network.lora import add_network, trainable_parameters

OUT, IN, STEPS = 64, 48, 50
Theirs = tuple[Callable[[Tensor], Tensor], Mapping[str, nn.Parameter]]  # a module, and what is trained by our names


def ai_toolkit(name: str) -> Theirs:
    """DoRA as LoRASpecialNetwork makes it, of which it asks for the multiplier and whether it is active."""
    if name != "dora":
        raise SystemExit(f"ai-toolkit has no {name} to compare")
    DoRAModule = imported("toolkit.models.DoRA").DoRAModule

    class Net:
        is_active, is_merged_in, is_lorm, _multiplier, network_type = True, False, False, 1.0, "dora"
        torch_multiplier = torch.ones(1)

    base, net = _base(), Net()
    made = DoRAModule("x", base, 1.0, 4, 4, network=net)
    made.network_keeps_alive = net
    made.apply_to()
    own = {"lora_A.weight": made.lora_down.weight, "lora_B.weight": made.lora_up.weight}
    return base.forward, {**own, "lora_magnitude_vector": made.magnitude}


def musubi_tuner(name: str) -> Theirs:
    module = imported(f"musubi_tuner.networks.{name}")
    base = _base()
    made = (module.LoHaModule if name == "loha" else module.LoKrModule)("x", base, 1.0, *_size(name))
    made.apply_to()
    return base.forward, dict(made.named_parameters())


def sd_scripts(name: str) -> Theirs:
    OFTModule = imported("networks.oft_flux").OFTModule

    base = _base()
    made = OFTModule("x", base, 1.0, 4, 0.001)
    made.apply_to()
    return base.forward, {"oft_blocks": made.oft_blocks[0]}


def lycoris(name: str) -> Theirs:
    from lycoris.modules.loha import LohaModule
    from lycoris.modules.lokr import LokrModule

    base = _base()
    made = (LohaModule if name == "loha" else LokrModule)("x", base, 1.0, *_size(name))
    made.apply_to()
    return base.forward, {key: value for key, value in made.named_parameters() if "org" not in key}


TRAINERS: dict[str, tuple[Callable[[str], Theirs], str, tuple[str, ...]]] = {
    "ai-toolkit": (ai_toolkit, ".", ("dora",)),
    "musubi-tuner": (musubi_tuner, "src", ("loha", "lokr")),
    "sd-scripts": (sd_scripts, ".", ("oft",)),
    "lycoris": (lycoris, "", ("loha", "lokr")),
}
OURS = {
    "dora": Network("dora", 4, 4.0, start_deviation=0.5),
    "loha": Network("loha", 4, 2.0, scale=0.5),
    "lokr": Network("lokr", 2, 1.0, scale=0.5, lokr_full_rank=False),
    "oft": Network("oft", 4, 0.001),
}


def _size(name: str) -> tuple[int, Any]:
    return OURS[name].rank, OURS[name].alpha


def _base() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(IN, OUT).requires_grad_(False)


def learnt(forward: Callable[[Tensor], Tensor], parameters: Mapping[str, nn.Parameter]) -> list[float]:
    """The losses of the steps."""
    torch.manual_seed(1)
    optimizer = torch.optim.AdamW(parameters.values(), lr=1e-2)
    losses: list[float] = []
    for _ in range(STEPS):
        x, y = torch.randn(4, 3, IN), torch.randn(4, 3, OUT)
        loss = (forward(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trainer", choices=TRAINERS)
    parser.add_argument("checkout", type=Path, nargs="?", default=Path())
    words = parser.parse_args()
    made, source, kinds = TRAINERS[words.trainer]
    sys.path.insert(0, str(words.checkout / source))
    sys.meta_path.append(StandIn(words.checkout))
    for kind in kinds:
        forward, theirs = made(kind)
        model = nn.Sequential(_base())
        ours = trainable_parameters(add_network(model, {"0": (OUT, IN)}, OURS[kind], 0), "")
        own = {re.sub(r"^0\.", "", key): value for key, value in ours.items()}
        if own.keys() != theirs.keys():
            raise SystemExit(f"{kind}: ours {sorted(own)}, theirs {sorted(theirs)}")
        begun = {key: (value.std().item(), theirs[key].std().item()) for key, value in own.items()}
        for key, value in own.items():
            value.data.copy_(theirs[key])
        pairs = zip(learnt(model, own), learnt(forward, theirs), strict=True)
        losses = max(abs(a - b) / b for a, b in pairs)
        weights = max((value - theirs[key]).abs().max().item() for key, value in own.items())
        print(f"{words.trainer} {kind}: {STEPS} steps, losses within {losses:.1e}, weights within {weights:.1e}")
        print("   begun with deviations (ours, theirs):", {k: f"{a:.3f} {b:.3f}" for k, (a, b) in begun.items()})


if __name__ == "__main__":
    main()
