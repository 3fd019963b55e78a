"""CPU seconds of a whole `zdoctor check --format json` on the Kaggle-shaped config with a 20-shard model folder.

    python benchmarks/check_cpu.py [RUNS] [--vs COMMAND]

The model is the full-size Z-Image: real headers, sparse data (12 GB by size, kilobytes on disk). `--help` is timed
beside it, and another program in turn with both. Bars: 0.20 CPU-seconds, 0.10 for `--help`, and 0.95 times
`mlenvdoctor diagnose` (of PyPI, in an environment of its own).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shlex
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


def seconds_of(command: list[str], folder: str) -> tuple[float, str]:
    """User and system seconds of one run of a command, and what it printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", nargs="?", type=int, default=9)
    parser.add_argument("--vs", metavar="COMMAND", type=shlex.split, help="in turn with this one")
    options = parser.parse_args()
    zdoctor = [sys.executable, "-m", "zdoctor"]
    with tempfile.TemporaryDirectory() as name:
        os.environ["ZDOCTOR_STATE"] = str(Path(name) / "state")
        os.environ["PYTHONPYCACHEPREFIX"] = str(Path(name) / "bytecode")  # as installed, wherever the checkout lies
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        check = [*zdoctor, "check", str(build(Path(name))), "--format", "json"]
        commands = {"check": check, "help": [*zdoctor, "--help"], **({"other": options.vs} if options.vs else {})}
        seconds: dict[str, list[float]] = {what: [] for what in commands}
        for turn in range(options.runs + 1):
            for what, command in commands.items():
                took, printed = seconds_of(command, name)
                if turn:  # the first run fills the page cache and the bytecode cache
                    seconds[what].append(took)
                if what == "check":
                    report = json.loads(printed)
        print("findings:", [f["rule"] for f in report["findings"]], "unknown:", report["unknown"])
        for what, took in seconds.items():
            print(f"{what}: CPU seconds", " ".join(f"{s:.3f}" for s in took), f"median {statistics.median(took):.3f}")
        if options.vs:
            ratios = [own / other for own, other in zip(seconds["check"], seconds["other"], strict=True)]
            print(f"check / other, pair by pair: median {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    main()
