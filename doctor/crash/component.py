"""Which component of the model failed to load: whose files are the bad ones."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..model.crashes import Failure

# The part of the model whose move to the device failed, by the line of code.
_SITES = (
    ("T5", re.compile(r"t5xxl|\bt5\b", re.I)),
    ("CLIP", re.compile(r"clip_l\b", re.I)),
    ("the text encoder", re.compile(r"text_encoder|qwen", re.I)),
    ("the VAE", re.compile(r"\bvae\b|\bae\.to\b|autoencoder", re.I)),
    ("the transformer", re.compile(r"transformer|unet|\bdit\b|flux\.to|model\.to", re.I)),
)
_LOADED = re.compile(r"Loaded (Flux|AE|CLIP-L|T5xxl):\s+(?:\w+\.py:\d+\s+)?_IncompatibleKeys\(missing_keys=\['")
_LOADED_PARTS = {"Flux": "the transformer", "AE": "the VAE", "CLIP-L": "CLIP", "T5xxl": "T5"}
# Rules whose finding is about one component.
_SITED = frozenset(("MDL001", "MDL002", "HUB001", "MDL004"))


def component(failure: Failure, rules: Sequence[str], lines: Sequence[str]) -> str:
    """The component that the first of the rules is about; "" where it is about none, or the log does not tell."""
    return _site(failure) or _lacking(lines) if _SITED & {*rules[:1]} else ""


def _lacking(lines: Sequence[str]) -> str:
    """The component of which sd-scripts has said that keys are missing."""
    parts = set(_LOADED.findall("\n".join(lines)))
    return _LOADED_PARTS.get(parts.pop(), "") if len(parts) == 1 else ""


def _site(failure: Failure) -> str:
    """The component, by the innermost line of code outside of the libraries that names one."""
    for frame in reversed([frame for frame in failure.frames if not frame.is_library]):
        for name, pattern in _SITES:
            if pattern.search(frame.code):
                return name
    return ""
