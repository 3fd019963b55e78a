"""A LoRA run of zdoctor beside diffusers' own Z-Image example and ai-toolkit, on the CPU, whole processes in turn.

    python benchmarks/peers.py [--diffusers DIR] [--ai-toolkit DIR [--ai-toolkit-python PYTHON]]
                               [--repeats N] [--steps N] [--threads N]

DIR are checkouts of huggingface/diffusers (its examples/ are not in the wheel) and ostris/ai-toolkit; nothing of them
is copied. The model is a seeded random Z-Image of 217.5 million parameters, the data eight pictures with one caption.
All train the same 96 Linears (those of the 12 main layers) at rank 16 with AdamW, 256 px, batch 1, bf16 and gradient
checkpointing for --steps steps (14), the first two intervals left out. Where they differ: diffusers keeps the LoRA
and its optimizer state in bf16, the others in float32. Every start finds files in the page cache, but none of its own
caches; only "second start" finds the quantized weights that an earlier zdoctor run kept.

Seconds are those of the wall and of the processor; "first step" is from the start of the process to the end of the
first step. Peaks are of the whole process: resident memory from the kernel (VmHWM), anonymous (RssAnon) sampled every
10 ms. Processes that a contender starts are counted with it: their processor time, and what they do not share with
others of their memory, sampled four times a second. Linux only.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

LAYERS, REFINERS, DIM, TEXT_DIM = 12, 2, 1024, 512
LINEARS = (
    *("attention.to_q", "attention.to_k", "attention.to_v", "attention.to_out.0"),
    *("feed_forward.w1", "feed_forward.w2", "feed_forward.w3", "adaLN_modulation.0"),
)
CAPTION = "a photo of a zdoc circle"
DROPPED, RANK, SIDE, IMAGES = 2, 16, 256, 8
TICKS = os.sysconf("SC_CLK_TCK")
# Seconds between two looks at the memory of a contender's own processes: each stops them for milliseconds.
RARELY = 0.25

CONFIG = """\
job: extension
config:
  name: peer
  process:
    - type: {process}
      training_folder: "{output}"
      training_seed: 42
      device: {device}
      network: {{type: lora, linear: {rank}, linear_alpha: {rank}}}
      save: {{dtype: bf16, save_every: 100000, max_step_saves_to_keep: 2}}
      datasets:
        - folder_path: "{data}"
          caption_ext: txt
          caption_dropout_rate: 0.0
          cache_latents_to_disk: true
          resolution: [{side}]
      train:
        batch_size: 1
        steps: {steps}
        gradient_accumulation: 1
        train_unet: true
        train_text_encoder: false
        gradient_checkpointing: true
        noise_scheduler: flowmatch
        timestep_type: sigmoid
        optimizer: adamw
        lr: 1e-4
        dtype: bf16
        cache_text_embeddings: true
        disable_sampling: true
        skip_first_sample: true
      model:
        name_or_path: "{model}"
        arch: zimage
        quantize: {quantize}
        quantize_te: false
        qtype: {qtype}
      sample: {{sample_every: 100000, width: {side}, height: {side}, samples: []}}
