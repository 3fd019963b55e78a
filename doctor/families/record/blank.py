"""Records of an architecture without one, and of a family of which no more than its files is known."""

from __future__ import annotations

from ...model.record import replace
from . import Family
from .of_trainers import AiToolkit

BLANK = Family(
    name="",
    aliases=(),
    title="",
    transformer=None,
    loader=None,
    own=None,
    fits=(),
    published={},
    lora_prefixes=(),
    lora_beside={},
    base_version="",
    lokr=True,
    blocks=(),
    lora_blocks=(),
    refiners=(),
    quantized_blocks=(),
    edits=None,
    guided=True,
    overflows=False,
    scheduler=lambda config: {},
    distilled=None,
    memory=None,
    packages=(),
    repos={},
    files={},
    alike=False,
    tokenizers=(),
    ai_toolkit=AiToolkit(),
    simpletuner=None,
    kohya={},
    runner="",
    in_diffusers="",
)
FILES_ALONE = replace(BLANK, overflows=None)
