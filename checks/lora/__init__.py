"""A finished LoRA: whether it is one, whether its numbers can do anything, and whose model it is for."""

from __future__ import annotations

from collections.abc import Sequence

from ...doctor.model import Lora, Where
from ...doctor.model.lora import LORA
from ...doctor.rules import NotApplicable

OURS = (LORA,)  # the rules' own kind of file
_MOST = 3  # names that are told as examples


def place(lora: Lora) -> Where:
    return Where(lora.path)


def adapter(lora: Lora) -> Lora:
    """The file, where it is an adapter; LOR001 and LOR002 tell of the others."""
    if lora.file.problem or not lora.kind:
        raise NotApplicable
    return lora


def few(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return ", ".join(names[:_MOST]) + more
