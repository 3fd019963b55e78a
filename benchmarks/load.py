"""Memory and time of loading a random Z-Image of about a billion parameters in int8 on the CPU.

    python benchmarks/load.py [ROUNDS] [KIND]

Real bf16 shards in the page cache; every round runs each contender once, in a fresh process each: zdoctor's loader
without a place to keep weights, then its first start (it reads, quantizes, writes the weights and maps them), its
second (it maps them; then reads every byte once), and diffusers' from_pretrained with a quantizer after it: torchao
where it is installed, and our own, Linear by Linear. Peaks are above what the imports left: anonymous memory sampled
every 2 ms, resident memory from the kernel (Linux). Bars: anonymous at most 1.05 × (quantized size + largest tensor)
and 2.5 times below from_pretrained; the second start 10 times faster than the first.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

CONFIG = {
    "_class_name": "ZImageTransformer2DModel",
    "all_f_patch_size": [1],
    "all_patch_size": [2],
    "axes_dims": [32, 48, 48],
    "axes_lens": [1024, 512, 512],
    "cap_feat_dim": 2560,
    "dim": 2304,
    "in_channels": 16,
    "n_heads": 18,
    "n_kv_heads": 18,
    "n_layers": 12,
    "n_refiner_layers": 1,
}
SHARD = 400 << 20
IMPORTED = "imported"


def build(folder: Path, config: Mapping[str, Any] = CONFIG, shard: int = SHARD) -> tuple[int, int, int]:
    """Write a transformer; returns its parameters, its bytes when quantized in eight bits, the largest tensor's."""
    import torch

    from zdoctor.doctor.train.families import zimage
    from zdoctor.doctor.train.transformer.load_transformer import build_empty_transformer
    from zdoctor.doctor.train.weights.materialize import linear_shapes

    (folder / "config.json").write_text(json.dumps(config))
    model = build_empty_transformer(folder)
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    blocks = {
        f"{name}.weight": shape for name, shape in linear_shapes(model).items() if zimage.RECORD.is_quantized(name)
    }
    write_shards(folder, "diffusion_pytorch_model", shapes, shard)
    count = {key: torch.Size(shape).numel() for key, shape in shapes.items()}
    quantized = 2 * sum(count.values()) + sum(4 * shape[0] - count[key] for key, shape in blocks.items())
    return sum(count.values()), quantized, 2 * max(count.values())


def write_shards(folder: Path, stem: str, shapes: Mapping[str, tuple[int, ...]], shard: int = SHARD) -> None:
    """Write random bf16 tensors in shards with their index; no more than a shard and a tensor are in memory.

    Matrices have the variance 1 / columns, scales of norms are one, biases zero.
    """
    import torch
    from safetensors.torch import save_file

    part: dict[str, torch.Tensor] = {}
    generator = torch.Generator().manual_seed(0)
    index: dict[str, str] = {}
    name = f"{stem}-0.safetensors"
    for key, shape in shapes.items():
        if sum(value.nbytes for value in part.values()) > shard:
            save_file(part, str(folder / name), metadata={"format": "pt"})
            part = {}
            name = f"{stem}-{len(set(index.values()))}.safetensors"
        if len(shape) > 1:
            tensor = torch.randn(shape, generator=generator).mul_(shape[1] ** -0.5)
        else:
            tensor = torch.full(shape, float(key.endswith("weight")))
        part[key] = tensor.bfloat16()
        index[key] = name
    save_file(part, str(folder / name), metadata={"format": "pt"})
    text = json.dumps({"metadata": {}, "weight_map": index})
    (folder / f"{stem}.safetensors.index.json").write_text(text)


def ours(folder: Path, kept: str, kind: str, touch: bool) -> None:
    import torch
    from diffusers.models.transformers.transformer_z_image import ZImageTransformer2DModel  # noqa: F401

    from zdoctor.doctor.train.runtime.allocator import return_freed_memory
    from zdoctor.doctor.train.transformer.load_transformer import build_empty_transformer, fill_transformer
    from zdoctor.doctor.train.weights.weight_cache import WeightCache

    wait()
    began, cpu = time.perf_counter(), time.process_time()
    return_freed_memory()
    model = build_empty_transformer(folder)
    cache = WeightCache(Path(kept), "none", lambda text: None) if kept else None
    options = {"quantization": kind, "adapter": {}, "dtype": torch.bfloat16, "device": torch.device("cpu")}
    fill_transformer(model, folder, cache=cache, **options)
    report(began, cpu)
    if touch:
        began, cpu = time.perf_counter(), time.process_time()
        total = sum(int(tensor.view(torch.uint8).max()) for tensor in model.state_dict().values())
        report(began, cpu)
        assert total


