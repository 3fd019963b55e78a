"""Finished LoRAs for the tests: published sizes with small ranks, or of tiny models, as each program writes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from zdoctor.doctor.families import family_of
from zdoctor.doctor.families.lora_keys import linears_of
from zdoctor.doctor.families.record.single_file import original_parts

RANK = 2
Pairs = dict[str, tuple[Tensor, Tensor]]  # by diffusers' name of a Linear: A and B


def pairs_of(family: str, config: Mapping[str, object] | None = None, *, blocks: int = 1, rank: int = RANK) -> Pairs:
    """A trained pair for each Linear of the first blocks that a LoRA of the family covers.

    Linears that are one in the original model have the same A, as a LoRA of the fused one has it for all of them.
    """
    record = family_of(family)
    assert record.transformer is not None
    draw = torch.Generator().manual_seed(0)
    found: Pairs = {}
    shared: dict[str, Tensor] = {}
    if config is None:
        config = {} if record.memory is None else record.memory.config("")
    for name, (out, inputs) in linears_of(record.transformer.name, config).items():
        of, _, rest = name.partition(".")
        if of in record.lora_blocks and int(rest.partition(".")[0]) < blocks:
            owner = record.transformer.original(f"{name}.weight")
            down = shared.setdefault(owner, (torch.randn(rank, inputs, generator=draw) * 0.02).bfloat16())
            found[name] = down, (torch.randn(out, rank, generator=draw) * 0.01).bfloat16()
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
