"""A text encoder is loaded as transformers does it, or tensor by tensor with its Linears quantized.

In float16 too each Linear is one of ours, so that nothing overflows (see kernels/float16.py): T5's and Qwen3's
activations are larger than float16 can hold.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from ..kernels.float16 import multiply_in_float16
from ..kernels.quantized_linear import Quantization
from ..runtime.precision import has_float16
from ..runtime.train_error import TrainError
from ..weights.materialize import empty_parameters, install_tensors, linear_shapes, read_tensors, shapes_of
from .component_files import checked_tensors, component_config
from .pretrained import load_pretrained


def load_text_encoder(
    make: Any, place: Path, what: str, kind: Quantization, dtype: torch.dtype, device: torch.device
) -> Any:
    """Returns the frozen text encoder of class `make` on the device. Raises TrainError, torch.OutOfMemoryError."""
    if dtype == torch.float16:
        model = load_quantized(make, place, "float16" if kind == "none" else kind, torch.float32, device)
        if device.type != "cpu" or has_float16():
            multiply_in_float16(model)
        return model
    if kind == "none" and place.is_dir():
        return load_pretrained(make, place, what, dtype=dtype).to(device)
    return load_quantized(make, place, kind, dtype, device)


def load_quantized(make: Any, place: Path, kind: Quantization, dtype: torch.dtype, device: torch.device) -> Any:
    """Returns the model with each Linear quantized as it arrives, so that one whole weight is in memory at a time.

    `place` is its folder, or the file that holds it.
    """
    if place.is_dir() and not any(place.glob("*.safetensors")) and any(place.glob("pytorch_model*.bin")):
        raise TrainError(_pickled(place, make.__name__))
    of = make.config_class
    config = _config_of(of, place, make.__name__) if place.is_file() else of.from_pretrained(str(place))
    with empty_parameters():
        model = make(config).eval()
    model.tie_weights()
    every, unique = (dict(model.named_parameters(remove_duplicate=once)) for once in (False, True))
    tied = every.keys() - unique.keys()
    needed = {name: shape for name, shape in shapes_of(model).items() if name not in tied}
    entries = checked_tensors(place, make.__name__, needed)
    quantized = {} if kind == "none" else linear_shapes(model)
    install_tensors(model, dict(read_tensors(entries, quantized, kind, {}, dtype, device)), quantized)
    model.tie_weights()
    return model.requires_grad_(False).to(device)


def _config_of(make: Any, file: Path, class_name: str) -> Any:
    """The config of a file: of a language model alone its part of the whole model's."""
    whole = component_config(file, class_name)
    return make(**whole.get(make.base_config_key, whole))


def _pickled(folder: Path, class_name: str) -> str:
    """What to do about weights in files that cannot be read tensor by tensor."""
    name = (component_config(folder, class_name).get("architectures") or [class_name])[0]
    write = f"from transformers import {name} as M; M.from_pretrained({str(folder)!r}, dtype='auto')"
    return (
        f"{folder} holds its weights as pytorch_model.bin, which is read as a whole only, and this run quantizes the "
        "text encoder, or computes in float16. Write them as safetensors beside it, in as much memory as they take. "
        f'Type: python -c "{write}.save_pretrained({str(folder)!r})"'
    )
