"""Memory: of the card, of the computer, and shared by processes."""

from __future__ import annotations

from ...model.crashes import Known

_CHECK_RAM = "zdoctor check CONFIG compares the RAM that loading takes with what is free."

KNOWN = (
    Known(
        "The card is full, and this run is not alone on it; the message counts what each process holds.",
        "nvidia-smi names them: end the others (an earlier run that hangs, a notebook, a desktop program), or take "
        "another card by CUDA_VISIBLE_DEVICES.",
        avoid="Smaller settings for this run help little as long as the others hold the card.",
        text=r"CUDA out of memory.*Process \d+ has (?:\d\d+|[2-9])\.\d+ GiB memory in use\. "
        r"(?:Process \d+ has|Including non-PyTorch memory, this process has) (?:\d\d+|[2-9])\.\d+ GiB",
        words=("CUDA out of memory. Tried",),
        rule="MEM001",
        source="https://github.com/modelscope/DiffSynth-Studio/issues/1238",
    ),
    Known(
        "The card has not enough memory for this phase of the run.",
        "zdoctor check CONFIG predicts the peak phase by phase and names the least harmful setting that fits.",
        avoid="Setting PYTORCH_ALLOC_CONF helps against fragmentation only, not against a peak that is too high.",
        words=(
            "CUDA out of memory. Tried",
            "HIP out of memory. Tried",
            "XPU out of memory. Tried",
            "MPS backend out of memory (",
            "ran out of memory on your GPU",
        ),
        text=r"(CUDA|HIP|XPU|MPS backend) out of memory|CU(BLAS|DNN)_STATUS_ALLOC_FAILED"
        r"|OOM during training step \d+ times in a row|Allocation on device|ran out of memory on your GPU",
        rule="MEM001",
        source="https://github.com/ali-vilab/ACE_plus/issues/44",
    ),
    Known(
        "The driver refused memory, and not PyTorch's own store of it: page-locked (pinned) memory of the computer, "
        "of "
        "which Windows and WSL give only a part of the RAM, or memory of the card that something else took.",
        "Switch off what pins memory (layer_offloading or block swap with pinned memory, pin_memory); in WSL give it "
        "more RAM in .wslconfig. When nvidia-smi shows a full card, end what else is on it.",
        avoid="It is not the message of a card that is too small: 'CUDA out of memory. Tried to allocate …' is.",
        words=("CUDA error: out of memory", "cudaErrorMemoryAllocation"),
        text=r"CUDA error: out of memory|cudaErrorMemoryAllocation",
        source="https://github.com/ostris/ai-toolkit/issues/929",
    ),
    Known(
        "The card had not enough memory for some steps. ai-toolkit leaves such a step out and goes on, so these "
        "pictures were not trained.",
        "zdoctor check CONFIG predicts the peak and names the least harmful setting that fits.",
        rule="MEM001",
        line="# OOM during training step, skipping batch",
        source="https://github.com/ostris/ai-toolkit/blob/27a03a91/jobs/process/BaseSDTrainProcess.py",
    ),
    Known(
        "The shared memory (/dev/shm), through which the workers that read pictures hand them over, is full.",
        "In Docker start the container with --ipc=host, or with a larger --shm-size; elsewhere set the number of "
        "workers to 0.",
        text=r"unable to (open|write|resize|mmap|allocate)[^:]*(</torch_|/dev/shm|shared memory object </torch)"
        r"|DataLoader worker \(pid.*is killed by signal: Bus error|insufficient shared memory \(shm\)",
        words=(
            "unable to open shared memory object </torch",
            "is killed by signal: Bus error",
            "insufficient shared mem",
        ),
        source="https://github.com/aws/sagemaker-python-sdk/issues/5592",
    ),
    Known(
        "The system ended the process; on Linux most often because the computer, or its container, ran out of RAM.",
        f"{_CHECK_RAM} dmesg tells whether it was the kernel.",
        error="Killed",
        rule="MEM002",
        source="https://man7.org/linux/man-pages/man7/signal.7.html",
    ),
    Known(
        "The system ended a worker that reads pictures, most often because the computer ran out of RAM.",
        f"{_CHECK_RAM} Fewer workers (num_workers: 0) need less.",
        text=r"DataLoader worker \(pid.*is killed by signal: Killed",
        words=("is killed by signal: Killed",),
        source="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/csrc/DataLoader.cpp",
        rule="MEM002",
    ),
    Known(
        "The notebook's machine ran out of RAM, and everything in it was ended.",
        _CHECK_RAM,
        avoid="Free GPU memory has nothing to do with it.",
        error="OutOfRam",
        rule="MEM002",
        source="https://research.google.com/colaboratory/faq.html",
    ),
    Known(
        "Windows has no more memory to promise: RAM and page file together are smaller than what is loaded.",
        "Let Windows manage the size of the page file, on a drive that has room for the model; then restart.",
        avoid="Free memory of the card does not help; this is about RAM.",
        words=("(os error 1455)", "WinError 1455", "he paging file is too small"),
        source="https://github.com/Comfy-Org/ComfyUI/issues/11009",
        rule="MEM002",
    ),
    Known(
        "The computer ran out of RAM.",
        _CHECK_RAM,
        words=(
            "DefaultCPUAllocator: can't allocate memory",
            "DefaultCPUAllocator: not enough memory",
            "[Errno 12] Cannot allocate memory",
            "numpy._core._exceptions._ArrayMemoryError",
        ),
        source="https://github.com/pytorch/pytorch/blob/v2.13.0/c10/core/impl/alloc_cpu.cpp",
        text=r"_ArrayMemoryError|DefaultCPUAllocator: (can't allocate|not enough) memory|\[Errno 12\] Cannot "
        r"allocate memory"
        r"|Unable to allocate [\d.]+ [KMGT]iB for an array",
        rule="MEM002",
    ),
    Known(
        "The computer ran out of RAM.",
        _CHECK_RAM,
        error="MemoryError",
        rule="MEM002",
        source="https://docs.python.org/3/library/exceptions.html",
    ),
    Known(
        "Windows ended the process because a compiled library touched memory that was not its own (0xC0000005). "
        "While a model is loaded, this is reported from computers whose RAM and page file are too small for it.",
        "zdoctor check CONFIG compares the RAM that loading takes with what is free. Set PYTHONFAULTHANDLER=1 to "
        "see the line of Python at which it happens.",
        error="AccessViolation",
        rule="MEM002",
        source="https://learn.microsoft.com/openspecs/windows_protocols/ms-erref/596a1078-e883-4972-9bbc-49e60bebca55",
    ),
    Known(
        "A file that was mapped into memory was cut short while it was read, or shared memory (/dev/shm) is full.",
        "Verify the model's files with zdoctor check CONFIG --deep; in a container raise the size of /dev/shm.",
        error="BusError",
        rule="HUB001",
        source="https://man7.org/linux/man-pages/man7/signal.7.html",
    ),
    Known(
        "The log ends with ^C. In a terminal somebody pressed Ctrl-C. Under a cell of Colab or Kaggle that nobody "
        "stopped it means that the process was ended from outside, most often for want of RAM.",
        _CHECK_RAM,
        error="Interrupted",
        rule="MEM002",
        source="https://man7.org/linux/man-pages/man7/signal.7.html",
    ),
    Known(
        "The log ends while weights are read, without a word of an error. Most often the computer ran out of RAM and "
        "page file, and the system ended the process; or the log was copied before it was at its end.",
        _CHECK_RAM,
        error="EndsLoading",
        rule="MEM002",
        source="https://github.com/ostris/ai-toolkit/issues/757",
    ),
)
