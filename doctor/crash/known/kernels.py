"""Attention and kernels: xformers, flash-attn, triton, torch.compile, and operators that a device lacks."""

from __future__ import annotations

from ...model.crashes import Known

_NO_COMPILE = "Without it: switch torch.compile (and fp8 or int8 kernels) off; nothing else needs triton."

KNOWN = (
    Known(
        "xformers has no kernel for this card, data type or shape: its build is older than the card or the torch, or "
        "the attention is of a form that it does not know. The message says of each kernel why not.",
        "Take torch's own attention (sdpa) in the trainer's settings and take xformers out: pip uninstall xformers. "
        "Else install the xformers that is built for this torch.",
        words=("No operator found for `memory_efficient_attention",),
        alone=True,
        source="https://github.com/Comfy-Org/ComfyUI/issues/11602",
    ),
    Known(
        "torch.compile needs triton, which is not installed, or is too old for this torch.",
        f"On Windows pip install triton-windows, elsewhere the torch that brings it. {_NO_COMPILE}",
        words=("TritonMissing", "Cannot find a working triton installation"),
        alone=True,
        source="https://github.com/wochenlong/lora-scripts-next/issues/47",
    ),
    Known(
        "triton was to compile its helper, and found no C compiler.",
        f"apt-get install -y gcc python3-dev, or the build tools of Visual Studio. {_NO_COMPILE}",
        words=("Failed to find C compiler", "Compiler: cl is not found"),
        alone=True,
        source="https://github.com/kohya-ss/sd-scripts/issues/2239",
    ),
    Known(
        "triton could not compile its helper: the C compiler failed, most often for want of Python's headers. A "
        "Python "
        "that comes in a folder (embedded) has none.",
        "Linux: apt-get install -y gcc python3-dev. Windows: copy the folders include and libs of the same Python "
        f"version beside python.exe, and update triton-windows. {_NO_COMPILE}",
        text=r"(?:tcc\.exe|cl\.exe|cl\.EXE|gcc|clang).*(?:cuda_utils|__triton_launcher|driver|main)\.c\b"
        r"|triton.*compile_module_from_src|= compile_module_from_src\(Path",
        words=("tcc.exe", "__triton_launcher.c", "cuda_utils.c'", "compile_module_from_src"),
        alone=True,
        source="https://github.com/woct0rdho/triton-windows/issues/156",
    ),
    Known(
        "The card has no fp8 of the kind e4m3 in triton: that takes compute capability 8.9 (RTX 40xx) or newer.",
        "Switch torch.compile off, or take weights in bf16, int8 or fp8 e5m2.",
        words=("type fp8e4nv not supported in this architecture", "fp8e4nv data type is not supported on CUDA arch"),
        alone=True,
        source="https://github.com/kijai/ComfyUI-WanVideoWrapper/issues/1030",
    ),
    Known(
        "triton is older than the card, whose architecture it does not know.",
        "Update torch and the triton that goes with it.",
        text=r"'sm_\d+a?' is not a recognized processor|Value 'sm_\d+a?' is not defined for option 'gpu-name'",
        words=("is not a recognized processor for this target", "is not defined for option 'gpu-name'"),
        alone=True,
        source="https://github.com/woct0rdho/triton-windows/issues/59",
    ),
    Known(
        "triton is not installed, and quantized kernels that are written in it are used.",
        "On Windows pip install triton-windows, elsewhere pip install triton; or take a quantization without such "
        "kernels.",
        text=r"No module named 'triton'(?!\.)|name '(?:tl|triton)' is not defined",
        words=("No module named 'triton'", "name 'tl' is not defined"),
        alone=True,
        source="https://github.com/ostris/ai-toolkit/issues/956",
    ),
    Known(
        "What torch.compile has kept from earlier runs is damaged.",
        "Remove the folder torchinductor_USER in the folder for temporary files, and ~/.triton/cache; both are made "
        "again.",
        error="BackendCompilerFailed",
        text=r"UnicodeDecodeError|JSONDecodeError|EOFError",
        alone=True,
        source="https://github.com/SamuelTallet/ZPix/issues/4",
    ),
    Known(
        "This build of torch, or of torchvision, has no code for the AMD card.",
        "Install the torch of ROCm that names the card's architecture (rocminfo shows gfx…). For a near relative of "
        "a "
        "supported card HSA_OVERRIDE_GFX_VERSION=11.0.0 (RDNA 3) or 10.3.0 (RDNA 2) may do.",
        words=("HIP error: invalid device function", "HIP error: no kernel image is available"),
        rule="PKG002",
        source="https://github.com/pytorch/pytorch/issues/164346",
    ),
    Known(
        "MPS, by which torch computes on a Mac, has no such operator in this version.",
        "Update torch; until it has the operator set PYTORCH_ENABLE_MPS_FALLBACK=1 before the start, which computes "
        "it on the processor and is slower.",
        words=("is not currently implemented for the MPS device", "is not currently supported on the MPS backend"),
        alone=True,
        source="https://github.com/pytorch/pytorch/issues/141287",
    ),
    Known(
        "This torch cannot share work between processes by NCCL: the build for Windows has none.",
        "Train on one card: answer no to distributed training in accelerate config, or start with --num_processes 1. "
        "Several cards take Linux or WSL.",
        words=("Distributed package doesn't have NCCL built in",),
        alone=True,
        source="https://github.com/huggingface/finetrainers/issues/326",
    ),
    Known(
        "NCCL, by which the cards talk with each other, had an error; the log does not tell which.",
        "Start again with NCCL_DEBUG=INFO, whose last lines say why. Cards of a new kind need a new torch; without a "
        "direct way between the cards set NCCL_P2P_DISABLE=1 and NCCL_IB_DISABLE=1.",
        text=r"NCCL [Ee]rror.*unhandled|ncclUnhandledCudaError|ncclSystemError",
        words=("NCCL Error", "NCCL error", "ncclUnhandledCudaError", "ncclSystemError"),
        alone=True,
        source="https://github.com/tdrussell/diffusion-pipe/issues/154",
    ),
)
