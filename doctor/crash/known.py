"""Failures that no rule looks for beforehand, or not only: what they mean, what to do, and what not to do.

`rule` is the rule that finds the same cause before the run, where there is one.
"""

from __future__ import annotations

from ..model.crashes import Known

KNOWN = (
    Known(
        "",
        r"Cannot copy out of meta tensor; no data!",
        "Tensors that the model needs are missing from its files, or bear other names there: the loader built the "
        "model without memory and had nothing to fill these parameters with.",
        "Compare the files with the architecture and fetch what is missing.",
        "low_cpu_mem_usage=False, skipping the block, to_empty() or fp8_base only hide it: the run then trains on "
        "random weights.",
        rule="MDL001",
    ),
    Known(
        "",
        r"vector_norm.*Got Long|Expected a floating point or complex tensor as input\. Got Long",
        "A gradient was not finite. DeepSpeed 0.13.2 to 0.17.0 with an optimizer on the CPU then hands an integer to "
        "the norm, and this message hides it.",
        "Upgrade DeepSpeed to 0.17.1 or newer, then look for the first loss or gradient that is not finite: learning "
        "rate, fp16, loss.",
        "There is no parameter of type Long; do not look for one.",
    ),
    Known(
        "",
        r"element 0 of tensors does not require grad and does not have a grad_fn",
        "The loss does not depend on any trained parameter: most often a whole model was wrapped in re-entrant "
        "checkpointing, and none of its inputs requires a gradient.",
        "Checkpoint each block with use_reentrant=False (in diffusers: enable_gradient_checkpointing()).",
        "requires_grad_(True) on the output silences the message, and every gradient is then missing.",
    ),
    Known(
        "",
        r"CUDA out of memory|CUDA error: out of memory|CUBLAS_STATUS_ALLOC_FAILED",
        "The card has not enough memory for this phase of the run.",
        "zdoctor check CONFIG predicts the peak phase by phase and names the least harmful setting that fits.",
        "Setting PYTORCH_ALLOC_CONF helps against fragmentation only, not against a peak that is too high.",
        rule="MEM001",
    ),
    Known(
        "Killed",
        "",
        "The system ended the process; on Linux most often because the computer, or its container, ran out of RAM.",
        "zdoctor check CONFIG compares the RAM that loading takes with what is free; dmesg tells whether it was the "
        "kernel.",
        rule="MEM002",
    ),
    Known(
        "BusError",
        "",
        "A file that was mapped into memory was cut short while it was read, or shared memory (/dev/shm) is full.",
        "Verify the model's files with zdoctor check CONFIG --deep; in a container raise the size of /dev/shm.",
        rule="HUB001",
    ),
    Known(
        "",
        r"no kernel image is available for execution on the device",
        "This build of PyTorch holds no code for the card.",
        "Install the PyTorch wheel that its site names for this card and driver.",
    ),
    Known(
        "",
        r"SafetensorError.*|incomplete metadata, file not fully covered|header too large|MetadataIncompleteBuffer",
        "A weight file is cut short, or it is no weight file: a web page, or a git-lfs pointer.",
        "Find the file and fetch it, and only it, again.",
        "Downloading the whole model again with the hub client does not replace a file that exists.",
        rule="HUB001",
    ),
)
