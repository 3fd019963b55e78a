"""What diffusers' own loaders apply of a LoRA is what the table says, for every spelling; ComfyUI's by example."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from zdoctor.doctor.families import family_of
from zdoctor.doctor.families.lora_keys import read_lora
from zdoctor.doctor.families.lora_programs import LOADERS, common_prefix, passed_over, programs_of
from zdoctor.doctor.families.record.single_file import original_parts
from zdoctor.doctor.model import Lora
from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.doctor.probe.world.safetensors import read_weight_file
from zdoctor.tests.loras import RANK, Pairs, as_kohya, as_peft, pairs_of, saved

CHROMA = "chroma in diffusers"
KLEIN = "flux2_klein_4b in diffusers"
SMALL: dict[str, dict[str, int]] = {
    "zimage": {"n_layers": 1, "n_refiner_layers": 1},
    "flux": {"num_layers": 1, "num_single_layers": 1},
    CHROMA: {"num_layers": 1, "num_single_layers": 1},
    "qwen_image": {"num_layers": 1},
    KLEIN: {"num_layers": 1, "num_single_layers": 1, "num_attention_heads": 24},
}
USUAL = ("transformer.", "diffusion_model.", "lora_unet_")
PREFIXES = (*USUAL, "lora_transformer_", "lycoris_", "", "base_model.model.")
WORDS = {
    "A": ("lora_A.weight", "lora_B.weight"),
    "A.default": ("lora_A.default.weight", "lora_B.default.weight"),
    "down": ("lora_down.weight", "lora_up.weight"),
    "dot": ("lora.down.weight", "lora.up.weight"),
}
# Without a prefix diffusers applies a Z-Image LoRA with alpha keys, and none without: no program writes such a file.
ODD = {("zimage", "", "d"), ("zimage", "", "o")}
# Of the original names diffusers applies what it calls the same, and attention.out in some spellings.
PARTLY = {("zimage", "diffusion_model.", "o"), ("zimage", "transformer.", "o")}


def spelt(family: str, pairs: Pairs, prefix: str, names: str, words: str, alpha: float | None) -> dict[str, Tensor]:
    record = family_of(family)
    assert record.transformer is not None
    owners = {f"{name}.weight": [f"{name}.weight"] for name in pairs}
    if names == "o":
        owners = original_parts(record.transformer.original, list(owners))
    found: dict[str, Tensor] = {}
    for owner, parts in owners.items():
        module = owner.removesuffix(".weight")
        key = prefix + (module.replace(".", "_") if prefix.endswith("_") else module)
        of = [pairs[part.removesuffix(".weight")] for part in parts]
        down, up = WORDS[words]
        found |= {f"{key}.{down}": of[0][0], f"{key}.{up}": torch.cat([one[1] for one in of])}
        if alpha is not None:
            found[f"{key}.alpha"] = torch.tensor(alpha).bfloat16()
    return found


def lora_of(tmp_path: Path, tensors: dict[str, Tensor]) -> Lora:
    path = str(saved(tmp_path / "lora.safetensors", tensors))
    return read_lora(path, read_weight_file(LiveWorld(), path))


def applied(family: str, tensors: dict[str, Tensor], pairs: Pairs, scale: float) -> int:
    """How many of the Linears diffusers adds the right product to; 0 where it refuses the file."""
    import diffusers

    library: Any = diffusers
    with torch.device("meta"):
        model: Any = getattr(library, family_of(family).class_name)(**SMALL[family])
        model = model.to(torch.bfloat16).to_empty(device="cpu")
        if family == "flux":
            pipeline: Any = library.FluxPipeline(None, None, None, None, None, None, model)
        elif family == CHROMA:
            pipeline = library.ChromaPipeline(None, None, None, None, model)
        elif family == "qwen_image":
            pipeline = library.QwenImagePipeline(None, None, None, None, model)
        elif family == KLEIN:
            pipeline = library.Flux2KleinPipeline(None, None, None, None, model)
        else:
            pipeline = library.ZImagePipeline(None, None, None, None, model)
    try:
        pipeline.load_lora_weights(dict(tensors), adapter_name="x")
    except Exception:  # it refuses a file in many ways
        return 0
    return sum(
        _is_right(module, *pairs[name], scale)
        for name, module in model.named_modules()
        if name in pairs and "x" in getattr(module, "lora_A", ())
    )


def _is_right(module: Any, down: Tensor, up: Tensor, scale: float) -> bool:
    if module.lora_B["x"].weight.is_meta:  # nothing was loaded into it
        return False
    made = module.lora_B["x"].weight[:16].float() @ module.lora_A["x"].weight[:, :16].float() * module.scaling["x"]
    return torch.allclose(made, up[:16].float() @ down[:, :16].float() * scale, rtol=0.03, atol=1e-5)


@pytest.mark.parametrize("family", SMALL)
@pytest.mark.parametrize("prefix", PREFIXES)
def test_diffusers_applies_what_the_table_says(family: str, prefix: str, tmp_path: Path) -> None:
    pairs = pairs_of(family, SMALL[family])
    alike = family == "qwen_image"  # its original names are diffusers'
    for names, words, alpha in product(
        "d" if alike else "do", WORDS if prefix in USUAL else ("A", "down"), (None, 1.0)
    ):
        tensors = spelt(family, pairs, prefix, names, words, alpha)
        count = applied(family, tensors, pairs, 1.0 if alpha is None else alpha / RANK)
        lora = lora_of(tmp_path, tensors)
        missed = {name for module in passed_over(lora, "diffusers") for name in module.linears}
        if (family, prefix, names) in ODD | PARTLY:
            assert count == len(pairs) or missed, (names, words, alpha)
        elif count == len(pairs):
            assert not missed, (names, words, alpha)
        else:
            assert missed == pairs.keys(), (names, words, alpha, count)


def test_comfyui_by_example(tmp_path: Path) -> None:
    """Its map has the original names under lora_unet_, and diffusers' under each family's own prefixes."""
    pairs = pairs_of("zimage")
    assert not passed_over(lora_of(tmp_path, as_peft(pairs, "diffusion_model.")), "ComfyUI")
    assert not passed_over(lora_of(tmp_path, as_peft(pairs, "transformer.")), "ComfyUI")
    assert not passed_over(lora_of(tmp_path, as_kohya("zimage", pairs, original=True)), "ComfyUI")
    missed = passed_over(lora_of(tmp_path, as_kohya("zimage", pairs, original=False)), "ComfyUI")
    assert {module.path for module in missed} == {
        f"layers_0_attention_{name}" for name in ("to_q", "to_k", "to_v", "to_out_0")
    }
    flux = pairs_of("flux")
    assert not passed_over(lora_of(tmp_path, as_peft(flux, "transformer.")), "ComfyUI")
    assert len(passed_over(lora_of(tmp_path, as_peft(flux, "diffusion_model.")), "ComfyUI")) == len(flux)


@pytest.mark.parametrize("family", [name for name in SMALL if common_prefix(family_of(name).class_name)])
def test_what_is_written_as_a_repair_is_read_by_all(family: str, tmp_path: Path) -> None:
    record = family_of(family)
    prefix = common_prefix(record.class_name)
    assert prefix is not None
    pairs = pairs_of(family, SMALL[family])
    for alpha in (None, 1.0):
        tensors = spelt(family, pairs, prefix, "d", "A", alpha)
        lora = lora_of(tmp_path, tensors)
        assert not any(passed_over(lora, program) for program in LOADERS)
        if alpha is not None:
            assert applied(family, tensors, pairs, alpha / RANK) == len(pairs)
    assert set(LOADERS) <= set(programs_of(record.class_name))


@pytest.mark.parametrize("family", SMALL)
@pytest.mark.parametrize("lost", ["lora_A", "lora_B"])
def test_diffusers_does_not_apply_half_a_pair(family: str, lost: str, tmp_path: Path) -> None:
    """LOR006: the file is refused, or the module is not what was trained."""
    pairs = pairs_of(family, SMALL[family])
    prefix = common_prefix(family_of(family).class_name) or ""
    tensors = as_peft(pairs, prefix)
    del tensors[next(name for name in tensors if lost in name)]
    assert applied(family, tensors, pairs, 1.0) < len(pairs)
    assert len(lora_of(tmp_path, tensors).whole_pairs) == len(pairs) - 1
