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
        text=r"Cannot copy out of meta tensor; no data!",
        rule="MDL001",
    ),
    Known(
        "The file holds a model of another shape or with other names than the one that the trainer has built: "
        "another model, another layout, or a config.json that does not belong to these weights.",
        "Compare the file with the architecture; the message lists the names that are missing or too many.",
        avoid="ignore_mismatched_sizes=True fills what does not fit with random weights.",
        text=r"Error\(s\) in loading state_dict for (?!LoRA|Lora|Peft)|because \S+ expected shape .*, but got",
        rule="MDL002",
    ),
    Known(
        "A weight file is cut short, or it is no weight file: a web page, or a git-lfs pointer.",
        _ONE_FILE,
        avoid=_NO_REPLACE,
        text=r"incomplete metadata, file not fully covered|MetadataIncompleteBuffer|header too (large|small)"
        r"|HeaderTooLarge|HeaderTooSmall|[Ii]nvalid.?header|InvalidHeader|invalid offset for tensor|InvalidOffset"
        r"|Error while deserializing header|invalid JSON in header",
        rule="HUB001",
    ),
    Known(
        "A weight file is cut short, or it is no weight file: a web page, or a git-lfs pointer.",
        _ONE_FILE,
        avoid=_NO_REPLACE,
        error="SafetensorError",
        rule="HUB001",
    ),
    Known(
        "The file is no PyTorch checkpoint: 'v' begins a git-lfs pointer, '<' a web page, a number of digits a "
        "safetensors file of another name.",
        _ONE_FILE,
        avoid=_NO_REPLACE,
        error="UnpicklingError",
        text=r"invalid load key",
        rule="MDL004",
    ),
    Known(
        "A weight file cannot be read to its end: most often it is cut short.",
        _ONE_FILE,
        avoid=_NO_REPLACE,
        error="OSError",
        text=r"Unable to load weights from (pytorch )?checkpoint file",
        rule="MDL004",
    ),
    Known(
        "A download ended before the file was whole; the hub client keeps nothing of it.",
        "Start again. If it happens at every start, HF_HUB_DOWNLOAD_TIMEOUT=60 gives a slow line more time.",
        error="OSError",
        text=r"Consistency check failed: file should be of size",
    ),
    Known(
        "Files above 50 GB are downloaded with hf_xet only, which is missing here.",
        "pip install hf_xet",
        error="ValueError",
        text=r"The file is too large to be downloaded using the regular download method",
        rule="HUB005",
    ),
    Known(
        "The model is given out only to those who accepted its licence, and the hub does not know who asks.",
        "Accept the licence on the model's page, then type: hf auth login",
        avoid="Another copy of the model by somebody else need not be the same model.",
        text=r"[Gg]ated ?[Rr]epo|Access to model .* is restricted|You are trying to access a gated repo",
        alone=True,
    ),
    Known(
        "The hub has no model of that name, or it is private and the hub does not know who asks.",
        "Compare the name with the model's page, capitals included; for a private one type: hf auth login",
        text=r"Repository Not Found for url|401 Client Error: Unauthorized for url",
        alone=True,
    ),
    Known(
        "The hub could not be reached, and the model is not all in the cache.",
        "With a complete copy on this machine, name its folder in the config, or set HF_HUB_OFFLINE=1 before the "
        "start.",
        text=r"Max retries exceeded with url|Temporary failure in name resolution|Name or service not known"
        r"|getaddrinfo failed|couldn't connect to 'https://huggingface\.co'(?!.*looks like (?:/|[A-Za-z]:|\.|~))",
        rule="HUB006",
    ),
    Known(
        "Windows did not allow a link to be made in the hub cache: that takes the developer mode or administrator's "
        "rights.",
        "Upgrade huggingface_hub to 2 or newer, which does without; or switch on the developer mode.",
        error="OSError",
        text=r"WinError 1314",
        alone=True,
    ),
    Known(
        "The model was loaded with a device_map that left a part of it on the disk or the CPU; such a model cannot "
        "be moved as a whole.",
        "Load it without device_map, and let the trainer's own setting for offloading do the work.",
        error="RuntimeError",
        text=r"You can't move a model that has some modules offloaded to cpu or disk",
    ),
    Known(
        "The names in the LoRA file are none of the model's: another layout, or another model.",
        "Convert the LoRA to the layout diffusion_model.*.lora_A/B.weight, or load it with the tool that wrote it.",
        error="NoMatchingPeftModuleError",
    ),
)
