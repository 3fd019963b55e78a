"""Pictures to latents, each once, and the cache of the output folder, where these and the embeddings are kept.

The VAE is loaded only for what the cache lacks, and dropped before the transformer is loaded. A key changes when the
picture, its crop or the model's files change.
"""

from __future__ import annotations

import gc
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..base.part import all_files, config_of
from ..data.items import Item, load_pixels
from ..errors import TrainError
from ..failures import tried
from ..output.files import atomic
from .pretrained import load_file, load_pretrained
from .strips import LARGE, in_strips


class Cache:
    """Named tensors by key in a folder, one safetensors file a key, whole or absent; unreadable ones are absent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def has(self, key: str) -> bool:
        try:
            self.get(key)
        except (KeyError, OSError):
            return False
        return True

    def get(self, key: str) -> dict[str, Tensor]:
        """The tensors. Raises KeyError or OSError when there are none."""
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            return load_file(str(self._file(key)))
        except SafetensorError as error:
            raise KeyError(key) from error

    def put(self, key: str, values: Mapping[str, Tensor]) -> None:
        from safetensors.torch import save

        write_atomic(self._file(key), save({name: value.contiguous().cpu() for name, value in values.items()}))

    def _file(self, key: str) -> Path:
        return self.folder / f"{key}.safetensors"


class Sizes:
    """The sizes of pictures that decoded without error, by the sha256 of their bytes, in one file of the cache."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "pictures.json"

    def read(self) -> dict[str, tuple[int, int]]:
        try:
            content = json.loads(self.file.read_text(encoding="utf-8"))
            return {str(digest): (int(width), int(height)) for digest, (width, height) in content.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}

    def write(self, sizes: dict[str, tuple[int, int]]) -> None:
        write_atomic(self.file, json.dumps(sizes).encode())


def write_atomic(file: Path, content: bytes | memoryview) -> None:
    """Write a file so that it is either wholly there or not changed. Raises TrainError when it cannot be written."""
    write_parts(file, ((0, content),))


def write_parts(file: Path, parts: Iterable[tuple[int, bytes | memoryview]]) -> None:
    """`write_atomic` of a file in parts, each with its offset, each made when its turn comes."""
    with atomic(file) as stream:
        for offset, part in parts:
            stream.seek(offset)
            stream.write(part)


def fingerprint(place: Path) -> str:
    """Changes when a file of a part changes: names, sizes, times and the first MiB of each file."""
    digest = hashlib.sha256()
    for file in all_files(place):
        state = file.stat()
        digest.update(f"{file.name} {state.st_size} {state.st_mtime_ns} ".encode())
        with file.open("rb") as stream:
            digest.update(stream.read(1 << 20))
    return digest.hexdigest()[:16]


def component(name: str, model_folder: Path, extras_folder: Path | None) -> Path:
    """The folder of a component: in the extras folder, else in the model folder. Raises TrainError."""
    for folder in (extras_folder, model_folder):
        if folder is not None and (folder / name).is_dir() and any((folder / name).iterdir()):
            return folder / name
    places = str(model_folder) if extras_folder is None else f"{extras_folder} nor {model_folder}"
    raise TrainError(f"There is no {name} folder in {places}; it is needed for training.")


class Latents:
    """Latents of items: one VAE encoding each, then read from the cache.

    `middle`: they are the means of what the VAE gives instead of samples of it.
    """

    def __init__(self, cache: Cache, vae: Path, *, middle: bool = False) -> None:
        self.cache = cache
        self.vae = vae
        self.middle = middle
        self.salt = fingerprint(vae)

    def key(self, item: Item) -> str:
        return "latent-" + key_of(self.salt, *_seen(item), *(["middle"] if self.middle else []))

    def get(self, item: Item) -> Tensor:
        """The scaled latent, channels x height/8 x width/8, float32, on the CPU."""
        return self.cache.get(self.key(item))["latent"]

    def prepare(self, items: Sequence[Item], device: torch.device, phase: Callable[[str], None]) -> int:
        """Encode what the cache lacks of the items and their control images; returns how many that were."""
        all_of_them = [*items, *(item.control for item in items if item.control is not None)]
        missing = [item for item in {self.key(item): item for item in all_of_them}.values() if not self._cached(item)]
        if not missing:
            return 0
        phase(f"Loading the VAE for {counted(len(missing), 'picture')}")
        vae = load_vae(self.vae, device)
        for item in missing:
            encoded = partial(encode_image, vae, item, key_of(*_seen(item)), middle=self.middle)
            latent = tried(encoded)
            if latent is None:
                phase(f"{item.picture.file.name} does not fit on the GPU: it is encoded on the CPU")
                free_memory()
                vae.cpu()
                latent = encoded()
                moved(vae, device)
            self.cache.put(self.key(item), {"latent": latent})
        del vae
        free_memory()
        return len(missing)

    def _cached(self, item: Item) -> bool:
        return self.cache.has(self.key(item))


def _seen(item: Item) -> tuple[str, ...]:
    """What a latent is of, whatever files the VAE comes from."""
    picture = item.picture
    control = (f"control {picture.width}x{picture.height}",) if picture.is_control else ()
    return picture.digest, item.crop, *control


@torch.no_grad()
def encode_image(vae: Any, item: Item, key: str, *, middle: bool = False) -> Tensor:
    """One sample of the latent distribution of a picture, drawn from its key, shifted and scaled.

    With `middle`, and of a control image, it is the mean, which the pipelines take.
    """
    device = next(vae.parameters()).device
    image = load_pixels(item)
    flat = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
    pixels = flat.reshape(1, item.height, item.width, 3).permute(0, 3, 1, 2).float() / 127.5 - 1.0
    with in_strips(vae.encoder, item.width * item.height > LARGE):
        moments = vae.encode(pixels.to(device, vae.dtype)).latent_dist
    generator = torch.Generator().manual_seed(int(key[-12:], 16))
    noise = torch.randn(moments.mean.shape, generator=generator).to(device)
    spread = 0.0 if middle or item.picture.is_control else moments.std.float()
    latent: Tensor = moments.mean.float() + spread * noise
    latent = (latent - (vae.config.shift_factor or 0.0)) * vae.config.scaling_factor
    if not torch.isfinite(latent).all():
        raise TrainError(f"The VAE gives non-finite latents for {item.picture.file}. Its files may be damaged.")
    return latent[0].cpu()


def load_vae(place: Path, device: torch.device) -> Any:
    """The AutoencoderKL of a folder or file in float32; on the CPU where `device` has no room. Raises TrainError."""
    from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL

    if place.is_file():
        return moved(load_file(AutoencoderKL, place, torch.float32), device)
    return moved(load_pretrained(AutoencoderKL, place, "VAE", torch_dtype=torch.float32), device)


def moved(model: Any, device: torch.device) -> Any:
    """The model on the device; on the CPU where that has no room for it."""
    if tried(lambda: model.to(device)) is None:
        model.cpu()
        free_memory()
    return model


def vae_divisor(place: Path) -> int:
    """What the sides of a picture must be divisible by: the VAE's shrink times the transformer's patch of 2."""
    try:
        return int(2 * 2 ** (len(config_of(place, "AutoencoderKL")["block_out_channels"]) - 1))
    except (KeyError, TypeError) as error:
        raise TrainError(f"{place / 'config.json'} has no block_out_channels.") from error


def free_memory() -> None:
    """Give back what a dropped model held."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def key_of(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
