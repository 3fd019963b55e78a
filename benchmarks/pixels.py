"""Hold what the runner makes of pictures and captions against the trainers' own code, on the same folders.

    python benchmarks/pixels.py TRAINER CHECKOUT [--sizes 5000] [--pictures 60] [--captions 500]

TRAINER is ai-toolkit, sd-scripts, musubi-tuner or simpletuner. The trainer's own modules are imported from its
checkout; OpenCV and torchvision (simpletuner: trainingsample) have to be installed, what else it imports and is not
here is stood in for. Sizes are random, told by the trainer's own notes of sizes where it keeps them; pictures are
noise, waves and slopes in several modes, turned by EXIF where the trainer turns them, whole tensors compared.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from corpus_oracle import StandIn
from pixels_of import ai_toolkit, musubi_tuner, sd_scripts, simpletuner

TRAINERS = {
    "ai-toolkit": ai_toolkit,
    "sd-scripts": sd_scripts,
    "musubi-tuner": musubi_tuner,
    "simpletuner": simpletuner,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("trainer", choices=TRAINERS)
    parser.add_argument("checkout", type=Path)
    for name, default in (("sizes", 5000), ("pictures", 60), ("captions", 500)):
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args()
    root = asked.checkout.resolve()
    sys.meta_path.insert(0, StandIn(root))
    sys.path[:0] = [str(root), str(root / "src")]
    for what, counts in TRAINERS[asked.trainer].compared(asked.sizes, asked.pictures, asked.captions):
        told = "\n".join(f"  {name}: {count}" for name, count in counts.items())  # in the order of asking
        print(f"{asked.trainer}, {what}:\n{told}", flush=True)


if __name__ == "__main__":
    main()
