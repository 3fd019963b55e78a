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
from zdoctor.doctor.model.record import replace
from zdoctor.doctor.train.network.lora import add_network, parameter_groups, trainable_parameters

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


def text_encoders() -> None:
    """sd-scripts' LoRA of CLIP-L and T5 with rates of their own beside the runner's, on the same tiny encoders."""
    from transformers import CLIPTextConfig, CLIPTextModel, T5Config, T5EncoderModel

    from zdoctor.doctor.train.families import flux

    kinds: dict[str, tuple[Any, Any]] = {
        "text_encoder": (
            CLIPTextModel,
            CLIPTextConfig(
                hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, vocab_size=50
            ),
        ),
        "text_encoder_2": (
            T5EncoderModel,
            T5Config(
                d_model=24, d_kv=4, d_ff=40, num_layers=2, num_heads=3, vocab_size=50, feed_forward_proj="gated-gelu"
            ),
        ),
    }

    def made() -> dict[str, Any]:
        torch.manual_seed(0)
        return {name: make(config).eval().requires_grad_(False) for name, (make, config) in kinds.items()}

    how = Network("lora", 4, 2.0, scale=0.5, text_rates={"text_encoder": 1e-2, "text_encoder_2": 1e-3})
    ours, theirs = made(), made()
    module = imported("networks.lora_flux")
    network = module.LoRANetwork(
        list(theirs.values()), nn.Linear(1, 1), lora_dim=4, alpha=2.0, train_t5xxl=True, train_blocks="single"
    )
    network.set_loraplus_lr_ratio(None, None, 4.0)
    network.apply_to(list(theirs.values()), None, True, False)
    groups, told = network.prepare_optimizer_params_with_multiple_te_lrs([1e-2, 1e-3], None, 1e-4)
    begun = {re.sub(r"^lora_te[13]_(text_model_)?", "", one.lora_name): one for one in network.text_encoder_loras}
    own: dict[str, dict[str, nn.Parameter]] = {}
    for part, model in ours.items():
        shapes = {
            name: (one.out_features, one.in_features)
            for name, one in model.named_modules()
            if isinstance(one, nn.Linear)
        }
        added = add_network(model, shapes, how, 0)
        for name, one in added.items():
            mate = begun.pop(name.replace(".", "_"))
            made_of: Any = one
            made_of.lora_A.data.copy_(mate.lora_down.weight)
            made_of.lora_B.data.copy_(mate.lora_up.weight)
        own[part] = trainable_parameters(added, flux.TEXT_PREFIXES[part])
    if begun:
        raise SystemExit(f"Without a mate: {sorted(begun)}")
    how = replace(how, text_plus_ratio=4.0)
    of_ours = [{**group, "lr": 1e-4 * group["times"]} for group in parameter_groups(how, {}, own, 1e-4)]
    pair = [(_text_losses(models, of)) for models, of in ((ours, of_ours), (theirs, groups))]
    losses = max(abs(a - b) / b for a, b in zip(*pair, strict=True))
    print(f"sd-scripts text encoders ({', '.join(told)}): {STEPS} steps, losses within {losses:.1e}")


def _text_losses(models: Mapping[str, Any], groups: Any) -> list[float]:
    torch.manual_seed(1)
    optimizer = torch.optim.AdamW([{**group, "params": list(group["params"])} for group in groups])
    clip, t5 = models.values()
    losses: list[float] = []
    for _ in range(STEPS):
        ids = torch.randint(3, 50, (4, 9))
        pooled, states = clip(ids).pooler_output, t5(ids)[0]
        loss = (pooled - torch.randn_like(pooled)).square().mean()
        loss = loss + (states - torch.randn_like(states)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


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
    if words.trainer == "sd-scripts":
        text_encoders()


if __name__ == "__main__":
    main()
