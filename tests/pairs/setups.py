"""The setups: a healthy patient of each trainer, with its faults."""

from __future__ import annotations

from zdoctor.tests.pairs import ai_toolkit, kohya, simpletuner
from zdoctor.tests.pairs.judge import Setup

SETUPS = (
    Setup("ai-toolkit-zimage", ai_toolkit.zimage, ai_toolkit.zimage_faults()),
    Setup("ai-toolkit-flux", ai_toolkit.flux, ai_toolkit.flux_faults()),
    Setup("sd-scripts-flux", kohya.flux, kohya.flux_faults()),
    Setup("musubi-zimage", kohya.zimage, kohya.zimage_faults()),
    Setup("simpletuner-zimage", simpletuner.zimage, simpletuner.zimage_faults()),
)