"""


def build(folder: Path) -> float:
    """Write the model in bf16 and the pictures; returns the millions of parameters of the transformer."""
    import torch
    from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL
    from diffusers.models.transformers.transformer_z_image import ZImageTransformer2DModel
    from transformers import Qwen3Config
    from transformers.models.qwen3.modeling_qwen3 import Qwen3ForCausalLM

    from zdoctor.doctor.demo.tiny import build_tiny_pipeline

    model = folder / "model"
    build_tiny_pipeline(model)  # its tokenizer and scheduler stay
    vocabulary = json.loads((model / "text_encoder" / "config.json").read_text())["vocab_size"]
    for name in ("transformer", "vae", "text_encoder"):
        shutil.rmtree(model / name)
    torch.manual_seed(0)
    transformer = ZImageTransformer2DModel(
        dim=DIM,
        n_heads=8,
        n_kv_heads=8,
        n_layers=LAYERS,
        n_refiner_layers=REFINERS,
        cap_feat_dim=TEXT_DIM,
        axes_dims=[32, 48, 48],
        axes_lens=[1024, 512, 512],
    )
    with torch.no_grad():
        for parameter in transformer.parameters():
            if parameter.ndim == 2:
                parameter.normal_(std=parameter.shape[1] ** -0.5)
    count = sum(parameter.numel() for parameter in transformer.parameters())
    transformer.bfloat16().save_pretrained(str(model / "transformer"), max_shard_size="180MB")
    AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        block_out_channels=(32, 64, 64, 64),
        layers_per_block=2,
        latent_channels=16,
        sample_size=512,
        scaling_factor=0.3611,
        shift_factor=0.1159,
        use_quant_conv=False,
        use_post_quant_conv=False,
    ).bfloat16().save_pretrained(str(model / "vae"))
    Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=vocabulary,
            hidden_size=TEXT_DIM,
            intermediate_size=4 * TEXT_DIM,
            num_hidden_layers=4,
            num_attention_heads=8,
            num_key_value_heads=8,
            head_dim=64,
            tie_word_embeddings=True,
        )
    ).bfloat16().save_pretrained(str(model / "text_encoder"))
    pictures(folder, 2 * SIDE)
    return count / 1e6


def pictures(folder: Path, side: int) -> None:
    """The same pictures in images/ and, with a caption each, in captioned/."""
    from PIL import Image, ImageDraw

    for name in ("images", "captioned"):
        (folder / name).mkdir()
    for number in range(IMAGES):
        image = Image.new("RGB", (side, side), (40 * number % 256, 90, 160))
        ImageDraw.Draw(image).ellipse((60 + 10 * number, 80, 300 + 10 * number, 320), fill=(200, 30 * number, 40))
        image.save(folder / "images" / f"{number}.png")
        image.save(folder / "captioned" / f"{number}.png")
        (folder / "captioned" / f"{number}.txt").write_text(CAPTION)


@dataclass
class Result:
    """One whole process: when each step was done and how much processor time had gone by then (from its start)."""

    done: dict[int, tuple[float, float]] = field(default_factory=dict)
    resident: int = 0
    anonymous: int = 0

    @property
    def first(self) -> tuple[float, float]:
        return self.done[1]

    @property
    def steps(self) -> list[tuple[float, float]]:
        """Wall and CPU seconds of each step after the first ones."""
        pairs = [(self.done[n - 1], self.done[n]) for n in sorted(self.done) if n - 1 in self.done]
        return [(b[0] - a[0], b[1] - a[1]) for a, b in pairs[DROPPED:]]


@dataclass(frozen=True)
class Contender:
    """`command` for a fresh folder, and where its steps are told: a file of one line a step, or its bar on stderr."""

    command: Callable[[Path], list[str]]
    told: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    bar: str = ""
    place: Path | None = None


def measure(contender: Contender, folder: Path, threads: int) -> Result:
    """Run one contender to its end. RuntimeError with the end of its output when it fails."""
    folder.mkdir(parents=True)
    result = Result()
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HOME": str(folder), **contender.environment}
    if threads:
        environment["OMP_NUM_THREADS"] = str(threads)
    for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "ZDOCTOR_CACHE"):
        environment.setdefault(name, str(folder / name.lower()))
    command = contender.command(folder)
    begin = time.monotonic()
    child = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        env=environment,
        cwd=contender.place or folder,
    )
    tail = bytearray()

    def step(number: int) -> None:
        if number not in result.done:
            result.done[number] = (time.monotonic() - begin, cpu(child.pid))

    def read() -> None:
        assert child.stdout
        seen = re.compile(contender.bar.encode())
        while part := os.read(child.stdout.fileno(), 1 << 16):
            tail.extend(part)
            if not contender.told:
                for match in seen.finditer(tail[-len(part) - 200 :]):
                    if int(match[1]) > 0:
                        step(int(match[1]))

    reader = threading.Thread(target=read)
    reader.start()
    own: list[tuple[int, int]] = []
    due = 0.0
    file = folder / contender.told
    try:
        while child.poll() is None:
            with contextlib.suppress(OSError, KeyError):  # it ends
                memory = status(child.pid)
                if time.monotonic() >= due:
                    own = [alone(helper) for helper in helpers(child.pid)]
                    due = time.monotonic() + RARELY
                beside = memory["VmRSS"] + sum(private for private, _ in own)
                result.resident = max(result.resident, memory["VmHWM"], beside)
                result.anonymous = max(result.anonymous, memory["RssAnon"] + sum(anonymous for _, anonymous in own))
            if contender.told and file.is_file():
                for number in range(1, file.read_bytes().count(b"\n") + 1):
                    step(number)
            time.sleep(0.01)
    finally:
        child.kill()
        child.wait()
        reader.join()
    if child.returncode or not result.steps:
        lines = tail.decode(errors="replace").replace("\r", "\n").strip().splitlines()
        raise RuntimeError(
            f"exit {child.returncode}, {len(result.done)} steps seen\n    " + "\n    ".join(lines[-25:])
        )
    return result


def status(process: int) -> dict[str, int]:
    """RssAnon, VmRSS and VmHWM of a process in bytes."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return {name: int(fields[name].split()[0]) << 10 for name in ("RssAnon", "VmRSS", "VmHWM")}


