"""What each phase of the runner holds on a card without numbers, beside what is predicted in a closed form.

    python benchmarks/phases.py [ARCHITECTURE ...] [--kinds bf16,int8,nf4]

Models of their published size, whose files hold no data, go through the runner's own code from the first look at the
files to the samples and the saved LoRA (tests/doctor/train/full_size.py): 1024 px, rank 16, two steps, a sample, the
text encoder quantized as the transformer. It needs g++ and no card; minutes for each.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any

from zdoctor.doctor.memory import GIB, predict
from zdoctor.doctor.model import Gpu, Memory, System
from zdoctor.tests.doctor.train.card import answers_of, compiled
from zdoctor.tests.doctor.train.full_size import TINY, build, picture, run_on
from zdoctor.tests.models import probed

SYSTEM = System("linux", "6", "3.11", "/c", "/h", 4, 320 * GIB, 280 * GIB)
CARD = Gpu(0, "a card", 900 * GIB, 890 * GIB, (9, 0), "1", "assumed")
CONTEXT = "CUDA context (assumed)"
KINDS: dict[str, dict[str, Any]] = {
    "bf16": {"quantization": None, "text_encoder_quantization": None},
    "int8": {"quantization": "int8", "text_encoder_quantization": "int8"},
    "nf4": {"quantization": "nf4", "text_encoder_quantization": "nf4"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("architectures", nargs="*", default=list(TINY))
    parser.add_argument("--kinds", default=",".join(KINDS))
    words = parser.parse_args()
    os.environ["ZDOCTOR_CACHE"] = "/proc/none"  # where nothing can be kept
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        library, images = compiled(folder), picture(folder / "images")
        for number, architecture in enumerate(words.architectures):
            model = build(folder / f"model{number}", architecture)
            kinds = words.kinds.split(",")
            runs = [run_on(model, architecture, **KINDS[kind]) for kind in kinds]
            asked = [(run, model, images, folder / f"{number}-{kind}") for kind, run in zip(kinds, runs, strict=True)]
            found = answers_of("full_size", library, asked)
            for kind, run, held in zip(kinds, runs, found, strict=True):
                memory = predict(run, probed(run), (), SYSTEM, (CARD,))
                assert isinstance(memory, Memory), memory
                print(architecture, kind, flush=True)
                computed = {phase.name: phase for phase in memory.phases}
                for name, most in held["most"].items():
                    line = f"  {name:26} {most / GIB:7.2f}"
                    if (phase := computed.get(name)) is not None:
                        said = phase.total - phase.items[CONTEXT]
                        items = {n: round(s / GIB, 2) for n, s in phase.items.items() if n != CONTEXT}
                        line += f" {said / GIB:7.2f} {100 * (said / most - 1):+6.1f} %  {items}"
                    print(f"{line}  (begins with {held['first'][name] / GIB:.2f})", flush=True)


if __name__ == "__main__":
    main()
