"""Captions to embeddings and pictures to latents, each once: the results are kept in the cache of the output folder.

The text encoder and the VAE are loaded only for what the cache lacks, one after the other, and dropped before the
transformer is loaded. A key changes when the caption, the picture, its crop or the model's files change.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .data import Item, load_pixels
from .errors import TrainError

LONGEST_PROMPT = 512


class Cache:
    """Tensors by key in a folder, one safetensors file each, written atomically; unreadable ones count as absent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def has(self, key: str) -> bool:
        try:
            self.get(key)
        except (KeyError, OSError):
            return False
        return True

    def get(self, key: str) -> Tensor:
        """The tensor. Raises KeyError or OSError when there is none."""
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            return load_file(str(self._file(key)))["value"]
        except SafetensorError as error:
            raise KeyError(key) from error

    def put(self, key: str, value: Tensor) -> None:
        from safetensors.torch import save

        write_atomic(self._file(key), save({"value": value.contiguous().cpu()}))

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
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=f".{file.name.lstrip('.')}.", suffix=".part", dir=file.parent)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                for offset, part in parts:
                    stream.seek(offset)
                    stream.write(part)
                stream.flush()
                os.fsync(stream.fileno())
            Path(name).chmod(0o644)
            Path(name).replace(file)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise TrainError(f"{file} cannot be written: {error.strerror or error}.") from error


def fingerprint(folder: Path) -> str:
    """Changes when a file of a component changes: names, sizes, times and the first MiB of each file."""
    digest = hashlib.sha256()
    for file in sorted(path for path in folder.iterdir() if path.is_file()):
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


class Texts:
    """Embeddings of prompts: encoded as the Z-Image pipeline does it, then read from the cache."""

    def __init__(self, cache: Cache, encoder: Path, tokenizer: Path, dtype: torch.dtype) -> None:
        self.cache = cache
        self.encoder = encoder
        self.tokenizer = tokenizer
        self.dtype = dtype
        self.salt = f"{fingerprint(encoder)} {fingerprint(tokenizer)} {dtype}"

    def key(self, text: str) -> str:
        return "text-" + _key(self.salt, text)

    def get(self, text: str) -> Tensor:
        """The embedding of one prompt, tokens x width, on the CPU."""
        return self.cache.get(self.key(text))

    def prepare(self, texts: Iterable[str], device: torch.device, phase: Callable[[str], None]) -> int:
        """Encode what the cache lacks; returns how many that were."""
        missing = [text for text in dict.fromkeys(texts) if not self.cache.has(self.key(text))]
        if not missing:
            return 0
        phase(f"Loading the text encoder for {_count(len(missing), 'prompt')}")
        tokenizer = _load_tokenizer(self.tokenizer)
        encoder = _load_text_encoder(self.encoder, self.dtype)
        try:
            encoder = encoder.to(device)
        except torch.OutOfMemoryError:
            phase("The text encoder does not fit on the GPU: the captions are encoded on the CPU")
            encoder, device = encoder.to("cpu"), torch.device("cpu")
            free_memory()
        for text in missing:
            self.cache.put(self.key(text), encode(tokenizer, encoder, text, device))
        del encoder
        free_memory()
        return len(missing)


@torch.no_grad()
def encode(tokenizer: Any, encoder: Any, text: str, device: torch.device) -> Tensor:
    """The embedding of one prompt: Qwen3's last hidden state but one, tokens x width.

    The pipeline pads to 512 tokens and cuts the padding off again; no token sees what comes after it, so the prompt
    is encoded alone, which gives the same numbers for less work.
    """
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": text}], tokenize=False, add_generation_prompt=True, enable_thinking=True
    )
    ids = tokenizer(prompt, truncation=True, max_length=LONGEST_PROMPT, return_tensors="pt").input_ids.to(device)
    states = encoder(input_ids=ids, output_hidden_states=True, use_cache=False).hidden_states
    value: Tensor = states[-2][0]
    if not torch.isfinite(value).all():
        raise TrainError(f"The text encoder gives non-finite numbers for {text!r}. Its files may be damaged.")
    return value.cpu()