def helpers(process: int) -> list[int]:
    """The processes that its main thread has started and that have not ended."""
    return [int(word) for word in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def alone(process: int) -> tuple[int, int]:
    """Bytes of its memory that no other process shares, and of its anonymous memory; none when it is gone."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()[1:]
    except OSError:
        return 0, 0
    fields = {line.split(":")[0]: int(line.split()[1]) << 10 for line in lines}
    return fields["Private_Clean"] + fields["Private_Dirty"], fields["Anonymous"]


def cpu(process: int) -> float:
    """Processor seconds of a process and of those it started so far; NaN when it is gone."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        running = sum(map(cpu, helpers(process)))
    except OSError:
        return float("nan")
    return sum(map(int, fields[11:15])) / TICKS + running


def ours(
    folder: Path, steps: int, qtype: str, kept: Path | None = None, device: str = "cpu", side: int = SIDE
) -> Contender:
    """zdoctor with the base in `qtype` ("none": bf16); `kept` is the folder of its quantized weights."""

    def command(place: Path) -> list[str]:
        text = CONFIG.format(
            process="diffusion_trainer",
            output=place / "out",
            data=folder / "captioned",
            model=folder / "model",
            quantize=str(qtype != "none").lower(),
            qtype=qtype,
            device=device,
            side=side,
            steps=steps,
            rank=RANK,
        )
        (place / "config.yaml").write_text(text)
        return [sys.executable, "-m", "zdoctor", "train", "config.yaml"]

    return Contender(
        command, told="out/peer/losses.jsonl", environment={} if kept is None else {"ZDOCTOR_CACHE": str(kept)}
    )


def diffusers(folder: Path, steps: int, checkout: Path, layers: int = LAYERS, side: int = SIDE) -> Contender:
    script = checkout / "examples" / "dreambooth" / "train_dreambooth_lora_z_image.py"
    targets = ",".join(f"layers.{layer}.{linear}" for layer in range(layers) for linear in LINEARS)

    def command(place: Path) -> list[str]:
        text = f"""--pretrained_model_name_or_path {folder / "model"} --instance_data_dir {folder / "images"}
            --output_dir {place / "out"} --resolution {side} --train_batch_size 1 --rank {RANK} --lora_alpha {RANK}
            --lora_layers {targets} --gradient_checkpointing --cache_latents --mixed_precision bf16
            --learning_rate 1e-4 --lr_scheduler constant --lr_warmup_steps 0 --max_train_steps {steps}
            --checkpointing_steps 100000 --seed 42 --skip_final_inference"""
        return [sys.executable, str(script), *text.split(), "--instance_prompt", CAPTION]

    return Contender(command, bar=rf"Steps:[^\r\n]*?(\d+)/{steps} ")


def ai_toolkit(folder: Path, steps: int, checkout: Path, python: str) -> Contender:
    def command(place: Path) -> list[str]:
        shutil.copytree(folder / "captioned", place / "data")  # it writes its caches beside the pictures
        text = CONFIG.format(
            process="sd_trainer",
            output=place / "out",
            data=place / "data",
            model=folder / "model",
            quantize="false",
            qtype="int8",
            device="cpu",
            side=SIDE,
            steps=steps,
            rank=RANK,
        )
        (place / "config.yaml").write_text(text)
        return [python, "run.py", str(place / "config.yaml")]

    return Contender(command, bar=rf"peer:[^\r\n]*?(\d+)/{steps} ", place=checkout)


def runs(python: str, module: str) -> str:
    """Why `module` cannot be imported there, "" when it can."""
    done = subprocess.run([python, "-c", f"import {module}"], capture_output=True, text=True)
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["no reason given"])[-1]


def contenders(folder: Path, kept: Path, words: argparse.Namespace) -> dict[str, Contender]:
    found: dict[str, Contender] = {}
    if words.diffusers is None:
        print("skipped: diffusers' example (--diffusers names no checkout)")
    elif why := next(filter(None, (runs(sys.executable, name) for name in ("torchvision", "datasets"))), ""):
        print(f"skipped: diffusers' example, for which a package is missing: {why}")
    else:
        found["diffusers bf16"] = diffusers(folder, words.steps, words.diffusers.absolute())
    found["zdoctor bf16"] = ours(folder, words.steps, "none")
    found["zdoctor int8"] = ours(folder, words.steps, "int8")
    found["zdoctor int8, second start"] = ours(folder, words.steps, "int8", kept)
    if words.ai_toolkit is None:
        print("skipped: ai-toolkit (--ai-toolkit names no checkout)")
    else:
        found["ai-toolkit bf16"] = ai_toolkit(
            folder, words.steps, words.ai_toolkit.absolute(), words.ai_toolkit_python
        )
    return found


