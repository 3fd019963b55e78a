"""Memory: of the card, of the computer, and shared by processes."""

from __future__ import annotations

from ...model.crashes import Known

_CHECK_RAM = "zdoctor check CONFIG compares the RAM that loading takes with what is free."

KNOWN = (
    Known(
        "The card has not enough memory for this phase of the run.",
        "zdoctor check CONFIG predicts the peak phase by phase and names the least harmful setting that fits.",
        avoid="Setting PYTORCH_ALLOC_CONF helps against fragmentation only, not against a peak that is too high.",
        text=r"(CUDA|HIP|XPU|MPS backend) out of memory|CUDA error: out of memory|CU(BLAS|DNN)_STATUS_ALLOC_FAILED"
        r"|OOM during training step \d+ times in a row",
        rule="MEM001",
    ),
    Known(
        "The card had not enough memory for some steps. ai-toolkit leaves such a step out and goes on, so these "
        "pictures were not trained.",
        "zdoctor check CONFIG predicts the peak and names the least harmful setting that fits.",
        rule="MEM001",
        line="# OOM during training step, skipping batch",
    ),
    Known(
        "The shared memory (/dev/shm), through which the workers that read pictures hand them over, is full.",
        "In Docker start the container with --ipc=host, or with a larger --shm-size; elsewhere set the number of "
        "workers to 0.",
        error="RuntimeError",
        text=r"unable to (open|write|resize|mmap|allocate)[^:]*(</torch_|/dev/shm|shared memory object </torch)"
        r"|DataLoader worker \(pid.*is killed by signal: Bus error|insufficient shared memory \(shm\)",
        alone=True,
    ),
    Known(
        "The system ended the process; on Linux most often because the computer, or its container, ran out of RAM.",
        f"{_CHECK_RAM} dmesg tells whether it was the kernel.",
        error="Killed",
        rule="MEM002",
    ),
    Known(
        "The system ended a worker that reads pictures, most often because the computer ran out of RAM.",
        f"{_CHECK_RAM} Fewer workers (num_workers: 0) need less.",
        error="RuntimeError",
        text=r"DataLoader worker \(pid.*is killed by signal: Killed",
        rule="MEM002",
    ),
    Known(
        "The notebook's machine ran out of RAM, and everything in it was ended.",
        _CHECK_RAM,
        avoid="Free GPU memory has nothing to do with it.",
        error="OutOfRam",
        rule="MEM002",
    ),
    Known(
        "Windows has no more memory to promise: RAM and page file together are smaller than what is loaded.",
        "Let Windows manage the size of the page file, on a drive that has room for the model; then restart.",
        avoid="Free memory of the card does not help; this is about RAM.",
        text=r"os error 1455|WinError 1455|[Tt]he paging file is too small",
        rule="MEM002",
    ),
    Known(
        "The computer ran out of RAM.",
        _CHECK_RAM,
        text=r"DefaultCPUAllocator: (can't allocate|not enough) memory|\[Errno 12\] Cannot allocate memory"
        r"|Unable to allocate [\d.]+ [KMGT]iB for an array",
        rule="MEM002",
    ),
    Known("The computer ran out of RAM.", _CHECK_RAM, error="MemoryError", rule="MEM002"),
    Known(
        "Windows ended the process because a compiled library touched memory that was not its own (0xC0000005). "
        "While a model is loaded, this is reported from computers whose RAM and page file are too small for it.",
        "zdoctor check CONFIG compares the RAM that loading takes with what is free. Set PYTHONFAULTHANDLER=1 to "
        "see the line of Python at which it happens.",
        error="AccessViolation",
        rule="MEM002",
    ),
    Known(
        "A file that was mapped into memory was cut short while it was read, or shared memory (/dev/shm) is full.",
        "Verify the model's files with zdoctor check CONFIG --deep; in a container raise the size of /dev/shm.",
        error="BusError",
        rule="HUB001",
    ),
    Known(
        "The log ends with ^C. In a terminal somebody pressed Ctrl-C. Under a cell of Colab or Kaggle that nobody "
        "stopped it means that the process was ended from outside, most often for want of RAM.",
        _CHECK_RAM,
        error="Interrupted",
        rule="MEM002",
    ),
)
