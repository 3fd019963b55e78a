"""zdoctor on a GPU with the full-size Z-Image: is it right, how fast, and how much memory it takes, in parts.

    python benchmarks/gpu.py [PART …] [--minutes 10] [--folder DIR] [--steps N] [--diffusers DIR] [--text-encoder]
                             [--cpu] [--tiny]

Without a PART all, in the order of PARTS, as many as fit in the minutes. Each is a process of its own with a bound of
time; one that fails or takes longer is said, and the next one begins. Nothing is asked of the network. What they find
is printed as lines for docs/measurements.md and kept in DIR/results.json (DIR: --folder, else a temporary one that
goes at the end); with the same DIR a later call finds the model there.

- card: what products, copies and attention of this card reach. kernels: a frozen Linear in each format, its error
  beside float64 and its time beside bfloat16. eight_bits: products of 8 by 8 bits beside them. losses: 50 steps of a
  small model in each format and way on the card and on the CPU. tests: the suite's runs of every family and way on
  the card.
- bf16, int8, float8, nf4: zdoctor at 1024 px, and once more at 512 px, where the second start finds the quantized
  weights of the first. plain: a loop of diffusers' class in bfloat16, compiled. diffusers: its own example in bf16,
  with --diffusers DIR, a checkout of huggingface/diffusers.

The model is a seeded random Z-Image of 6.15 billion parameters in bf16 shards with a VAE of the real size. Its text
encoder has two layers of the real width, or with --text-encoder the real 4.02 billion parameters. The data are eight
pictures of 1024 px with one caption; rank 16, AdamW, batch 1, bf16 and gradient checkpointing, as in contenders.py;
peers.py runs the processes. A base that is too large is not trained, and the row says so. The first card that
CUDA_VISIBLE_DEVICES names (else card 0) is used; nothing else should run on it. The model takes 26 GB in DIR, with
--text-encoder 34 GB.

Columns: seconds from step to step, the first two left out, median (least, most), and the share of what products of
this card reach (the part "card"), counting 189 TFLOP for a step at 1024 px and 40 at 512. Seconds from the start of
the process to the end of step 1: the time to load, to encode the data, and a step. GiB: predicted by zdoctor before
the start (lowest to highest, of the largest phase), and of the training step alone; taken on the card above what was
taken before, as NVML counts it every 10 ms, CUDA's context included; allocated and reserved at most by PyTorch, until
the first step / from then on (of the example: in all); resident host memory, the text encoder's process included.

--cpu trains the same model without a card, in int8 at 256 px; --tiny runs all of it with a small model on the CPU, so
that no minute of a card is lost to a slip. There the columns of the card stay empty.
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
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

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


def row(
    name: str, memory: Memory | None, contender: Contender, place: Path, used: Callable[[], int], share: float = 0.0
) -> dict[str, Any]:
    """Run one contender and print its row; `share` is of the card's rate what a step of one second would take."""
    try:
        result, peak = watched(contender, place, used)
    except RuntimeError as error:
        why = re.sub(r"[|\s]+", " ", str(error))[-300:]
        print(f"| {name} | did not run: {why} |", flush=True)
        return {"failed": why}
    guess = step = "-"
    if memory is not None:
        high, low = memory.peak.total + memory.margin, memory.peak.total - memory.margin
        guess = f"{gib(memory.peak.total)} ({gib(low)} to {gib(high)}), {memory.peak.name}"
        step = gib(next(phase.total for phase in memory.phases if phase.name == "training step"))
    told = allocated(place)
    walls = [wall for wall, _ in result.steps]
    reached = share / statistics.median(walls)
    cells = (
        *(name, spread(walls) + (f", {reached:.0%}" if reached else ""), f"{result.first[0]:.1f}", guess, step),
        gib(peak),
        *(gib(*(part[of] for part in told.values())) for of in ("allocated", "reserved")),
        gib(result.resident),
    )
    print(f"| {' | '.join(cells)} |", flush=True)
    return {
        "s a step": statistics.median(walls),
        "share of the card": reached,
        "s to the end of step 1": result.first[0],
        "predicted": {phase.name: phase.total for phase in memory.phases} if memory else None,
        "on the card": peak,
        "told": told,
        "resident": result.resident,
    }


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