def spread(values: Sequence[float], digits: int = 3) -> str:
    low, middle, high = (round(f(values), digits) for f in (min, statistics.median, max))
    return f"{middle:.{digits}f} ({low:.{digits}f}, {high:.{digits}f})"


def show(found: dict[str, list[Result]]) -> None:
    print("\nmedian (min, max)")
    for name, results in found.items():
        wall, used = zip(*[pair for result in results for pair in result.steps], strict=True)
        first, first_used = zip(*[result.first for result in results], strict=True)
        print(f"{name}, {len(results)} runs")
        print(f"    step           {spread(wall)} s, CPU {spread(used)} s, n={len(wall)}")
        print(f"    first step     {spread(first, 2)} s, CPU {spread(first_used, 2)} s")
        print(f"    peak resident  {spread([r.resident / 2**20 for r in results], 0)} MiB")
        print(f"    peak anonymous {spread([r.anonymous / 2**20 for r in results], 0)} MiB")


def compare(found: dict[str, list[Result]], mine: str, theirs: str, start: float) -> None:
    """Ratios of runs of the same round against the bars; `start`: the bar for the first step."""
    if mine not in found or theirs not in found:
        return
    middle: Callable[[Result], float] = lambda result: statistics.median(s for s, _ in result.steps)  # noqa: E731
    used: Callable[[Result], float] = lambda result: statistics.median(c for _, c in result.steps)  # noqa: E731
    measures: list[tuple[str, Callable[[Result], float], float]] = [
        ("step, wall", middle, 1.0),
        ("step, CPU", used, 1.0),
        ("first step, wall", lambda result: result.first[0], start),
        ("first step, CPU", lambda result: result.first[1], start),
        ("peak resident", lambda result: result.resident, 0.75),
        ("peak anonymous", lambda result: result.anonymous, 0.75),
    ]
    print(f"\n{mine} / {theirs}")
    for name, of, bar in measures:
        ratios = [of(a) / of(b) for a, b in zip(found[mine], found[theirs], strict=False)]
        verdict = "met" if statistics.median(ratios) <= bar else "MISSED"
        print(f"    {name:18} {spread(ratios, 2):22} bar {bar:.2f}  {verdict}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--diffusers", type=Path, metavar="DIR")
    parser.add_argument("--ai-toolkit", type=Path, metavar="DIR")
    parser.add_argument("--ai-toolkit-python", default=sys.executable, metavar="PYTHON")
    parser.add_argument("--repeats", type=int, default=3, metavar="N")
    parser.add_argument("--steps", type=int, default=14, metavar="N", help="at least 5")
    parser.add_argument("--threads", type=int, default=0, metavar="N", help="OMP_NUM_THREADS of every contender")
    words = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        size = build(folder)
        kept = folder / "kept"
        packages = ("torch", "diffusers", "transformers", "peft", "accelerate", "torchvision", "datasets")
        versions = {package: version(package) for package in packages}
        print(f"{size:.2f} million parameters; " + ", ".join(f"{k} {v}" for k, v in versions.items()))
        wanted = contenders(folder, kept, words)
        time.sleep(2.5)  # files younger than two seconds are not taken for settled
        measure(ours(folder, 5, "int8", kept), folder / "warm", words.threads)  # fills the page cache and `kept`
        found: dict[str, list[Result]] = {}
        for turn in range(words.repeats):
            order = list(wanted.items())
            for what, contender in order if turn % 2 == 0 else order[::-1]:
                load = os.getloadavg()[0]
                try:
                    result = measure(contender, folder / f"{turn}-{re.sub('[ ,]+', '-', what)}", words.threads)
                except RuntimeError as error:
                    print(f"skipped: {what} does not run here: {error}", flush=True)
                    del wanted[what]
                    found.pop(what, None)
                    continue
                found.setdefault(what, []).append(result)
                print(
                    f"round {turn + 1}  {what:28} step {statistics.median(s for s, _ in result.steps):.3f} s  "
                    f"first {result.first[0]:6.2f} s  resident {result.resident >> 20} MiB  "
                    f"anonymous {result.anonymous >> 20} MiB  load before {load:.2f}",
                    flush=True,
                )
        show(found)
        for mine in ("zdoctor bf16", "zdoctor int8", "zdoctor int8, second start"):
            compare(found, mine, "diffusers bf16", 0.8)
        for mine in ("zdoctor bf16", "zdoctor int8"):
            compare(found, mine, "ai-toolkit bf16", 0.3)


def version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "missing"


if __name__ == "__main__":
    main()
