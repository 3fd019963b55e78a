"""Weights: files that lack tensors, are cut short, hold something else, or are not there."""

from __future__ import annotations

from ...model.crashes import Known

_ONE_FILE = "Find the file and fetch it, and only it, again."
_NO_REPLACE = "Downloading the whole model again with the hub client does not replace a file that exists."

KNOWN = (
    Known(
        "Tensors that the model needs are missing from its files, or bear other names there: the loader built the "
        "model without memory and had nothing to fill these parameters with.",
        "Compare the files with the architecture and fetch what is missing.",
        avoid="low_cpu_mem_usage=False, skipping the block, to_empty() or fp8_base only hide it: the run then trains "
        "on random weights.",
        words=("Cannot copy out of meta tensor; no data!",),
        source="https://github.com/Wan-Video/Wan2.2/issues/299",
        rule="MDL001",
    ),
    Known(
        "The file holds a model of another shape or with other names than the one that the trainer has built: "
        "another model, another layout, or a config.json that does not belong to these weights.",
        "Compare the file with the architecture; the message lists the names that are missing or too many.",
        avoid="ignore_mismatched_sizes=True fills what does not fit with random weights.",
        text=r"Error\(s\) in loading state_dict for (?!LoRA|Lora|Peft)|because \S+ expected shape .*, but got",
        rule="MDL002",
        source="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/nn/modules/module.py",
    ),
    Known(
        "There was no room on the disk for what was saved.",
        "Make room, or save fewer checkpoints and elsewhere; the file that was just written is not whole.",
        avoid="Nothing is wrong with the model's files; do not fetch them again.",
        words=("No space left on device", "StorageFull"),
        text=r"No space left on device|StorageFull|serializ.*\b[Cc]ode:? 28\b",
        rule="DSK002",
        source="https://github.com/hiyouga/LlamaFactory/issues/5155",
    ),
    Known(
        "The disk or file system did not take what was saved: it was disconnected, is full or locked, or cannot "
        "write "
        "such files.",
        "Save to a local disk, and copy from there.",
        avoid="Nothing is wrong with the model's files; do not fetch them again.",
        text=r"[Ee]rror while serializing|Safetensors Saving I/O error",
        words=("rror while serializing", "Safetensors Saving I/O error"),
        source="https://github.com/Nerogar/OneTrainer/issues/612",
    ),
    Known(
        "A weight file is cut short, or it is no weight file: a web page, or a git-lfs pointer.",
        _ONE_FILE,
        avoid=_NO_REPLACE,
        words=("Error while deserializing header", "incomplete metadata, file not fully covered"),
        source="https://github.com/datalab-to/marker/issues/970",
        text=r"incomplete metadata, file not fully covered|MetadataIncompleteBuffer|header too (large|small)"
        r"|HeaderTooLarge|HeaderTooSmall|[Ii]nvalid.?header|InvalidHeader|invalid offset for tensor|InvalidOffset"
        r"|Error while deserializing header|invalid JSON in header",
        rule="HUB001",
    ),
    Known(
        "The file lacks a tensor that the model needs: it is another model's, of another layout, or a part of one.",
        "Compare the file with the model that the settings name; the message has the tensor.",
        words=("File does not contain tensor ",),
        rule="MDL001",
        source="https://github.com/huggingface/safetensors/blob/v0.8.0/bindings/python/src/lib.rs",
    ),
    Known(
        "Tensors of the file are of another size than the model that was built; the report above the traceback lists "
        "them.",
        "Compare config.json with the weights: they are of two models, or of two sizes of one.",
        avoid="ignore_mismatched_sizes=True fills what does not fit with random weights.",
        words=("You set `ignore_mismatched_sizes` to `False`", "Trying to set a tensor of shape"),
        rule="MDL002",
        source="https://github.com/huggingface/accelerate/blob/v1.15.0/src/accelerate/utils/modeling.py",
    ),
    Known(
        "The LoRA to go on from has another rank than the settings, or is of a model of another width.",
        "Set the rank (network_dim, linear, lora_rank) to that of the file: the smaller number of its lora_A shape.",
        text=r"size mismatch for \S*lora_(?:A|B|up|down)\b",
        words=("size mismatch for ",),
        source="https://github.com/huggingface/peft/blob/v0.21.2/src/peft/utils/save_and_load.py",
    ),
    Known(
        "A weight file is cut short, or it is no weight file: a web page, or a git-lfs pointer.",
        _ONE_FILE,
        avoid=_NO_REPLACE,
        error="SafetensorError",
        rule="HUB001",
        source="https://github.com/huggingface/safetensors/blob/v0.8.0/safetensors/src/tensor.rs",
    ),
    Known(
        "The file is no PyTorch checkpoint: 'v' begins a git-lfs pointer, '<' a web page, a number of digits a "
        "safetensors file of another name.",
        _ONE_FILE,
        avoid=_NO_REPLACE,
        error="UnpicklingError",
        text=r"invalid load key",
        rule="MDL004",
        source="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/serialization.py",
    ),
    Known(
        "A weight file cannot be read to its end: most often it is cut short.",
        _ONE_FILE,
        avoid=_NO_REPLACE,
        error="OSError",
        text=r"Unable to load weights from (pytorch )?checkpoint file",
        rule="MDL004",
        source="https://github.com/huggingface/diffusers/blob/v0.42.1/src/diffusers/models/model_loading_utils.py",
    ),
    Known(
        "The model was loaded with a device_map that left a part of it on the disk or the CPU; such a model cannot "
        "be moved as a whole.",
        "Load it without device_map, and let the trainer's own setting for offloading do the work.",
        error="RuntimeError",
        text=r"You can't move a model that has some modules offloaded to cpu or disk",
        source="https://github.com/huggingface/accelerate/blob/v1.15.0/src/accelerate/big_modeling.py",
    ),
    Known(
        "The names in the LoRA file are none of the model's: another layout, or another model.",
        "Convert the LoRA to the layout diffusion_model.*.lora_A/B.weight, or load it with the tool that wrote it.",
        error="NoMatchingPeftModuleError",
        source="https://github.com/huggingface/peft/blob/v0.21.2/src/peft/utils/error.py",
    ),
)