class Latents:
    """Latents of items: one VAE encoding each, then read from the cache."""

    def __init__(self, cache: Cache, vae: Path) -> None:
        self.cache = cache
        self.vae = vae
        self.salt = fingerprint(vae)

    def key(self, item: Item) -> str:
        return "latent-" + _key(self.salt, item.picture.digest, item.crop)

    def get(self, item: Item) -> Tensor:
        """The scaled latent, channels x height/8 x width/8, float32, on the CPU."""
        return self.cache.get(self.key(item))

    def prepare(self, items: Sequence[Item], device: torch.device, phase: Callable[[str], None]) -> int:
        """Encode what the cache lacks; returns how many that were."""
        missing = [item for item in {self.key(item): item for item in items}.values() if not self._cached(item)]
        if not missing:
            return 0
        phase(f"Loading the VAE for {_count(len(missing), 'picture')}")
        vae = load_vae(self.vae, device)
        for item in missing:
            self.cache.put(self.key(item), encode_image(vae, item, self.key(item), device))
        del vae
        free_memory()
        return len(missing)

    def _cached(self, item: Item) -> bool:
        return self.cache.has(self.key(item))


@torch.no_grad()
def encode_image(vae: Any, item: Item, key: str, device: torch.device) -> Tensor:
    """One sample of the latent distribution of a picture, drawn from its cache key, shifted and scaled."""
    image = load_pixels(item)
    flat = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
    pixels = flat.reshape(1, item.height, item.width, 3).permute(0, 3, 1, 2).float() / 127.5 - 1.0
    moments = vae.encode(pixels.to(device, vae.dtype)).latent_dist
    generator = torch.Generator().manual_seed(int(key[-12:], 16))
    noise = torch.randn(moments.mean.shape, generator=generator).to(device)
    latent: Tensor = moments.mean.float() + moments.std.float() * noise
    latent = (latent - (vae.config.shift_factor or 0.0)) * vae.config.scaling_factor
    if not torch.isfinite(latent).all():
        raise TrainError(f"The VAE gives non-finite latents for {item.picture.file}. Its files may be damaged.")
    return latent[0].cpu()


def load_vae(folder: Path, device: torch.device) -> Any:
    """The AutoencoderKL of a folder in float32. Raises TrainError."""
    from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL

    make: Any = AutoencoderKL
    try:
        vae, info = make.from_pretrained(str(folder), torch_dtype=torch.float32, output_loading_info=True)
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        raise TrainError(f"The VAE of {folder} cannot be loaded: {_first_line(error)}") from error
    _refuse_missing(folder, "VAE", info)
    return vae.eval().requires_grad_(False).to(device)


def vae_divisor(folder: Path) -> int:
    """What the sides of a picture must be divisible by: the VAE's shrink times the transformer's patch of 2."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        return int(2 * 2 ** (len(config["block_out_channels"]) - 1))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TrainError(f"{folder / 'config.json'} cannot be read: {error}.") from error


def free_memory() -> None:
    """Give back what a dropped model held."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _load_tokenizer(folder: Path) -> Any:
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from transformers import AutoTokenizer

    make: Any = AutoTokenizer
    try:
        return make.from_pretrained(str(folder))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TrainError(f"The tokenizer of {folder} cannot be loaded: {_first_line(error)}") from error


def _load_text_encoder(folder: Path, dtype: torch.dtype) -> Any:
    from transformers.models.qwen3.modeling_qwen3 import Qwen3Model

    make: Any = Qwen3Model
    with _quiet():
        try:
            encoder, info = make.from_pretrained(str(folder), dtype=dtype, output_loading_info=True)
        except (OSError, ValueError, RuntimeError, KeyError) as error:
            raise TrainError(f"The text encoder of {folder} cannot be loaded: {_first_line(error)}") from error
    _refuse_missing(folder, "text encoder", info)
    return encoder.eval().requires_grad_(False)


class _quiet:
    """Without the progress bars and load reports of transformers."""

    def __enter__(self) -> None:
        from transformers.utils import logging as module

        self.logging: Any = module
        self.level = self.logging.get_verbosity()
        self.bars = self.logging.is_progress_bar_enabled()
        self.logging.set_verbosity_error()
        self.logging.disable_progress_bar()

    def __exit__(self, *_: object) -> None:
        self.logging.set_verbosity(self.level)
        if self.bars:
            self.logging.enable_progress_bar()


def _refuse_missing(folder: Path, what: str, info: Any) -> None:
    missing = sorted(info["missing_keys"])
    wrong = info.get("mismatched_keys") or []
    if missing or wrong:
        names = missing or [str(item[0]) for item in wrong]
        raise TrainError(
            f"{len(names)} tensors of the {what} in {folder} are missing or of another shape, first {names[0]}. It "
            "would run with random numbers in their place. Fetch the complete files again."
        )


def _key(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
