"""A log of each known failure: its sample, else its own words, with a traceback where an exception is named."""

from __future__ import annotations

import re

from zdoctor.doctor.crash.lines import NAME
from zdoctor.doctor.model.crashes import Known

_START = "Traceback (most recent call last):\n"
_FRAME = 'File "/x/train.py", line 3, in step\n  loss = step(batch)\n'
_EXCEPTION = re.compile(rf"(?:{NAME}|\w+Failed|\w+Exit)(?::|$)")


def log_of(known: Known) -> str:
    words = known.line or f"{known.error or 'RuntimeError'}: {''.join(known.words[:1])}"
    text = known.sample or "\n".join([words] * known.least)
    if _EXCEPTION.match(text):
        text = _FRAME + text
    if text.startswith("File "):
        text = _START + re.sub(r"^(?=File |  )", "  ", text, flags=re.M)
    return f"Loading the config\n{text}\n"