def model_in(folder: Path, words: argparse.Namespace) -> None:
    """The model and its pictures, made once."""
    done = folder / "made"
    if done.exists():
        return
    began = time.monotonic()
    size = build(folder, words.tiny, words.text_encoder)
    encoder = "of 4.02 billion parameters" if words.text_encoder else "of two layers"
    print(f"{size:.3f} billion parameters, text encoder {encoder}, written in {time.monotonic() - began:.0f} s")
    time.sleep(2.5)  # files younger than two seconds are not taken for settled
    done.touch()


def trained(name: str, folder: Path, words: argparse.Namespace) -> dict[str, Any]:
    """Rows of one format: both sizes, of which the second one starts from kept weights."""
    device, card, sides = placed(words)
    model_in(folder, words)
    known = results(folder).get("card", {}).get("bfloat16 TFLOP/s", 0.0)
    kept, qtype = folder / f"kept-{name}", {"bf16": "none", "nf4": "uint4"}.get(name, name)
    found = {}
    print(f"\n| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}", flush=True)
    for start, side in zip(("first", "second"), sides, strict=True):
        place = folder / f"{name}-{side}-{start}"
        shutil.rmtree(place, ignore_errors=True)
        contender = ours(folder, words.steps, qtype, kept, device, side)
        memory = predicted(contender, place.with_name(f"{place.name}-predicted"))
        shown = f"zdoctor {name}, {side} px, {start} start"
        share = STEP_TFLOP.get(side, 0.0) / known if known and card is not None else 0.0
        found[shown] = row(shown, memory, contender, place, on_card(card), share)
    shutil.rmtree(kept, ignore_errors=True)
    return found


def example(folder: Path, words: argparse.Namespace) -> dict[str, Any]:
    if words.diffusers is None:
        return {"left out": "--diffusers names no checkout"}
    _, card, (side, _) = placed(words)
    model_in(folder, words)
    layers = (TINY if words.tiny else FULL)["n_layers"]
    shutil.rmtree(folder / "example", ignore_errors=True)
    theirs = counted(diffusers(folder, words.steps, words.diffusers.absolute(), layers, side))
    return row("diffusers bf16", None, theirs, folder / "example", on_card(card))


def asked(name: str) -> Callable[[Path, argparse.Namespace], dict[str, Any]]:
    """A part that asks PyTorch in this process."""

    def run(folder: Path, words: argparse.Namespace) -> dict[str, Any]:
        import gpu_parts
        import load

        device, _, (side, _) = placed(words)
        if name == "losses":
            small = folder / "small"
            if not (small / "model").exists():
                build(small, True, False)
                time.sleep(2.5)
            found = gpu_parts.losses(small, device, words.steps if words.tiny else 50)
        elif name == "plain":
            config = {**load.CONFIG, **(TINY if words.tiny else FULL)}
            found = gpu_parts.plain(config, device, side, words.steps)
        else:
            found = getattr(gpu_parts, name)(device)
        for what, figure in found.items():
            print(f"| {name} | {what} | {f'{figure:.4g}' if isinstance(figure, float) else figure} |", flush=True)
        return dict(found)

    return run


# By name: what runs, and the seconds that it may take at most.
PARTS: dict[str, tuple[Callable[[Path, argparse.Namespace], dict[str, Any]], int]] = {
    "card": (asked("card"), 60),
    "kernels": (asked("kernels"), 90),
    "eight_bits": (asked("eight_bits"), 60),
    "losses": (asked("losses"), 180),
    "int8": (partial(trained, "int8"), 400),
    "bf16": (partial(trained, "bf16"), 240),
    "nf4": (partial(trained, "nf4"), 240),
    "float8": (partial(trained, "float8"), 240),
    "plain": (asked("plain"), 240),
    "tests": (asked("tests"), 400),
    "diffusers": (example, 400),
}
STEP_TFLOP = {1024: 189.0, 512: 40.0}


