"""zdoctor on a GPU with the full-size Z-Image: seconds and memory, beside what was predicted and diffusers' example.

    python benchmarks/gpu.py [--diffusers DIR] [--steps N] [--text-encoder] [--cpu] [--tiny]

The model is a seeded random Z-Image of 6.15 billion parameters in bf16 shards with a VAE of the real size. Its text
encoder has two layers of the real width, or with --text-encoder the real 4.02 billion parameters. The data are eight
pictures of 1024 px with one caption; rank 16, AdamW, batch 1, bf16 and gradient checkpointing, as in contenders.py;
peers.py runs the processes. DIR is a checkout of huggingface/diffusers; its example trains with a bf16 base.

One process after the other: zdoctor with the base in bf16, int8, float8 and nf4, each started twice (the second start
finds the quantized weights of the first), then the example. All find the model in the page cache if it fits there. A
base that is too large is not trained, and the row says so. The first card that CUDA_VISIBLE_DEVICES names (else
card 0) is used; nothing else should run on it. TMPDIR is where the model goes: 26 GB with --text-encoder 34 GB.

Columns: seconds from step to step, the first two left out, median (least, most). Seconds from the start of the
process to the end of step 1: the time to load, to encode the data, and a step. GiB: predicted by zdoctor before the
start (lowest to highest, of the largest phase), and of the training step alone; taken on the card above what was
taken before, as NVML counts it every 10 ms, CUDA's context included; allocated and reserved at most by PyTorch, until
the first step / from then on (of the example: in all); resident host memory, the text encoder's process included.

--cpu trains the same model without a card, in int8 at 256 px; --tiny runs all of it with a small model on the CPU.
There the columns of the card stay empty.
"""

from __future__ import annotations

import argparse
import atexit
import json
import os
import platform
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import models
import peers
from contenders import Contender, diffusers, ours, spread, version

from zdoctor.doctor.commands.examined import examined
from zdoctor.doctor.families.components.autoencoder_kl import VAE
from zdoctor.doctor.families.components.qwen3 import QWEN3_4B
from zdoctor.doctor.model import Memory
from zdoctor.doctor.probe.cards import cards

FULL = {"dim": 3840, "n_heads": 30, "n_kv_heads": 30, "n_layers": 30, "n_refiner_layers": 2, "cap_feat_dim": 2560}
TINY = {"dim": 256, "n_heads": 2, "n_kv_heads": 2, "n_layers": 3, "cap_feat_dim": 64}
VAE_WIDTHS = {True: (32, 64, 64, 64), False: VAE["block_out_channels"]}
QTYPES = {"none": "bf16", "int8": "int8", "float8": "float8", "nf4": "nf4"}
COLUMNS = (
    *("run", "s a step", "s to the end of step 1", "predicted", "of a step", "on the card"),
    *("allocated", "reserved", "host"),
)


def build(folder: Path, tiny: bool, whole_text_encoder: bool) -> float:
    """Write model/, images/ and captioned/; returns the billions of parameters of the transformer."""
    transformer = TINY if tiny else FULL
    width = transformer["cap_feat_dim"]
    small = {"hidden_size": width, "intermediate_size": 4 * width, "num_hidden_layers": 2}
    text_encoder = QWEN3_4B if whole_text_encoder else small
    return models.build(folder, transformer, text_encoder, VAE_WIDTHS[tiny], 128 if tiny else 1024) / 1e9


def predicted(contender: Contender, place: Path) -> Memory:
    """What zdoctor expects of a run before it starts. SystemExit where it expects nothing."""
    place.mkdir()
    contender.command(place)
    memory = examined(str(place / "config.yaml"), as_runner=True).facts[0].memory
    if not isinstance(memory, Memory):
        raise SystemExit(f"no memory is predicted: {memory.reason}")
    return memory


def on_card(card: int | None) -> Callable[[], int]:
    """Asks for the bytes that are taken on a card, by whomever; 0 without one."""
    if card is None:
        return lambda: 0
    import pynvml

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(card)
    return lambda: int(pynvml.nvmlDeviceGetMemoryInfo(handle).used)


def watched(contender: Contender, place: Path, used: Callable[[], int]) -> tuple[peers.Result, int]:
    """One process to its end, and the bytes that it took on the card at most."""
    before, peak, ended = used(), 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not ended.wait(0.01):
            peak = max(peak, used() - before)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        return peers.measure(contender, place, 0), peak
    finally:
        ended.set()
        watcher.join()


def counted(contender: Contender) -> Contender:
    """The same script, which says at its end how much PyTorch allocated: `count` is what runs."""

    def command(place: Path) -> list[str]:
        python, *words = contender.command(place)
        return [python, __file__, "--count", str(place / "peak.json"), *words]

    return replace(contender, command=command)


def count(file: str, script: str, *words: str) -> None:
    def tell() -> None:
        import torch

        if torch.cuda.is_available():
            peak = {"allocated": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved()}
            Path(file).write_text(json.dumps({"run": peak}))

    atexit.register(tell)
    sys.argv, sys.path[0] = [script, *words], str(Path(script).parent)
    runpy.run_path(script, run_name="__main__")


