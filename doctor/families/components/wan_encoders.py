"""What reads prompts and pictures for Wan, in the classes of its authors."""

from __future__ import annotations

from ..record import ModelClass
from ..record.mined import mined_class

CLASSES: tuple[ModelClass, ...] = (
    mined_class("T5Encoder", "a T5 text encoder of Wan", ("blocks.0.pos_embedding.embedding.weight",)),
    mined_class("XLMRobertaCLIP", "a CLIP of Wan", ("visual.cls_embedding",)),
)