def placed(words: argparse.Namespace) -> tuple[str, int | None, tuple[int, int]]:
    """The device, the number of the card, and the two sizes of pictures."""
    on_cpu = words.tiny or words.cpu
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    sides = (64, 64) if words.tiny else (256, 256) if words.cpu else (1024, 512)
    return "cpu" if on_cpu else "cuda", None if on_cpu else int(first), sides


def results(folder: Path) -> dict[str, Any]:
    file = folder / "results.json"
    return dict(json.loads(file.read_text())) if file.exists() else {}


def keep(folder: Path, name: str, found: dict[str, Any]) -> None:
    (folder / "results.json").write_text(json.dumps({**results(folder), name: found}, indent=1))


def run_part(name: str, folder: Path, left: float) -> None:
    """Runs a part in a process of its own until it ends or its time is over."""
    bound = min(left, PARTS[name][1])
    child = subprocess.Popen(
        [sys.executable, *sys.argv, "--alone", name, "--folder", str(folder)], start_new_session=True
    )
    try:
        status = child.wait(bound)
        why = f"ended with {status}" if status else ""
    except subprocess.TimeoutExpired:
        why = f"not done after {bound:.0f} s"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    if why:
        print(f"| {name} | {why} |", flush=True)
        keep(folder, name, {**results(folder).get(name, {}), "failed": why})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--folder", type=Path, metavar="DIR")
    parser.add_argument("--diffusers", type=Path, metavar="DIR")
    parser.add_argument("--steps", type=int, default=20, metavar="N", help="at least 5")
    parser.add_argument("--text-encoder", action="store_true", help="of full size")
    parser.add_argument("--cpu", action="store_true", help="without a card: int8, 256 px")
    parser.add_argument("--tiny", action="store_true", help="a small model on the CPU")
    parser.add_argument("--alone", metavar="PART", help=argparse.SUPPRESS)
    words = parser.parse_args()
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # as NVML counts
    if words.alone:
        folder = words.folder.absolute()
        keep(folder, words.alone, PARTS[words.alone][0](folder, words))
        return
    if unknown := [part for part in words.parts if part not in PARTS]:
        parser.error(f"there is no part {unknown[0]}; there are {', '.join(PARTS)}")
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    on_cpu = words.tiny or words.cpu
    if not on_cpu and (not first.isdigit() or not isinstance(cards(), tuple) or int(first) >= len(cards())):
        raise SystemExit("No card: NVML finds none, or CUDA_VISIBLE_DEVICES names none by its number. See --cpu.")
    card = None if on_cpu else int(first)
    os.environ["CUDA_VISIBLE_DEVICES"] = "" if card is None else first
    print(environment(card), flush=True)
    end = time.monotonic() + 60 * words.minutes
    with tempfile.TemporaryDirectory() as name:
        folder = (words.folder or Path(name)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        for part in words.parts or (["int8"] if words.cpu else PARTS):
            left = end - time.monotonic()
            if left < LEAST:
                print(f"| {part} | left out: the minutes are over |", flush=True)
                continue
            run_part(part, folder, left)
        failed = [part for part, found in results(folder).items() if WRONG.search(json.dumps(found))]
        print(f"\nfailed: {', '.join(failed) or 'none'}; figures in {folder / 'results.json'}")


LEAST = 20  # seconds that any part takes
WRONG = re.compile(r'"failed"|"right": false')  # in the figures of a part


if __name__ == "__main__":
    if sys.argv[1:2] == ["--count"]:
        count(*sys.argv[2:])
    else:
        main()
