"""CPU seconds of a whole `zdoctor check --format json` on the Kaggle-shaped config with a 20-shard model folder.

    python benchmarks/check_cpu.py [RUNS]

The model is the full-size Z-Image: real headers, sparse data (12 GB by size, kilobytes on disk).
Bar: 0.25 CPU-seconds, median of five.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import struct
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any

from zdoctor.tests.configs_on_disk import write_config
from zdoctor.tests.machines import FULL, adapter, model

ROOT = Path(__file__).parent.parent
SHARDS = 20


def weight_file(path: Path, tensors: dict[str, Any]) -> int:
    """A sparse safetensors file with a real header; returns the bytes of its data."""
    offset, header = 0, {}
    for name, (dtype, shape) in tensors.items():
        count = 1
        for side in shape:
            count *= side
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + count * 2]}
        offset += count * 2
    text = json.dumps(header).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + offset)
    return offset


def build(root: Path) -> Path:
    """The model folder, the adapter, a dataset of 40 images and the config that names them."""
    folder = root / "Z-Image-Turbo"
    for path, entry in model(str(folder), os.path.join, FULL).items():
        if "tensors" not in entry:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_text(entry["text"] if "text" in entry else json.dumps(entry["json"]))
        elif "transformer" in path:
            names = list(entry["tensors"])
            weight_map = {}
            for number in range(SHARDS):
                name = f"diffusion_pytorch_model-{number + 1:05d}-of-{SHARDS:05d}.safetensors"
                part = {n: entry["tensors"][n] for n in names[number::SHARDS]}
                weight_file(Path(path).with_name(name), part)
                weight_map |= dict.fromkeys(part, name)
            index = {"metadata": {}, "weight_map": weight_map}
            Path(path).with_name("diffusion_pytorch_model.safetensors.index.json").write_text(json.dumps(index))
        else:
            weight_file(Path(path), entry["tensors"])
    weight_file(root / "adapter.safetensors", adapter()["tensors"])
    header = struct.pack(">IIBBBBB", 1024, 1024, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(bytes(1024 * 3073))), (b"IEND", b""))
    picture = b"\x89PNG\r\n\x1a\n"
    for kind, body in chunks:
        picture += struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    data = root / "data"
    data.mkdir()
    for number in range(40):
        (data / f"{number}.png").write_bytes(picture)
        (data / f"{number}.txt").write_text("a woman")
    config = write_config(root, name_or_path=str(folder), assistant_lora_path=str(root / "adapter.safetensors"))
    kaggle = (ROOT / "examples" / "kaggle_zimage.yaml").read_text(encoding="utf-8")
    for old, new in (
        ("/kaggle/input/testarossa-dataset/testarossa-dataset", str(data)),
        ("/kaggle/working/Z-Image-Turbo-HF", str(folder)),
        (
            "/kaggle/working/zimage_turbo_training_adapter/zimage_turbo_training_adapter_v2.safetensors",
            str(root / "adapter.safetensors"),
        ),
        ("/kaggle/working/testarossa_lora", str(root / "output")),
    ):
        kaggle = kaggle.replace(old, new)
    config.write_text(kaggle, encoding="utf-8")
    return config


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory() as name:
        config = build(Path(name))
        command = [sys.executable, "-m", "zdoctor", "check", str(config), "--format", "json"]
        environment = {**os.environ, "ZDOCTOR_STATE": str(Path(name) / "state")}
        seconds = []
        for turn in range(runs + 1):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=name)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            if turn:  # the first run fills the page cache and the bytecode cache
                seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        report = json.loads(done.stdout)
        print("findings:", [f["rule"] for f in report["findings"]], "unknown:", report["unknown"])
        print("CPU seconds:", " ".join(f"{s:.3f}" for s in seconds), f"median {statistics.median(seconds):.3f}")


if __name__ == "__main__":
    main()
