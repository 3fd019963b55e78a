"""Hold the names that zdoctor says ComfyUI looks for in a LoRA against the map that ComfyUI's own models make.

    python benchmarks/lora_names.py CHECKOUT      a checkout of ComfyUI; pip install comfy-kitchen einops beside it

ComfyUI detects each family by the tensors of the published model under its original names (on the meta device) and
builds its model. Printed are the tensors that the two do not have alike, and the spellings (prefix, whose names) of
which they disagree: 0 means that zdoctor's table is ComfyUI's map, for every layer of the model. What it was run with
stands in docs/measurements.md; families that a checkout does not know are said.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from corpus_oracle import StandIn

from zdoctor.doctor.families import families
from zdoctor.doctor.families.lora_keys import index_of, placed, published_config
from zdoctor.doctor.families.lora_programs import is_known, passed_over
from zdoctor.doctor.families.record import Family
from zdoctor.doctor.families.record.single_file import original_layout
from zdoctor.doctor.model import Lora, WeightFile
from zdoctor.doctor.model.lora import AdaptedModule

PREFIXES = (
    *("", "transformer.", "diffusion_model.", "unet.", "base_model.model."),
    *("lora_unet_", "lycoris_", "lora_transformer_"),
)


def model_of(family: Family, comfy: Any) -> Any:
    """ComfyUI's own model of the published tensors; None where it knows none."""
    assert family.transformer is not None
    shapes = original_layout(family.transformer.original, family.transformer.tensors(published_config(family)))
    weights = {name: torch.empty(shape, device="meta", dtype=torch.bfloat16) for name, shape in shapes.items()}
    config = comfy.model_detection.model_config_from_unet(weights, "")
    if config is None:
        return None
    config.set_inference_dtype(torch.bfloat16, None)
    with torch.device("meta"):
        model = config.get_model(weights, "", device="meta")
    own = {name.removeprefix("diffusion_model."): tuple(one.shape) for name, one in model.state_dict().items()}
    odd = [name for name, shape in shapes.items() if own.get(name) != tuple(shape) and not name.endswith(".scale")]
    return None if len(odd) > len(shapes) // 2 else (model, odd)


def disagreements(family: Family, theirs: set[str]) -> list[str]:
    """The spellings of modules of which zdoctor says something else than ComfyUI's map."""
    index = index_of(family.name)
    found: list[str] = []
    for prefix in PREFIXES:
        for path in index:
            flat = prefix.endswith("_")
            if flat != ("." not in path) or path.endswith((".bias", "_bias")):
                continue
            module = placed(AdaptedModule(prefix + path, prefix, path, {"A": "a", "B": "b"}, words="down"), index)
            if module.prefix != prefix:
                continue
            file = WeightFile("x", "x", {}, 0)
            lora = Lora("x", file, "LoRA", modules=(module,), class_name=family.class_name, families=(family.name,))
            if (prefix + path in theirs) == bool(_missed(lora, module)):
                found.append(prefix + path)
    return found


def _missed(lora: Lora, module: AdaptedModule) -> bool:
    object.__setattr__(lora, "half_pairs", ())
    return module in passed_over(lora, "ComfyUI")


def main() -> None:
    checkout = Path(sys.argv[1])
    sys.argv[1:] = ["--cpu"]
    sys.path.insert(0, str(checkout))
    sys.meta_path.append(StandIn(checkout / "comfy"))
    import comfy.options  # type: ignore[import-not-found, unused-ignore] # pyright: ignore[reportMissingImports]

    comfy.options.enable_args_parsing()
    import comfy.lora  # pyright: ignore[reportMissingImports]
    import comfy.model_base  # pyright: ignore[reportMissingImports]
    import comfy.model_detection  # pyright: ignore[reportMissingImports]

    for family in families():
        if not family.knows_loras or not is_known(family):
            continue
        made = model_of(family, comfy)
        if made is None:
            print(f"{family.name}: not known to this checkout", flush=True)
            continue
        model, odd = made
        theirs = set(comfy.lora.model_lora_keys_unet(model, {}))
        wrong = disagreements(family, theirs)
        print(f"{family.name}: {len(odd)} tensors not alike, {len(wrong)} spellings {wrong[:4] or ''}", flush=True)


if __name__ == "__main__":
    main()
