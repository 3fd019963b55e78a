"""Pictures and captions that trainers and the runner are asked about, and how what they make of them is counted."""

from __future__ import annotations

import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL
from PIL import Image

from zdoctor.doctor.model.buckets import Buckets, bucket_size, scaled_size
from zdoctor.doctor.model.datasets import Dataset
from zdoctor.doctor.model.recipe import Recipe
from zdoctor.doctor.train.components.vae import Vae
from zdoctor.doctor.train.dataset.captions import drawn_caption
from zdoctor.doctor.train.dataset.pixels import load_pixels
from zdoctor.doctor.train.dataset.training_items import TrainingItem, read_training_items
from zdoctor.doctor.train.encode.latents import encode_image

RESOLUTIONS = (256, 512, 768, 1000, 1024)
Counts = Counter[str]
Pairs = list[tuple[str, str]]  # captions, by the trainer and by the runner


def sizes_of(count: int) -> list[tuple[int, int]]:
    """Random sizes, from thumbnails to photographs, and the usual ones."""
    draw = random.Random(7)
    usual = [(640, 400), (1024, 1024), (1920, 1080), (1080, 1920), (512, 768), (16, 16), (4000, 700), (33, 2000)]
    return [*usual, *((int(16 * 400 ** draw.random()), int(16 * 400 ** draw.random())) for _ in range(count))][:count]


def numbered(folder: Path, count: int) -> list[Path]:
    """So many small pictures, each of its own bytes."""
    files = []
    for number in range(count):
        files.append(folder / f"{number:05}.png")
        Image.new("RGB", (1, 1), (number % 256, number // 256 % 256, number // 65536)).save(files[-1])
    return files


def pictures_in(folder: Path, count: int, *, turned: bool, modes: tuple[str, ...]) -> list[Path]:
    """Pictures of several kinds of content, sizes, modes and files."""
    draw = np.random.default_rng(3)
    files = []
    for number in range(count):
        wide, high = (int(side) for side in draw.integers(90, 1400, 2))
        if number % 7 == 0:
            wide, high = 64 * int(draw.integers(2, 20)), 64 * int(draw.integers(2, 20))
        if number % 11 == 0:
            wide, high = wide // 4 + 40, high // 4 + 40
        rows, columns = np.indices((high, wide))
        waves = np.stack([127 + 120 * np.sin(rows / (3 + c) + columns / (5 + number % 9)) for c in range(3)], -1)
        noise = draw.integers(0, 256, (high, wide, 3))
        slope = np.stack([(rows * (c + 1) + columns) % 256 for c in range(3)], -1)
        image = Image.fromarray((noise, waves, slope)[number % 3].astype(np.uint8)).convert(
            modes[number % len(modes)]
        )
        if image.mode == "RGBA":
            image.putalpha(Image.linear_gradient("L").resize(image.size))
        exif = Image.Exif()
        exif[0x0112] = 1 + number % 8 if turned else 1
        lossy = number % 5 == 0 and image.mode in ("RGB", "L")
        files.append(folder / f"{number:03}.{'jpg' if lossy else 'png'}")
        image.save(files[-1], exif=exif)
    return files


def captions_in(folder: Path, files: list[Path], extension: str) -> list[str]:
    """Captions with commas, blanks, line ends, other scripts and places for the trigger word, one for each file."""
    draw = random.Random(5)
    words = ["a cat", " red", "[trigger]", "zcat", "", "Würfel", "猫", "1girl", "  long hair ", "photo of [name]"]
    words += ["<|im_end|>", "</s>", "<|endoftext|>", "e\u0301", "\tsoft  light", "🎨", "\u00a0IT'S", "x" * 90]
    texts = []
    for file in files:
        count = 700 if draw.random() < 0.02 else draw.randint(0, 6)  # more than any text encoder takes
        text = ",".join(draw.choice(words) for _ in range(count))
        text += draw.choice(["", "\n", "\r\n", " ", "\n\nsecond line, here", "\r"])
        file.with_suffix(extension).write_bytes(text.encode())
        texts.append(text)
    return texts


def tiny_vae() -> Vae:
    """A VAE of random weights, eight times smaller latents."""
    torch.manual_seed(0)
    make: Any = AutoencoderKL  # whose annotations are of tuples of one
    model = make(
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        block_out_channels=(8, 8, 16, 16),
        norm_num_groups=4,
        latent_channels=4,
    )
    return Vae(model.eval(), 8)


def drawn_by(item: TrainingItem, seed: int) -> str:
    """The caption of an item as it is drawn by this seed."""
    return drawn_caption(item.drawn, random.Random(seed)) if item.drawn else item.caption


def compare_pixels(counts: Counts, vae: Vae, item: TrainingItem, theirs: torch.Tensor) -> None:
    """Counts whether the tensor, channels x height x width from -1 to 1, is that of the item, and their latents."""
    flat = torch.frombuffer(bytearray(load_pixels(item).tobytes()), dtype=torch.uint8)
    ours = flat.reshape(item.height, item.width, 3).permute(2, 0, 1).float() / 255 * 2 - 1
    counts["pictures"] += 1
    if ours.shape != theirs.shape:
        counts["pictures of another size"] += 1
        return
    apart = (ours - theirs).abs().max().item()
    counts["pictures whose pixels are equal"] += apart < 1e-6
    with torch.no_grad():
        latent = vae.model.encode(theirs[None].float()).latent_dist.mean[0] * vae.model.config.scaling_factor
    same = encode_image(vae, item, 0, middle=True)
    counts["pictures whose latents are within 1e-4"] += ((latent - same).norm() / latent.norm()).item() < 1e-4
    if apart >= 1e-6:
        where = f"{item.picture.file.name} {item.picture.width}x{item.picture.height} {item.crop}"
        print(f"    {where}: {apart * 127.5:.1f} of 255 at most", file=sys.stderr)


def ours(dataset: Dataset, folder: Path, known: dict[str, tuple[int, int]], step: int = 16, **recipe: Any) -> Any:
    return read_training_items(Recipe(datasets=(dataset,), **recipe), {dataset.key: str(folder)}, step, known)


def count_sizes(counts: Counts, how: Buckets, size: tuple[int, int], bucket: Any, scaled: Any) -> None:
    """Counts whether a picture of this size gets this bucket, and this size before (None: not told)."""
    same = bucket_size(how, *size) == tuple(bucket)
    counts["pictures at their sizes"] += 1
    counts["of these with the same size"] += same
    if scaled is not None:
        counts["of these with the same scaled size, too"] += same and scaled_size(how, *size) == tuple(scaled)


def count_captions(pairs: Pairs) -> Counts:
    return Counter({"captions": len(pairs), "captions that are equal": sum(one == other for one, other in pairs)})


def as_kohya(how: Buckets, **words: Any) -> Dataset:
    return Dataset("datasets/0", "", ".txt", (512,), recursive=False, buckets=how, **words)
