"""Prompts become embeddings, each once; the cache of the output folder keeps them.

The text encoder is loaded only for what the cache lacks, here or in a process of its own (`text_encoder_process`).
It is gone before training begins. A key changes when the prompt or the model's files change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from ...files.fingerprints import of_beginnings, of_texts
from ...model.amounts import plural
from ...progress import Progress
from ..components.component_files import component_files
from ..families import Embedding, FamilyModule, family_named
from ..kernels.quantized_linear import Quantization
from ..runtime.allocator import empty_device_cache
from ..runtime.gpu_failures import unless_out_of_memory
from ..runtime.precision import has_bfloat16
from ..runtime.train_error import TrainError
from .encoding_cache import EncodingCache
from .text_encoder_process import EncodeRequest, TextEncoderProcess


@dataclass
class TextEmbeddings:
    """The embeddings of prompts: encoded as the family's pipeline does it, then read from the cache."""

    cache: EncodingCache
    family: FamilyModule
    components: Mapping[str, Path]
    dtype: torch.dtype
    kind: Quantization = "none"
    process: TextEncoderProcess | None = None
    masked: bool = False

    def __post_init__(self) -> None:
        self.folders = {name: self.components[name] for name in self.family.TEXT_PARTS}
        files = (of_beginnings(component_files(place)) for place in self.folders.values())
        kind, masked = () if self.kind == "none" else (self.kind,), ("masked",) if self.masked else ()
        self.salt = " ".join([*files, str(self.dtype), *kind, *masked])

    def key(self, text: str) -> str:
        return "text-" + of_texts(self.salt, text, length=32)

    def get(self, text: str) -> Embedding:
        """Returns the embedding of one prompt, on the CPU."""
        return self.cache.get(self.key(text))

    def prepare(self, texts: Iterable[str], device: torch.device, progress: Progress) -> int:
        """Encodes what the cache lacks; returns how many prompts that were. Raises TrainError."""
        count = self.begin(texts, device, progress, torch.get_num_threads())
        self.finish(progress)
        return count

    def begin(self, texts: Iterable[str], device: torch.device, progress: Progress, threads: int) -> int:
        """Begins `prepare`: the text encoder's own process goes on with it until `finish`, with so many threads."""
        missing = {self.key(text): text for text in texts if not self.cache.has(self.key(text))}
        if not missing:
            return 0
        progress.phase(f"Loading the text encoder for {plural(len(missing), 'prompt')}")
        request = EncodeRequest(
            family=self.family.RECORD.class_name,
            folders={name: str(folder) for name, folder in self.folders.items()},
            kind=self.kind,
            dtype=str(self.dtype).removeprefix("torch."),
            device=str(device),
            cache=str(self.cache.folder),
            texts=missing,
            masked=self.masked,
            threads=threads,
        )
        if self.process is None:
            encode_texts(request, progress)
        else:
            self.process.ask(request)
        return len(missing)

    def finish(self, progress: Progress) -> None:
        """Waits for what `begin` left to the other process. Raises TrainError."""
        if self.process is not None:
            self.process.finish(progress)

    def size(self) -> int:
        return sum(file.stat().st_size for place in self.folders.values() for file in component_files(place))


def encode_texts(request: EncodeRequest, progress: Progress) -> None:
    """Encodes the prompts of a request into its cache. Raises TrainError."""
    family = family_named(request.family)
    if family is None:
        raise TrainError(f"This runner has no text encoder for a {request.family}.")
    folders = {name: Path(folder) for name, folder in request.folders.items()}
    wanted, cache = getattr(torch, request.dtype), EncodingCache(Path(request.cache))

    def encode_on(device: torch.device) -> bool:
        # a processor without bfloat16 emulates it, about 50 times slower than float32 over weights kept in 16 bits
        emulated = device.type == "cpu" and wanted == torch.bfloat16 and not has_bfloat16()
        dtype = torch.float16 if emulated else wanted
        encode = family.text_encoder(folders, request.kind, dtype, device, masked=request.masked)
        for done, (key, text) in enumerate(request.texts.items()):
            progress.count(done, len(request.texts), "prompts encoded")
            if cache.has(key):
                continue
            values = encode(text)
            if not all(torch.isfinite(value).all() for value in values.values()):
                raise TrainError(f"The text encoder gives non-finite numbers for {text!r}. Its files may be damaged.")
            if dtype == torch.float16:  # made in float32, which would take twice the room on the disk
                values = {name: value.bfloat16() for name, value in values.items()}
            cache.put(key, values)
        return True

    if not unless_out_of_memory(lambda: encode_on(torch.device(request.device))):
        progress.phase("The text encoder does not fit on the GPU: the captions are encoded on the CPU")
        empty_device_cache()
        encode_on(torch.device("cpu"))
    empty_device_cache()
