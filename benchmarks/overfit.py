"""Whether a tiny model really learns: two pictures, two captions, and from the same noise each caption gives its own.

    python benchmarks/overfit.py [STEPS]

The demo's tiny Z-Image (real classes, random weights), the runner from a config to its end. Before the first and
after the last step the runner's own evaluation loss of both pictures is taken, and its own previews are painted from
three noises, the same for both captions. Their latents are compared with those of the pictures (mean square): decoded
by a VAE of random weights they would mean nothing. Learnt: at most half the loss, and each painting is nearer to the
picture of its caption than to the other, from every noise. Controls that must not pass: the untrained model, and a
run whose learning rate is next to nothing.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from PIL import Image, ImageDraw
from torch import Tensor

from zdoctor.doctor.commands.examined import examined
from zdoctor.doctor.commands.handover import hand_over
from zdoctor.doctor.demo.tiny import build_tiny_pipeline
from zdoctor.doctor.model.recipe import SamplePrompt
from zdoctor.doctor.train import training_run as loop
from zdoctor.doctor.train.components.vae import VaeFiles
from zdoctor.doctor.train.families import scheduler_of
from zdoctor.doctor.train.sampling.sampler import denoise
from zdoctor.doctor.train.step.trainer import Trainer
from zdoctor.doctor.train.training_loop import TrainingLoop

SIDE, SAMPLE_STEPS = 64, 10
NOISES = (1, 2, 3)
PICTURES = (
    ("a red circle", "navy", "red", "ellipse", 4),
    ("the portrait of an old man with a hat, soft morning light", "white", "green", "rectangle", 28),
)
CONFIG = """\
job: extension
config:
  name: pair
  process:
    - type: diffusion_trainer
      training_folder: "{output}"
      training_seed: 7
      device: cpu
      network: {{type: lora, linear: 64, linear_alpha: 64}}
      save: {{dtype: float32, save_every: 100000}}
      datasets: [{{folder_path: "{data}", caption_ext: txt, caption_dropout_rate: 0.0, resolution: [{side}]}}]
      train:
        batch_size: 2
        steps: {steps}
        gradient_checkpointing: false
        noise_scheduler: flowmatch
        optimizer: adamw
        lr: {rate}
        dtype: fp32
        disable_sampling: true
      model: {{name_or_path: "{model}", arch: zimage, quantize: true, qtype: int8}}
"""


@dataclass(frozen=True)
class Seen:
    """A model at one moment: the loss of both pictures, and per noise how far captions (rows) are from pictures."""

    loss: float
    distances: tuple[Tensor, ...]

    def told_apart(self) -> bool:
        return all(table[row, row] < table[row, 1 - row] for table in self.distances for row in (0, 1))


def look(trainer: Trainer, model: Path) -> Seen:
    items = sorted(trainer.batches.plain.items, key=lambda item: item.caption)
    targets = torch.stack([trainer.objective.latents.get(item) for item in items])
    loss = trainer.validation_loss(items, lambda: False)
    assert loss is not None and len(items) == len(PICTURES)

    def painted(caption: str, noise: int) -> Tensor:
        latent = denoise(
            trainer.objective.model,
            scheduler_of(trainer.objective.family.RECORD, model, trainer.objective.model),
            SamplePrompt(caption, SIDE, SIDE, noise, SAMPLE_STEPS, 1.0),
            trainer.objective.texts.get(caption),
            trainer.objective.texts.get(caption),
            shrink=VaeFiles(model / "vae", "AutoencoderKL").shrink,
            channels=targets.shape[1],
            dtype=trainer.objective.dtype,
            device=trainer.device,
        )
        assert latent is not None
        return (targets - latent).square().mean(dim=(1, 2, 3))

    return Seen(loss, tuple(torch.stack([painted(item.caption, noise) for item in items]) for noise in NOISES))


def trained(folder: Path, steps: int, rate: float) -> tuple[Seen, Seen]:
    """The runner from its config to its end, looked at before the first and after the last step."""
    seen: list[Seen] = []
    model = folder / "model"

    class Watched(TrainingLoop):
        def train(self) -> Literal["finished", "interrupted"]:
            seen.append(look(self.trainer, model))
            stopped = super().train()
            seen.append(look(self.trainer, model))
            return stopped

    output = folder / f"out-{rate}"
    config = folder / f"{rate}.yaml"
    config.write_text(
        CONFIG.format(output=output, data=folder / "data", model=model, side=SIDE, steps=steps, rate=rate)
    )
    before, loop.TrainingLoop = loop.TrainingLoop, Watched  # type: ignore[misc]
    try:
        hand_over(examined(str(config), as_runner=True))
    finally:
        loop.TrainingLoop = before  # type: ignore[misc]
    return seen[0], seen[1]


def main() -> None:
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["ZDOCTOR_CACHE"] = str(folder / "kept")
        build_tiny_pipeline(folder / "model")
        (folder / "data").mkdir()
        for number, (caption, ground, colour, shape, corner) in enumerate(PICTURES):
            image = Image.new("RGB", (SIDE, SIDE), ground)
            getattr(ImageDraw.Draw(image), shape)((corner, corner, corner + 30, corner + 30), fill=colour)
            image.save(folder / "data" / f"{number}.png")
            (folder / "data" / f"{number}.txt").write_text(caption)
        passed = []
        for what, count, rate in (("trained", steps, 3e-3), ("control, learning rate 1e-9", 20, 1e-9)):
            wall, used = time.perf_counter(), time.process_time()
            before, after = trained(folder, count, rate)
            wall, used = time.perf_counter() - wall, time.process_time() - used
            print(f"{what}: {count} steps, {wall:.0f} s, CPU {used:.0f} s, load average {os.getloadavg()[0]:.2f}")
            for when, seen in (("before", before), ("after", after)):
                print(f"    {when:6} loss {seen.loss:.3f}, told apart: {seen.told_apart()}, distances (own, other):")
                for noise, table in zip(NOISES, seen.distances, strict=True):
                    pairs = ", ".join(f"{table[row, row]:.3f} {table[row, 1 - row]:.3f}" for row in (0, 1))
                    print(f"           noise {noise}: {pairs}")
            passed.append(after.loss <= before.loss / 2 and after.told_apart())
            passed.append(before.told_apart())
        print(f"learnt: {passed[0]}; untrained model passes: {passed[1]}; control passes: {passed[2]}")
        assert passed == [True, False, False, False], passed


if __name__ == "__main__":
    main()
