"""What to paste into an issue where a failure is not known: the versions that the log tells of, and its end."""

from __future__ import annotations

import re
from typing import Any

from ..model.crashes import Failure
from ..model.printable import without_tokens
from .lines import Lines

MOST_LINES = 40
HEAD = 6
LONGEST = 300
_LATE = 4000
_NAMES = (
    *("torch", "torchvision", "torchaudio", "transformers", "diffusers", "accelerate", "peft", "bitsandbytes"),
    *("xformers", "triton", "flash-attn", "flash_attn", "safetensors", "huggingface-hub", "huggingface_hub"),
    *("hf-xet", "hf_xet", "numpy", "deepspeed", "torchao", "optimum-quanto", "optimum_quanto", "sageattention"),
    *("prodigyopt", "PyTorch", "Pytorch", "pyTorch", "pytorch", "Python", "python", "CUDA", "Driver", "ROCm"),
)
_VERSIONED = re.compile(
    rf"\b(?P<name>{'|'.join(_NAMES)})"
    r"(?:[_-]windows)?(?: [Vv]ersion)?(?:==|[:=]|-|/)? *v?\(?(?P<version>\d+\.\d+(?:\.\d+)*(?:\+\w+)?)(?![\w.]*\.\w)"
)
_IN_PATH = re.compile(r"[/\\](?:lib[/\\])?python-?(?P<version>3\.\d+)[/\\]")
_NOT_INSTALLED = re.compile(r"require|satisfi|No matching|Collecting|download|available:|<|>|~=|!=", re.I)
_CARD = re.compile(r"\bNVIDIA (?:GeForce|RTX|A\d+|H\d+|L\d+|Tesla|Quadro)[ \w-]{0,30}|\bAMD Radeon[ \w-]{0,30}")
_HOMES = re.compile(r"(?P<before>(?:/home/|/Users/|(?<=/)Users/|[A-Za-z]:[\\/]+Users[\\/]+))[^/\\\s\"']+")
_MAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)*")
_ADDRESS = re.compile(r"(?<![\d.+])(?:\d{1,3}\.){3}\d{1,3}(?![\d.])")
_LONG_KEY = re.compile(r"(?<![\w/])[0-9a-fA-F]{32,}(?!\w)")


def versions(lines: Lines) -> dict[str, str]:
    """What the log says is installed, the last word of it on each."""
    found: dict[str, str] = {}
    for at in lines.holding("python3.", "python-3."):
        for path in _IN_PATH.finditer(lines[at]):
            found.setdefault("python", path["version"])
    for at in lines.holding(*_NAMES):
        told = {one["name"]: one["version"] for one in _VERSIONED.finditer(lines[at])}
        if told and not _NOT_INSTALLED.search(lines[at]):
            found |= {name.lower().replace("_", "-").replace("pytorch", "torch"): told[name] for name in told}
    cards = [card[0].strip() for at in lines.holding("NVIDIA ", "AMD Radeon") if (card := _CARD.search(lines[at]))]
    return {**dict(sorted(found.items())), **({"card": cards[-1]} if cards else {})}


def excerpt(lines: Lines, failure: Failure | None) -> str:
    """The failure as the log shows it, or the log's end, without names, tokens and addresses."""
    if failure is None:
        shown = [line.rstrip() for line in lines.last(_LATE) if line.strip()][-MOST_LINES // 2 :]
    else:
        first = min(part.begin or part.at for part in failure.chain)
        shown = [line.rstrip() for line in lines.between(first - 1, failure.at + 1)]
    if len(shown) > MOST_LINES:
        left = len(shown) - MOST_LINES
        shown = [*shown[:HEAD], f"[{left} lines left out]", *shown[HEAD - MOST_LINES :]]
    return "\n".join(anonymous(line[:LONGEST]) for line in shown)


def anonymous(text: str) -> str:
    """`text` without folders of homes, mail and network addresses, and what looks like a key."""
    text = _MAIL.sub("***", _HOMES.sub(r"\g<before>***", text))
    return without_tokens(_LONG_KEY.sub("***", _ADDRESS.sub("***", text)))


def nameless(value: Any) -> Any:
    """JSON data of a log, each text of it without names, tokens and addresses."""
    if isinstance(value, str):
        return anonymous(value)
    if isinstance(value, dict):
        return {key: nameless(one) for key, one in value.items()}
    return [nameless(one) for one in value] if isinstance(value, list) else value
