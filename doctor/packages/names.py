"""Packages that are imported by another name than they are installed by, and packages that stand in for another.

Each was read off the package's own wheel (its RECORD or top_level.txt) on 2026-11-22.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

_MODULES: Mapping[str, tuple[str, ...]] = {
    "invisible_watermark": ("imwatermark",),
    "lycoris_lora": ("lycoris",),
    "nvidia_ml_py": ("pynvml",),
    "open_clip_torch": ("open_clip",),
    "opencv_python": ("cv2",),
    "optimum_quanto": ("optimum.quanto",),
    "pillow": ("PIL",),
    "prodigy_plus_schedule_free": ("prodigyplus",),
    "protobuf": ("google.protobuf",),
    "python_dotenv": ("dotenv",),
    "python_slugify": ("slugify",),
    "pyyaml": ("yaml",),
    "scikit_image": ("skimage",),
    "scikit_learn": ("sklearn",),
}
_CV2 = ("opencv_python", "opencv_python_headless", "opencv_contrib_python", "opencv_contrib_python_headless")
# Packages that bring the same module: one is enough, and of two the later one overwrites files of the first.
ALIKE: Mapping[str, tuple[str, ...]] = {
    "cv2": _CV2,
    "onnxruntime": ("onnxruntime", "onnxruntime_gpu", "onnxruntime_directml"),
    "pynvml": ("nvidia_ml_py", "pynvml"),
    "triton": ("triton", "triton_windows", "pytorch_triton", "pytorch_triton_rocm"),
}

# What every trainer of diffusion models leans on: conflicts among these are told even where no file asks for them.
CORE = (
    *("torch", "torchvision", "torchaudio", "diffusers", "transformers", "accelerate", "peft", "safetensors"),
    *("huggingface_hub", "tokenizers", "bitsandbytes", "numpy", "torchao", "xformers", "flash_attn"),
)
# Packages whose import ends where these others are of another version than they ask for: transformers compares them
# itself (dependency_versions_check.py of 4.40 to 5.23), torchaudio before 2.11 is linked against the one torch of its
# metadata. Looked up on 2026-11-22.
REFUSES: Mapping[str, tuple[str, ...]] = {
    "torchaudio": ("torch",),
    "transformers": (
        *("filelock", "huggingface_hub", "numpy", "packaging", "pyyaml", "regex"),
        *("safetensors", "tokenizers", "tqdm"),
    ),
}


def modules_of(name: str) -> tuple[str, ...]:
    """The modules that a package is imported by."""
    return _MODULES.get(name, (name,))


def provided(name: str, installed: Container[str]) -> bool:
    """Whether another package that is installed brings the same module."""
    return any(
        name in group and any(other in installed for other in group if other != name) for group in ALIKE.values()
    )
