"""The repair of a finished LoRA: a copy beside it. The file itself is never changed."""

from __future__ import annotations

from collections.abc import Iterator

from ..doctor.families.lora_repair import repaired
from ..doctor.model import Finding, Fix, Lora, LoraValues, WriteTensors
from ..doctor.model.shell import quoted
from ..doctor.rules import repair


@repair("LOR003", "LOR006", "LOR007", "LOR009")
def write_a_repaired_copy(finding: Finding, lora: Lora, lora_values: LoraValues) -> Iterator[Fix]:
    """Write a copy without what is broken, with the names and alpha keys that every program looks for."""
    copy = repaired(lora, lora_values)
    if copy is not None and lora.copied:
        title = f"{lora.copy} is such a copy; move it away to have it written anew"
        yield Fix(title, (), "show", command=f"zdoctor check {quoted(lora.copy)}")
    elif copy is not None:
        metadata = tuple(copy.metadata.items())
        step = WriteTensors(lora.copy, lora.path, lora.file.size, copy.tensors, metadata, copy.changes)
        title = f"write a copy, {lora.copy}, {', '.join(copy.changes)}"
        yield Fix(title, (step,), "ask" if copy.loses else "safe", order=1)