def diffusers(folder: Path, quantizer: str) -> None:
    import torch
    from diffusers.models.transformers.transformer_z_image import ZImageTransformer2DModel

    from zdoctor.doctor.train.families import zimage
    from zdoctor.doctor.train.kernels.quantized_linear import QuantizedLinear, quantize_rows
    from zdoctor.doctor.train.weights.materialize import linear_shapes, replace_module

    if quantizer == "torchao":
        from torchao.quantization import Int8WeightOnlyConfig, quantize_

    wait()
    began, cpu = time.perf_counter(), time.process_time()
    model = ZImageTransformer2DModel.from_pretrained(str(folder), torch_dtype=torch.bfloat16)
    if quantizer == "torchao":
        quantize_(
            model,
            Int8WeightOnlyConfig(),
            lambda m, n: isinstance(m, torch.nn.Linear) and zimage.RECORD.is_quantized(n),
        )
    else:
        for name in filter(zimage.RECORD.is_quantized, linear_shapes(model)):
            linear = model.get_submodule(name)
            made = quantize_rows(linear.weight.detach().float(), "int8")
            bias = None if linear.bias is None else linear.bias.detach()
            replace_module(model, name, QuantizedLinear(*made, bias, linear.in_features))
    report(began, cpu)


def wait() -> None:
    print(IMPORTED, flush=True)
    sys.stdin.readline()


def report(began: float, cpu: float) -> None:
    print(json.dumps([time.perf_counter() - began, time.process_time() - cpu]), flush=True)


def status(process: int) -> dict[str, int]:
    """RssAnon, VmRSS and VmHWM of a process in bytes."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return {name: int(fields[name].split()[0]) << 10 for name in ("RssAnon", "VmRSS", "VmHWM")}


def measure(*words: str) -> tuple[list[list[float]], int, int]:
    """Run one contender: wall and CPU seconds of each of its parts, peak of anonymous and of resident bytes."""
    command = [sys.executable, __file__, "--child", *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin and child.stdout
        while (line := child.stdout.readline()).strip() != IMPORTED:
            assert line, "the contender failed"
        Path(f"/proc/{child.pid}/clear_refs").write_text("5")  # the peak of resident memory begins anew
        start = status(child.pid)
        child.stdin.write("go\n")
        child.stdin.flush()
        anonymous, resident = 0, 0
        while child.poll() is None:
            try:
                now = status(child.pid)
            except (KeyError, FileNotFoundError, ProcessLookupError):
                break  # it ends
            anonymous, resident = max(anonymous, now["RssAnon"]), max(resident, now["VmHWM"])
            time.sleep(0.002)
        parts = [json.loads(line) for line in child.stdout if line.startswith("[")]
    assert child.returncode == 0, words
    return parts, anonymous - start["RssAnon"], resident - start["VmRSS"]


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    kind = sys.argv[2] if len(sys.argv) > 2 else "int8"
    with tempfile.TemporaryDirectory() as name:
        folder, kept = Path(name) / "model", Path(name) / "kept"
        folder.mkdir()
        parameters, quantized, largest = build(folder)
        floor = quantized + largest
        size = f"int8 {quantized >> 20} MiB, largest tensor {largest >> 20} MiB"
        print(f"{parameters / 1e9:.3f} billion parameters; {size}")
        contenders = {
            "nothing kept": ("ours", str(folder), "", kind, ""),
            "first start": ("ours", str(folder), str(kept), kind, ""),
            "second start": ("ours", str(folder), str(kept), kind, "touch"),
            "from_pretrained, own quantizer": ("diffusers", str(folder), "own"),
        }
        if importlib.util.find_spec("torchao"):
            print(f"torchao {importlib.metadata.version('torchao')}, load average {os.getloadavg()[0]:.2f}")
            contenders["from_pretrained, torchao"] = ("diffusers", str(folder), "torchao")
        time.sleep(2.5)  # files younger than two seconds are not taken for settled
        found: dict[str, list[tuple[list[list[float]], int, int]]] = {}
        for _ in range(rounds):
            shutil.rmtree(kept, ignore_errors=True)
            for what, words in contenders.items():
                found.setdefault(what, []).append(measure(*words))
        anonymous, resident, wall = {}, {}, {}
        for what, runs in found.items():
            anonymous[what] = statistics.median(run[1] for run in runs)
            wall[what] = statistics.median(run[0][0][0] for run in runs)
            cpu = statistics.median(run[0][0][1] for run in runs)
            resident[what] = statistics.median(run[2] for run in runs)
            print(
                f"{what:32} anonymous {anonymous[what] / 2**20:6.0f} MiB  "
                f"resident {resident[what] / 2**20:6.0f} MiB  wall {wall[what]:7.3f} s  CPU {cpu:7.3f} s  (wall "
                + " ".join(f"{run[0][0][0]:.3f}" for run in runs)
                + ")"
            )
        touched = statistics.median(run[0][1][0] for run in found["second start"])
        print(f"every byte of the map read once: {touched:.3f} s")
        if kind == "int8":
            for what in ("nothing kept", "first start"):
                print(f"{what} / (quantized + largest): {anonymous[what] / floor:.3f}  (bar 1.05)")
        for what in list(found)[3:]:
            for start in ("first start", "nothing kept"):
                print(f"{what} / {start}, anonymous: {anonymous[what] / anonymous[start]:.2f}  (bar 2.5)")
                print(f"{what} / {start}, resident:  {resident[what] / resident[start]:.2f}")
        print(f"first start / second start, wall: {wall['first start'] / wall['second start']:.1f}  (bar 10)")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        os.environ["HF_HUB_OFFLINE"] = "1"
        if sys.argv[2] == "ours":
            ours(Path(sys.argv[3]), sys.argv[4], sys.argv[5], bool(sys.argv[6]))
        else:
            diffusers(Path(sys.argv[3]), sys.argv[4])
    else:
        main()
