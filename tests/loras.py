"""Finished LoRAs for the tests: published sizes with small ranks, or of tiny models, as each program writes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from zdoctor.doctor.families import family_of
from zdoctor.doctor.families.lora_keys import linears_of, published_config
from zdoctor.doctor.families.record.single_file import original_parts

RANK = 2
UNET = (
    "down_blocks.1.resnets.0",
    "down_blocks.1.attentions.0",
    "up_blocks.1.attentions.0",
)  # convolutions among them
Pairs = dict[str, tuple[Tensor, Tensor]]  # by diffusers' name of a Linear: A and B


def pairs_of(family: str, config: Mapping[str, object] | None = None, *, blocks: int = 1, rank: int = RANK) -> Pairs:
    """A trained pair for each layer of the first blocks that a LoRA of the family may cover.

    Linears that are one in the original model have the same A, as a LoRA of the fused one has it for all of them.
    """
    record = family_of(family)
    assert record.transformer is not None
    draw = torch.Generator().manual_seed(0)
    found: Pairs = {}
    shared: dict[str, Tensor] = {}
    if config is None:
        config = published_config(record)
    lists = UNET if record.convolves else record.lora_blocks or record.blocks
    for name, (out, inputs, *window) in linears_of(record.transformer.name, config).items():
        of = next((of for of in lists if name.startswith(f"{of}.")), None)
        if of is None or (not record.convolves and int(name.removeprefix(f"{of}.").partition(".")[0]) >= blocks):
            continue
        if name.endswith(".ff_i.gate"):  # of HiDream's experts: no Linear, and peft refuses it
            continue
        owner = record.transformer.original(f"{name}.weight")
        down = shared.setdefault(owner, (torch.randn(rank, inputs, *window, generator=draw) * 0.02).bfloat16())
        up = torch.randn(out, rank, *(1 for _ in window), generator=draw) * 0.01
        found[name] = down, up.bfloat16()
    return found


def as_peft(pairs: Pairs, prefix: str) -> dict[str, Tensor]:
    """As diffusers ("transformer.") and ai-toolkit ("diffusion_model.") write them: no alpha."""
    found: dict[str, Tensor] = {}
    for name, (down, up) in pairs.items():
        found |= {f"{prefix}{name}.lora_A.weight": down, f"{prefix}{name}.lora_B.weight": up}
    return found


def as_kohya(family: str, pairs: Pairs, *, original: bool, alpha: float = RANK) -> dict[str, Tensor]:
    """As sd-scripts (on the fused Linears of the original model) and musubi-tuner (on diffusers' own) write them."""
    record = family_of(family)
    assert record.transformer is not None
    owners = {f"{name}.weight": [f"{name}.weight"] for name in pairs}
    if original:
        owners = original_parts(record.transformer.original, list(owners))
    found: dict[str, Tensor] = {}
    for owner, names in owners.items():
        key = "lora_unet_" + owner.removesuffix(".weight").replace(".", "_")
        parts = [pairs[name.removesuffix(".weight")] for name in names]
        found[f"{key}.lora_down.weight"] = parts[0][0].clone()
        found[f"{key}.lora_up.weight"] = torch.cat([up for _, up in parts])
        found[f"{key}.alpha"] = torch.tensor(float(alpha)).bfloat16()
    return found


def saved(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> Path:
    """The file with these tensors; those that share memory are written apart."""
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: value.contiguous().clone() for name, value in tensors.items()}, path, dict(metadata or {}))
    return path
