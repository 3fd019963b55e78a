"""CPU milliseconds to read and verify the headers of 20 safetensors shards of 300 tensors each, as a check does.

    python benchmarks/headers.py [ROUNDS]

The shards are sparse files of the true size (3840-wide layers in bf16), their headers in the page cache. Beside it
the same headers through safetensors' own `safe_open(…).keys()`. Bar: 15 ms.
"""

from __future__ import annotations

import gc
import json
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from safetensors import safe_open

from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.doctor.probe.world.safetensors import read_weight_file

SHARDS, TENSORS = 20, 300


def shard(path: Path) -> None:
    """A sound safetensors file whose data are a hole."""
    header, end = {}, 0
    for number in range(TENSORS):
        shape = [3840, (3840, 10240, 256)[number % 3]]
        size = 2 * shape[0] * shape[1]
        name = f"layers.{number // 10}.attention.part_{number % 10}.weight"
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    gc.disable()  # as the command does
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{number}.safetensors" for number in range(SHARDS)]
        for file in files:
            shard(file)
        world = LiveWorld()

        def ours() -> int:
            return sum(len(read_weight_file(world, str(file), file.name).tensors) for file in files)

        def theirs() -> int:
            count = 0
            for file in files:
                with safe_open(file, "np") as opened:
                    count += len(opened.keys())
            return count

        contenders: dict[str, Callable[[], int]] = {"zdoctor": ours, "safe_open": theirs}
        spent: dict[str, list[float]] = {name: [] for name in contenders}
        for _ in range(rounds):
            for name, read in contenders.items():
                started = time.process_time()
                assert read() == SHARDS * TENSORS
                spent[name].append((time.process_time() - started) * 1000)
        for name, times in spent.items():
            print(f"{name:10} median {statistics.median(times):.1f} ms, first {times[0]:.1f}, all ", end="")
            print(" ".join(f"{t:.1f}" for t in times))


if __name__ == "__main__":
    main()
