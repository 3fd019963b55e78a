"""A card that fails, or that others hold: what CUDA says of it, which PyTorch passes on as it is.

The words of CUDA are those of cudaGetErrorString, by the page of the error codes in NVIDIA's runtime API.
"""

from __future__ import annotations

from ...model.crashes import Known

_API = "https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html"

FAILED = Known(
    "The card or its driver has failed, amid a computation that most often is not to blame.",
    "When nvidia-smi still shows the card without an error, start again; else restart the machine first. On Linux "
    "sudo dmesg | grep -i xid tells why (Xid 79: the card fell off the bus, from power, heat or its slot).",
    words=("unspecified launch failure", "CUDA error: unknown error", "GPU is lost"),
    source=_API,
    text=r"unspecified launch failure|CUDA error: unknown error|CU(BLAS|DNN)_STATUS_EXECUTION_FAILED"
    r"|fallen off the bus|\bGPU is lost",
)
KNOWN = (
    Known(
        "Another process has the card to itself (compute mode Exclusive Process), or its driver is stuck.",
        "nvidia-smi shows the mode and the processes: end the one that holds the card, or take another card by "
        "CUDA_VISIBLE_DEVICES. When it shows none, restart the machine.",
        words=("CUDA-capable device(s) is/are busy or unavailable",),
        source=_API,
        text=r"CUDA-capable device\(s\) is/are busy or unavailable",
    ),
    Known(
        "The memory of the card, or its link to another card, had an error that could not be corrected.",
        "Restart the machine, which takes bad memory out of use, and start again. When it comes back, the card is "
        "faulty: take another one. nvidia-smi -q counts its errors.",
        words=("uncorrectable ECC error", "uncorrectable NVLink error"),
        source=_API,
        text=r"uncorrectable (ECC|NVLink) error",
    ),
    Known(
        "An index was out of range on the card, as a token's is where the tokenizer belongs to another text encoder; "
        "the place that is shown is later than the cause.",
        "With CUDA_LAUNCH_BLOCKING=1 in the environment it is the right one, and so it is on the processor "
        "(device: cpu).",
        words=("device-side assert triggered",),
        source=_API,
        text=r"device-side assert triggered",
    ),
    Known(
        "The system ended a computation that kept the card from its screen for too long.",
        "Take a card without a screen, or make the computations smaller: a lower resolution or batch size.",
        words=("the launch timed out and was terminated",),
        source=_API,
        text=r"the launch timed out and was terminated",
    ),
    Known(
        "A kernel did what it must not: a mistake in a library or in its build, or a card that is overclocked or "
        "failing.",
        "Start again without overclocking. When it fails at the same step again, CUDA_LAUNCH_BLOCKING=1 in the "
        "environment shows the call; update the package that it belongs to.",
        words=("an illegal memory access was encountered", "an illegal instruction was", "CUDA error: misaligned"),
        source=_API,
        text=r"an illegal (memory access|instruction) was encountered|misaligned address|invalid program counter"
        r"|hardware stack error",
    ),
    Known(
        "The driver of the card cannot be used, as after the machine has slept.",
        "Restart the machine; on Linux sudo rmmod nvidia_uvm && sudo modprobe nvidia_uvm may do, too.",
        words=("CUDA unknown error - this may be due",),
        source="https://github.com/pytorch/pytorch/blob/v2.13.0/c10/cuda/CUDAFunctions.cpp",
        text=r"CUDA unknown error - this may be due to an incorrectly set up environment",
    ),
    Known(
        "A library of CUDA could not start on the card, most often because its memory is full.",
        "nvidia-smi shows how full it is and of what: end what else runs there, or let the run need less.",
        words=("CUBLAS_STATUS_NOT_INITIALIZED", "CUDNN_STATUS_NOT_INITIALIZED", "CUDNN_STATUS_INTERNAL_ERROR"),
        source="https://docs.nvidia.com/cuda/cublas/index.html",
        text=r"CU(BLAS|DNN)_STATUS_(NOT_INITIALIZED|INTERNAL_ERROR)",
    ),
    Known(
        "A process has waited in vain for another one, which failed, hangs, or does something for itself alone.",
        "Look for what the other processes say before this line; the earliest failure is the cause.",
        avoid="A longer time limit helps only where the other process was still at work.",
        line="Watchdog caught collective operation timeout",
        source="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp",
    ),
    FAILED,
)
