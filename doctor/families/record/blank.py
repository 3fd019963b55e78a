"""A record that knows nothing: of an architecture without one, and what is not known yet of a family."""

from __future__ import annotations

from . import AiToolkit, Family

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
    base_version="",
    lokr=True,
    blocks=(),
    lora_blocks=(),
    refiners=(),
    quantized_blocks=(),
    edits=False,
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
)