def allocated(place: Path) -> dict[str, dict[str, int]]:
    """The peaks that a run has told; {} where there are none."""
    for file in (place / "out" / "peer" / "run.json", place / "peak.json"):
        with suppress(OSError):
            told = json.loads(file.read_text())
            return told["starts"][-1].get("peak_memory", {}) if "starts" in told else told
    return {}


def gib(*sizes: int) -> str:
    return " / ".join(f"{size / 2**30:.2f}" for size in sizes) if any(sizes) else "-"


def row(name: str, memory: Memory | None, contender: Contender, place: Path, used: Callable[[], int]) -> None:
    """Run one contender and print its row."""
    try:
        result, peak = watched(contender, place, used)
    except RuntimeError as error:
        why = re.sub(r"[|\s]+", " ", str(error))
        print(f"| {name} | did not run: {why[-300:]} |", flush=True)
        return
    guess = step = "-"
    if memory is not None:
        high, low = memory.peak.total + memory.margin, memory.peak.total - memory.margin
        guess = f"{gib(memory.peak.total)} ({gib(low)} to {gib(high)}), {memory.peak.name}"
        step = gib(next(phase.total for phase in memory.phases if phase.name == "training step"))
    told = allocated(place).values()
    cells = (
        *(
            name,
            spread([wall for wall, _ in result.steps]),
            f"{result.first[0]:.1f}",
            guess,
            step,
            gib(peak),
        ),
        *(gib(*(part[of] for part in told)) for of in ("allocated", "reserved")),
        gib(result.resident),
    )
    print(f"| {' | '.join(cells)} |", flush=True)


def environment(card: int | None) -> str:
    found = cards()
    named = [gpu for gpu in found if gpu.index == card] if isinstance(found, tuple) else []
    gpu = "".join(f"{gpu.name}, {gib(gpu.memory_total)} GiB, driver {gpu.driver}" for gpu in named) or "no GPU"
    packages = ("torch", "diffusers", "transformers", "peft", "accelerate", "safetensors")
    words = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(words, capture_output=True, text=True).stdout.strip() or "of no checkout"
    versions = ", ".join(f"{package} {version(package)}" for package in packages)
    ram = gib(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    host = f"{os.cpu_count()} cores, {ram} GiB of RAM, load {os.getloadavg()[0]:.1f}"
    python, today = platform.python_version(), time.strftime("%Y-%m-%d")
    return f"{gpu}; {host}; Python {python}, {versions}; zdoctor {commit}; {today}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--diffusers", type=Path, metavar="DIR")
    parser.add_argument("--steps", type=int, default=20, metavar="N", help="at least 5")
    parser.add_argument("--text-encoder", action="store_true", help="of full size")
    parser.add_argument("--cpu", action="store_true", help="without a card: int8, 256 px")
    parser.add_argument("--tiny", action="store_true", help="a small model on the CPU")
    words = parser.parse_args()
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # as NVML counts
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    on_cpu = words.tiny or words.cpu
    if not on_cpu and (not first.isdigit() or not isinstance(cards(), tuple) or int(first) >= len(cards())):
        raise SystemExit("No card: NVML finds none, or CUDA_VISIBLE_DEVICES names none by its number. See --cpu.")
    card = None if on_cpu else int(first)
    os.environ["CUDA_VISIBLE_DEVICES"] = "" if card is None else first
    device, side = ("cpu", 64) if words.tiny else ("cpu", 256) if words.cpu else ("cuda", 1024)
    print(environment(card))
    with tempfile.TemporaryDirectory() as name:
        folder, used = Path(name), on_card(card)
        began = time.monotonic()
        size = build(folder, words.tiny, words.text_encoder)
        encoder = "of 4.02 billion parameters" if words.text_encoder else "of two layers"
        print(f"{size:.3f} billion parameters, text encoder {encoder}, written in {time.monotonic() - began:.0f} s")
        print(f"\n| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}", flush=True)
        time.sleep(2.5)  # files younger than two seconds are not taken for settled
        for qtype, shown in ({"int8": "int8"} if words.cpu else QTYPES).items():
            kept = folder / "kept"
            contender = ours(folder, words.steps, qtype, kept, device, side)
            memory = predicted(contender, folder / f"predicted-{qtype}")
            row(f"zdoctor {shown}", memory, contender, folder / f"{qtype}-1", used)
            row(f"zdoctor {shown}, second start", memory, contender, folder / f"{qtype}-2", used)
            shutil.rmtree(kept, ignore_errors=True)
        if words.diffusers is not None:
            layers = (TINY if words.tiny else FULL)["n_layers"]
            example = counted(diffusers(folder, words.steps, words.diffusers.absolute(), layers, side))
            row("diffusers bf16", None, example, folder / "example", used)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--count"]:
        count(*sys.argv[2:])
    else:
        main()
