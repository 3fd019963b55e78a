"""Packages that are missing, or that do not go with each other or with the card."""

from __future__ import annotations

from ...model.crashes import Known

KNOWN = (
    Known(
        "This build of PyTorch holds no code for the card.",
        "Install the PyTorch wheel that its site names for this card and driver.",
        words=("CUDA error: no kernel image is available", "is not compatible with the current PyTorch installation"),
        source="https://github.com/bmaltais/kohya_ss/issues/3276",
        text=r"no kernel image is available for execution on the device|is not compatible with the current PyTorch "
        r"inst",
        rule="PKG002",
    ),
    Known(
        "This is the build of PyTorch without CUDA.",
        "Install the PyTorch wheel that its site names for this card and driver.",
        words=("Torch not compiled with CUDA enabled",),
        source="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/cuda/__init__.py",
        text=r"Torch not compiled with CUDA enabled|PyTorch is not linked with support for cuda devices",
        rule="PKG001",
    ),
    Known(
        "The program finds no card: there is none, its driver is not loaded, or CUDA_VISIBLE_DEVICES hides it.",
        "nvidia-smi tells whether the driver answers; in Docker the container needs --gpus all.",
        words=("Found no NVIDIA driver on your system", "No CUDA GPUs are available"),
        source="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/cuda/__init__.py",
        text=r"Found no NVIDIA driver on your system|No CUDA GPUs are available|No GPU found\. A GPU is needed"
        r"|Cannot access accelerator device when none is available",
        rule="MEM003",
    ),
    Known(
        "The driver of the card is older than what this build of PyTorch needs.",
        "Update the driver, or install a PyTorch wheel for an older CUDA.",
        words=(
            "CUDA driver version is insufficient",
            "The NVIDIA driver on your system is too old",
            "PTX was compiled with an",
        ),
        source="https://github.com/pytorch/pytorch/issues/146056",
        text=r"CUDA driver version is insufficient for CUDA runtime version"
        r"|The NVIDIA driver on your system is too old|provided PTX was compiled with an unsupported toolchain"
        r"|device kernel image is invalid",
        rule="PKG003",
    ),
    Known(
        "The trainer needs a newer diffusers than the one installed, most often a commit that is in no release.",
        "pip install -r requirements.txt in the trainer's folder, in the environment that runs it.",
        avoid="pip install -U diffusers may bring a version that is too new for it.",
        error="ImportError",
        words=("Diffusers is out of date",),
        source="https://github.com/ostris/ai-toolkit/blob/main/toolkit/stable_diffusion_model.py",
        text=r"Diffusers is out of date",
        rule="PKG004",
    ),
    Known(
        "The package kernels is newer than this transformers knows.",
        "pip uninstall kernels, or install the version that transformers names.",
        error="ValueError",
        text=r"Either a revision or a version must be specified",
        source="https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/integrations/hub_kernels.py",
    ),
    Known(
        "The model is to be quantized by bitsandbytes, which is not installed or too old.",
        "pip install -U bitsandbytes, or take a quantization that the trainer brings itself.",
        text=r"requires (?:the latest version of )?bitsandbytes|[Uu]sing `bitsandbytes` .*requires",
        words=("Using `bitsandbytes`", "requires the latest version of bitsandbytes"),
        rule="PKG005",
        source="https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/quantizers/quantizer_bnb_4bit.py",
    ),
    Known(
        "A package is not installed in the environment that ran this: another environment, or an installation that "
        "was not finished.",
        "pip install -r requirements.txt in the trainer's folder, with the same python that starts the run.",
        error="ModuleNotFoundError",
        words=("No module named '", 'No module named "'),
        source="https://github.com/Tavris1/AI-Toolkit-Easy-Install/issues/3",
        text=r"No module named",
    ),
    Known(
        "The optimizer lion needs a package that ai-toolkit does not install.",
        "pip install lion-pytorch, or take another optimizer.",
        error="ImportError",
        text=r"Please install lion_pytorch",
        source="https://github.com/ostris/ai-toolkit/blob/27a03a91/toolkit/optimizer.py",
    ),
    Known(
        "Weights & Biases asks for its key, and nobody can answer.",
        "wandb login before the start, or WANDB_MODE=offline.",
        words=("api_key not configured (no-tty)",),
        source="https://github.com/wandb/wandb/blob/main/wandb/errors/errors.py",
        text=r"api_key not configured \(no-tty\)",
    ),
    Known(
        "A name or a caption holds characters that the terminal's code page lacks.",
        "Set PYTHONUTF8=1 before the start.",
        error="UnicodeEncodeError",
        words=("codec can't encode",),
        source="https://docs.python.org/3/using/windows.html#utf-8-mode",
        text=r"'(charmap|gbk|cp\d+|ascii|latin-1)' codec can't encode",
    ),
    Known(
        "A file written in UTF-8 is read in the code page of this Windows.",
        "Set PYTHONUTF8=1 before the start.",
        error="UnicodeDecodeError",
        words=("codec can't decode",),
        source="https://github.com/AIMixer/LoRAMaster/issues/1",
        text=r"'(charmap|gbk|cp\d+|ascii)' codec can't decode",
        alone=True,
    ),
)
