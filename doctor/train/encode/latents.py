"""Images become latents, each once.

The VAE is loaded only for what the cache lacks, and dropped before the transformer is loaded. A key changes when the
picture, its crop or the model's files change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from ...files import fingerprints
from ...model.amounts import plural
from ...progress import Progress
from ..components.component_files import component_files
from ..components.vae import Vae, VaeFiles
from ..dataset.images import check_unchanged
from ..dataset.pixels import load_pixels
from ..dataset.training_items import TrainingItem
from ..runtime.allocator import empty_device_cache
from ..runtime.gpu_failures import unless_out_of_memory
from ..runtime.train_error import TrainError
from .encoding_cache import EncodingCache


@dataclass
class Latents:
    """The latents of items: one VAE encoding each, then read from the cache.

    `middle`: they are the means of what the VAE gives instead of samples of it.
    """

    cache: EncodingCache
    vae: VaeFiles
    middle: bool = False

    def __post_init__(self) -> None:
        self.salt = fingerprints.of_beginnings(component_files(self.vae.place))

    def key(self, item: TrainingItem) -> str:
        middle = ("middle",) if self.middle else ()
        return "latent-" + fingerprints.of_texts(self.salt, *_seen(item), *middle, length=32)

    def get(self, item: TrainingItem) -> Tensor:
        """Returns the scaled latent, channels x height/8 x width/8, float32, on the CPU."""
        return self.cache.get(self.key(item))["latent"]

    def prepare(self, items: Sequence[TrainingItem], device: torch.device, progress: Progress) -> int:
        """Encodes what the cache lacks of the items and their control images; returns how many that were."""
        all_of_them = [*items, *(control for item in items for control in item.controls)]
        keyed = {self.key(item): item for item in all_of_them}
        missing = {key: item for key, item in keyed.items() if not self.cache.has(key)}
        if not missing:
            return 0
        progress.phase(f"Loading the VAE for {plural(len(missing), 'picture')}")
        vae = self.vae.load(device)
        for done, (key, item) in enumerate(missing.items()):
            progress.count(done, len(missing), "pictures encoded")
            seed = int(fingerprints.of_texts(*_seen(item), length=32)[-12:], 16)
            encoded = partial(encode_image, vae, item, seed, middle=self.middle)
            latent = unless_out_of_memory(encoded)
            if latent is None:
                progress.phase(f"{item.picture.file.name} does not fit on the GPU: it is encoded on the CPU")
                empty_device_cache()
                vae.to(torch.device("cpu"))
                latent = encoded()
                vae.to(device)
            check_unchanged(item.picture.file, item.picture.digest)
            self.cache.put(key, {"latent": latent})
        del vae
        empty_device_cache()
        return len(missing)


def _seen(item: TrainingItem) -> tuple[str, ...]:
    """What a latent is of, whatever files the VAE comes from."""
    picture = item.picture
    control = (f"control {picture.width}x{picture.height}",) if picture.is_control else ()
    return picture.digest, item.crop, *control


@torch.no_grad()
def encode_image(vae: Vae, item: TrainingItem, seed: int, *, middle: bool = False) -> Tensor:
    """Returns one sample of the VAE's distribution of an image, channels x height/8 x width/8, on the CPU.

    With `middle`, and of a control image, it is the mean, which the pipelines take.
    """
    image = load_pixels(item)
    flat = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
    pixels = flat.reshape(1, item.height, item.width, 3).permute(0, 3, 1, 2).float() / 255 * 2 - 1
    drawn = not middle and not item.picture.is_control
    latent = vae.encode(pixels, torch.Generator().manual_seed(seed) if drawn else None)
    if not torch.isfinite(latent).all():
        raise TrainError(f"The VAE gives non-finite latents for {item.picture.file}. Its files may be damaged.")
    return latent[0].cpu()
