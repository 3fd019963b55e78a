"""This program makes a training step on tensors without data, and tells what it held.

    python -m zdoctor.doctor.train.rehearsal.program < question.json

A process of its own, started by `zdoctor memory`: it imports torch and diffusers. The question has the fields of
`Step`; the answer is an object on standard output: `peak`, `static`, `at_peak` and `reserved` in bytes, and
`seconds`. What a library prints goes to standard error.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
import warnings
from typing import Any


def main() -> None:
    warnings.simplefilter("ignore")
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answer_to:
        os.dup2(2, 1)  # what libraries print is not the answer
        print(json.dumps(answer(json.load(sys.stdin))), file=answer_to, flush=True)


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """What came of it; {"failed": …} where the class or the libraries are not there."""
    began = time.perf_counter()
    try:
        from ...model.recipe import Network
        from .inputs import Batch
        from .step import Step, rehearsed

        cells, controls = tuple(question["cells"]), tuple(map(tuple, question["controls"]))
        batch = Batch(question["batch"], cells, question["text"], controls)
        rank = question["rank"]
        step = Step(
            question["class_name"],
            question["config"],
            question["blocks"],
            question["trained"],
            batch,
            Network(question["kind"], rank, float(rank)),
            question["way"],
            quantized=question["quantized"],
            checkpointing=question["checkpointing"],
        )
        held = rehearsed(step)
    except Exception as error:  # of another version of a library: an answer, too
        return {"failed": f"{type(error).__name__}: {error}"[:400]}
    seconds = round(time.perf_counter() - began, 1)
    found = {"peak": held.peak, "static": held.static, "at_peak": held.at_peak, "reserved": held.reserved}
    return {**found, "seconds": seconds}


if __name__ == "__main__":
    main()
    gc.freeze()  # as in zdoctor/__main__.py
