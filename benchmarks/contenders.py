"""A LoRA run of zdoctor, of diffusers' own Z-Image example and of ai-toolkit, as processes that can be watched.

The model is a seeded random Z-Image of 217.5 million parameters, the data eight pictures with one caption. All train
the same 96 Linears (those of the 12 main layers) at rank 16 with AdamW, 256 px, batch 1, bf16 and gradient
checkpointing. Where they differ: diffusers keeps the LoRA and its optimizer state in bf16, the others in float32.
Nothing of the others is copied: they are run from checkouts of huggingface/diffusers (its examples/ are not in the
wheel) and ostris/ai-toolkit.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import models

LAYERS, DIM, TEXT_DIM = 12, 1024, 512
LINEARS = (
    *("attention.to_q", "attention.to_k", "attention.to_v", "attention.to_out.0"),
    *("feed_forward.w1", "feed_forward.w2", "feed_forward.w3", "adaLN_modulation.0"),
)
RANK, SIDE = 16, 256

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
    """Write the model and the pictures; returns the millions of parameters of the transformer."""
    transformer = {"dim": DIM, "n_heads": 8, "n_kv_heads": 8, "n_layers": LAYERS, "n_refiner_layers": 2}
    text_encoder = {
        "hidden_size": TEXT_DIM,
        "intermediate_size": 4 * TEXT_DIM,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 8,
        "head_dim": 64,
    }
    widths = (32, 64, 64, 64)
    parameters = models.build(
        folder, {**transformer, "cap_feat_dim": TEXT_DIM}, text_encoder, widths, 2 * SIDE, shard=180_000_000
    )
    return parameters / 1e6


@dataclass(frozen=True)
class Contender:
    """`command` for a fresh folder, and where its steps are told: a file of one line a step, or its bar on stderr."""

    command: Callable[[Path], list[str]]
    told: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    bar: str = ""
    place: Path | None = None


class Running:
    """A contender at work in a fresh folder, with every cache of its own there, in a process group of its own."""

    def __init__(self, contender: Contender, folder: Path, threads: int = 0) -> None:
        folder.mkdir(parents=True)
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HOME": str(folder), **contender.environment}
        if threads:
            environment["OMP_NUM_THREADS"] = str(threads)
        for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "ZDOCTOR_CACHE"):
            environment.setdefault(name, str(folder / name.lower()))
        self.contender, self.folder = contender, folder
        self.tail = bytearray()
        self.shown = 0
        self.process = subprocess.Popen(
            contender.command(folder),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=environment,
            cwd=contender.place or folder,
            start_new_session=True,
        )
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def steps(self) -> int:
        """How many it has done."""
        if not self.contender.told:
            return self.shown
        file = self.folder / self.contender.told
        return file.read_bytes().count(b"\n") if file.is_file() else 0

    def end(self) -> None:
        """Kill it and all that it started, if they have not ended."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.reader.join()

    def last_words(self) -> str:
        lines = self.tail.decode(errors="replace").replace("\r", "\n").strip().splitlines()
        return f"exit {self.process.returncode}, {self.steps()} steps seen\n    " + "\n    ".join(lines[-25:])

    def _read(self) -> None:
        assert self.process.stdout
        seen = re.compile(self.contender.bar.encode())
        while part := os.read(self.process.stdout.fileno(), 1 << 16):
            self.tail.extend(part)
            if self.contender.bar:
                found = seen.finditer(self.tail[-len(part) - 200 :])
                self.shown = max([self.shown, *(int(match[1]) for match in found)])


def ours(
    folder: Path,
    steps: int,
    qtype: str,
    kept: Path | None = None,
    device: str = "cpu",
    side: int = SIDE,
    changes: Mapping[str, str] = {},
) -> Contender:
    """zdoctor with the base in `qtype` ("none": bf16); `kept` is the folder of its quantized weights.

    `changes` are lines of the config with what stands in their place.
    """

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
        for line, other in changes.items():
            assert line in text
            text = text.replace(line, other)
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
        return [sys.executable, str(script), *text.split(), "--instance_prompt", models.CAPTION]

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


def asked(*more: tuple[str, int, str]) -> argparse.Namespace:
    """The words of a benchmark's command line; `more` are numbers: option, default, help."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--diffusers", type=Path, metavar="DIR")
    parser.add_argument("--ai-toolkit", type=Path, metavar="DIR")
    parser.add_argument("--ai-toolkit-python", default=sys.executable, metavar="PYTHON")
    parser.add_argument("--threads", type=int, default=0, metavar="N", help="OMP_NUM_THREADS of every contender")
    for option, default, text in more:
        parser.add_argument(option, type=int, default=default, metavar="N", help=text)
    return parser.parse_args()


def told(size: float) -> str:
    """What was run: the size in millions of parameters, and the versions."""
    packages = ("torch", "diffusers", "transformers", "peft", "accelerate", "torchvision", "datasets")
    versions = ", ".join(f"{package} {version(package)}" for package in packages)
    return f"{size:.2f} million parameters; {versions}"


def spread(values: Sequence[float], digits: int = 3) -> str:
    low, middle, high = (round(f(values), digits) for f in (min, statistics.median, max))
    return f"{middle:.{digits}f} ({low:.{digits}f}, {high:.{digits}f})"


def version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "missing"
