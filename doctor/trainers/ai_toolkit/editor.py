"""What an ai-toolkit config looks like to an editor, and what is shown beside its keys."""

from __future__ import annotations

from typing import Any

from ...configs.json_schema import Hovers, section_schema
from ...model.schema import Schema
from .read import JOBS

# at commit 27a03a91; each is what the rule says when it finds it
KNOWN: Hovers = {
    "network/linear_alpha": ("CFG003", "For transformer models the trainer sets it to the rank."),
    "network/alpha": ("CFG003", "For transformer models the trainer sets it to the rank."),
    "network/conv": ("CFG003", "Z-Image has no convolutions, so it does nothing there."),
    "train/do_differential_guidance": ("CFG003", "The trainer looks at it only when do_guidance_loss is true."),
    "train/timestep_type": ("CFG003", "It counts only with noise_scheduler: flowmatch."),
    "train/unet_lr": ("CFG003", "The trainer reads it and then uses lr for everything."),
    "train/text_encoder_lr": ("CFG003", "The trainer reads it and then uses lr for everything."),
    "train/lr_scheduler": ("CFG004", "linear rises to lr and never falls; the one that decays is cosine."),
    "train/dtype": ("CFG004", "It replaces model/dtype, too. Without it the trainer computes in fp32."),
    "train/optimizer": ("CFG004", "An unknown name stops the trainer after the model was loaded and quantized."),
    "train/loss_type": ("CFG004", "An unknown name is mse."),
    "model/arch": ("CFG004", "What stands behind a colon is a tag. An unknown name is taken for Stable Diffusion 1."),
    "model/model_kwargs": ("CFG003", "Most models read nothing of it."),
    "model/low_vram": ("CFG003", "It lowers the peak of the loading, not that of the training."),
    "model/name_or_path": ("MDL001", "A repository on the hub, a folder or a file."),
    "model/assistant_lora_path": ("PTH003", "For Z-Image a file, or owner/repository/file on the hub; not a folder."),
    "model/inference_lora_path": ("CFG004", "Z-Image has no place for it."),
    "datasets/*/folder_path": ("PTH001", "The trainer writes its size list and its caches into this folder."),
    "sample/guidance_scale": ("TRN005", "A turbo model wants 1."),
    "training_folder": ("PTH001", "The run is written to a folder of its name in it."),
    "device": ("CFG003", "The trainer takes the first visible card; CUDA_VISIBLE_DEVICES chooses it."),
    "sqlite_db_path": ("CFG003", "It does nothing in a run started from a terminal."),
    "save/dtype": ("CFG004", "The precision of the saved LoRA."),
}  # fmt: skip


def body(schema: Schema) -> dict[str, Any]:
    """A job with its processes. The keys of extensions are not known and never forbidden."""
    trainers = sorted(u for u in schema.processes if schema.sections.get(f"{u}:") == schema.sections.get(""))
    process = {
        "type": "object",
        "required": ["type"],
        "properties": {"type": {"type": "string", "examples": list(schema.processes)}},
        "if": {"properties": {"type": {"enum": trainers}}},
        "then": {"$ref": "#/$defs/process"},
    }
    return {
        "type": "object",
        "required": ["job", "config"],
        "properties": {
            "job": {"enum": list(JOBS), "description": "For training a LoRA: extension."},
            "config": {
                "type": "object",
                "required": ["name", "process"],
                "properties": {"name": {"type": "string"}, "process": {"type": "array", "items": process}},
            },
            "meta": {"type": "object", "description": "Written into the saved LoRA."},
        },
        "$defs": {"process": section_schema(schema, "", KNOWN)},
    }
