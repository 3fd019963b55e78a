"""Memory of a base that processes share out (FSDP2), against one process that holds all of it. On the CPU, over gloo.

    python benchmarks/shard.py [PROCESSES]

A random Z-Image of about half a billion parameters, int8, without kept weights, so that everything is anonymous
memory as it would be the card's. Each process loads, puts a LoRA of rank 16 on it and follows one step back,
checkpointed. Peaks are anonymous memory of process 0 above what the imports left, sampled every 2 ms (Linux).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import load
from load import build, status

LAYERS = 6
SIDE = 32


class Peak:
    """The most anonymous memory of this process above what it was at first."""

    def __init__(self) -> None:
        self.base, self.highest, self.over = status(os.getpid())["RssAnon"], 0, False
        self.thread = threading.Thread(target=self.sample, daemon=True)
        self.thread.start()

    def sample(self) -> None:
        while not self.over:
            self.highest = max(self.highest, status(os.getpid())["RssAnon"] - self.base)
            time.sleep(0.002)

    @contextmanager
    def measured(self) -> Iterator[list[float]]:
        found: list[float] = []
        self.highest, began = 0, time.perf_counter()
        yield found
        found += [self.highest, time.perf_counter() - began]


def child(folder: Path) -> None:
    import torch
    from diffusers.models.transformers.transformer_z_image import ZImageTransformer2DModel  # noqa: F401

    from zdoctor.doctor.train.distributed.ranks import join_process_group, leave_process_group
    from zdoctor.doctor.train.families import zimage
    from zdoctor.doctor.train.network.lora import add_network, lora_targets
    from zdoctor.doctor.train.runtime.allocator import return_freed_memory
    from zdoctor.doctor.train.transformer.fsdp import ShardPlan, local_shard
    from zdoctor.doctor.train.transformer.load_transformer import build_empty_transformer, fill_transformer
    from zdoctor.doctor.train.transformer.transformer_blocks import block_names, checkpoint_blocks
    from zdoctor.tests.doctor.train.patient import run_with

    torch.set_num_threads(1)
    ranks = join_process_group(cuda=False)
    if ranks.size > 1:
        import torch.distributed.fsdp
    ranks.all_gather(None)
    peak = Peak()
    return_freed_memory()
    options = {"quantization": "int8", "adapter": {}, "dtype": torch.bfloat16, "device": torch.device("cpu")}
    with peak.measured() as loading:
        model: Any = build_empty_transformer(folder)
        shares = None if ranks.size == 1 else ShardPlan(replace(ranks, sharded=True), block_names(model))
        fill_transformer(model, folder, shares=shares, **options)
        ranks.all_gather(None)
    held = sum(local_shard(value).nbytes for value in model.parameters())
    network = add_network(model, lora_targets(model), run_with(rank=16).recipe.network, 0)
    model.enable_gradient_checkpointing(gradient_checkpointing_func=checkpoint_blocks(model, network))
    noisy = torch.randn(1, 16, SIDE, SIDE).bfloat16()
    text = {"states": torch.randn(32, model.config.cap_feat_dim)}
    with peak.measured() as step:
        zimage.predict(model, noisy, torch.tensor([0.5]), [text]).square().mean().backward()
        ranks.all_gather(None)
    peak.over = True
    if ranks.is_first:
        print(json.dumps({"held": held, "loading": loading, "step": step}), flush=True)
    leave_process_group()


def run(folder: Path, count: int) -> Any:
    command = [sys.executable, __file__, "child", str(folder)]
    shared = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29517", "WORLD_SIZE": str(count)}
    processes = [
        subprocess.Popen(command, env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}, stdout=subprocess.PIPE)
        for rank in range(count)
    ]
    texts = [process.communicate()[0] for process in processes]
    assert all(process.returncode == 0 for process in processes)
    return json.loads(texts[0])


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    load.CONFIG["n_layers"] = LAYERS
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        parameters, quantized, _ = build(folder)
        print(f"{parameters / 1e6:.1f}M parameters, {quantized / 2**20:.0f} MiB in int8")
        for processes in (1, count):
            found = run(folder, processes)
            print(f"{processes} of processes: keeps {found['held'] / 2**20:.0f} MiB", end="")
            for name in ("loading", "step"):
                most, seconds = found[name]
                print(f", peak of {name} {most / 2**20:.0f} MiB ({seconds:.1f} s)", end="")
            print(flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        child(Path(sys.argv[2]))
    else:
        main()
