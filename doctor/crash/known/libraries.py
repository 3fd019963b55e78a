"""Compiled libraries that cannot be loaded, on Windows, Linux and in containers."""

from __future__ import annotations

from ...model.crashes import Known

_TORCH_FAMILY = (
    "Install torch, torchvision and torchaudio together, from the same index of https://download.pytorch.org/whl."
)

KNOWN = (
    Known(
        "torch's own library could not start on this Windows: its Visual C++ runtime is older than this torch needs.",
        "Install the newest https://aka.ms/vc14/vc_redist.x64.exe and restart. Where it stays, another package loads "
        "its own runtime first: import torch before it.",
        avoid="Installing torch anew changes nothing.",
        text=r"(?:WinError )?1114\b.*(?:c10\.dll|torch.lib)|WinError 1114\b",
        words=("WinError 1114", "c10.dll"),
        alone=True,
        source="https://github.com/nagadomi/nunif/issues/701",
    ),
    Known(
        "torch's libraries are not whole or not of one version: another installation of them is found, or a virus "
        "scanner has taken one away.",
        f"{_TORCH_FAMILY} Before it pip uninstall torch torchvision torchaudio; then see the scanner's quarantine.",
        text=r"DLL load failed while importing _C\b|Error loading \".*torch.lib.[\w.-]+\.dll\"",
        words=("DLL load failed while importing _C", "or one of its dependencies."),
        alone=True,
        source="https://github.com/conda-forge/pytorch-cpu-feedstock/issues/354",
    ),
    Known(
        "torchcodec cannot use the FFmpeg of this machine, or was built for another torch than the one installed.",
        "Install the version of torchcodec that its page names beside this torch, and FFmpeg 4 to 8; on Windows the "
        "build called full-shared, for the others bring no libraries.",
        avoid="ffmpeg in PATH alone is not enough; torchcodec loads its libraries.",
        words=("Could not load libtorchcodec",),
        alone=True,
        source="https://github.com/meta-pytorch/torchcodec/issues/1143",
    ),
    Known(
        "torchaudio was built for another torch than the one installed.",
        _TORCH_FAMILY,
        text=r"(?:_torchaudio|libtorchaudio)\w*\.(?:pyd|so).*|Could not load this library: .*torchaudio",
        words=("libtorchaudio", "_torchaudio."),
        alone=True,
        source="https://github.com/FranckyB/Voice-Clone-Studio/issues/79",
    ),
    Known(
        "torchvision was built for another torch than the one installed.",
        _TORCH_FAMILY,
        words=("operator torchvision::nms does not exist", "Couldn't load custom C++ ops"),
        alone=True,
        source="https://github.com/naver/dust3r/issues/246",
    ),
    Known(
        "flash-attn was built for another torch, Python or CUDA than the one installed.",
        "Install the wheel that names this torch, CUDA, Python and C++ ABI (flash-attn's releases list them), or "
        "take "
        "it out: pip uninstall flash-attn. The trainers work with torch's own attention.",
        text=r"flash_attn\w*[^ ]*\.(?:so|pyd)\S*: undefined symbol|DLL load failed while importing flash_attn",
        words=("undefined symbol", "DLL load failed while importing flash_attn"),
        alone=True,
        source="https://github.com/Dao-AILab/flash-attention/issues/1832",
    ),
    Known(
        "A compiled extension was built for another torch than the one installed.",
        "Install it anew in the build for this torch; the message names its file.",
        text=r"site-packages\S*\.(?:so|pyd)\S*: undefined symbol|: undefined symbol: _ZN(?:K?3c10|2at|5torch)",
        words=("undefined symbol",),
        alone=True,
        source="https://github.com/Dao-AILab/flash-attention/issues/723",
    ),
    Known(
        "bitsandbytes has no compiled library for this CUDA: its build has none, or BNB_CUDA_VERSION asks for "
        "another.",
        "Unset BNB_CUDA_VERSION, then pip install -U bitsandbytes. Until that works, take an optimizer that is not "
        "of "
        "8 bits (AdamW, Adafactor).",
        avoid="Copying libcudart about, or LD_LIBRARY_PATH, mends another failure.",
        words=(
            "Could not find the bitsandbytes CUDA binary",
            "Could not load bitsandbytes native library",
            "CUDA Setup failed despite CUDA being available",
            "CUDA Setup failed despite GPU being available",
            "bitsandbytes was compiled without GPU support",
            "Configured CUDA binary not found at",
            "Configured ROCm binary not found at",
            "Attempted to use bitsandbytes native library functionality but it's not available",
        ),
        alone=True,
        source="https://github.com/bitsandbytes-foundation/bitsandbytes/issues/1559",
    ),
    Known(
        "bitsandbytes has no compiled library for this CUDA; it then asked for the one without CUDA, which is not "
        "there, either: it was built from source only in part.",
        "pip uninstall bitsandbytes, then pip install bitsandbytes, outside of a folder that is called bitsandbytes.",
        error="OSError",
        text=r"libbitsandbytes_\w+\.(?:so|dll): cannot open shared object",
        alone=True,
        source="https://github.com/bitsandbytes-foundation/bitsandbytes/issues/1614",
    ),
    Known(
        "A library of the system is missing, which OpenCV needs; containers often leave it out.",
        "apt-get install -y libgl1 libglib2.0-0, or pip install opencv-python-headless in the place of "
        "opencv-python.",
        words=("libGL.so.1: cannot open shared object", "libgthread-2.0.so.0: cannot open shared object"),
        alone=True,
        source="https://github.com/Physical-Intelligence/openpi/pull/484",
    ),
    Known(
        "A library of CUDA that a package was built with is not on this machine, or of another version.",
        'Install the package for the CUDA of this torch (python -c "import torch; print(torch.version.cuda)").',
        text=r"lib(?:cudart|cublas\w*|cusparse|cudnn\w*|nvrtc|nppicc)\.so[.\d]*: cannot open shared object",
        words=("cannot open shared object file",),
        alone=True,
        source="https://github.com/bitsandbytes-foundation/bitsandbytes/issues/1452",
    ),
    Known(
        "Two versions of cuDNN meet, or the one that is found has no way to compute this convolution on the card.",
        "Take the system's cuDNN out of PATH or LD_LIBRARY_PATH, so that torch finds its own; on a full card end "
        "what "
        "else runs there.",
        words=("was unable to find an engine to execute this computation",),
        alone=True,
        source="https://github.com/replicate/cog/issues/1430",
    ),
    Known(
        "A library (DLL) that a package needs was not found or could not be loaded on this Windows.",
        "Install https://aka.ms/vc14/vc_redist.x64.exe, then the package anew in the build for this Python and "
        "torch; "
        "see whether a virus scanner has taken a file away.",
        words=("DLL load failed", "WinError 126", "WinError 127", "WinError 193"),
        text=r"DLL load failed|WinError (?:126|127|193)\b",
        alone=True,
        source="https://github.com/ostris/ai-toolkit/issues/50",
    ),
)
