"""Prompts become embeddings, each once; the cache of the output folder keeps them.

The text encoder is loaded only for what the cache lacks, here or in a process of its own (`text_encoder_process`).
It is gone before training begins. A key changes when the prompt or the model's files change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from ...families import family_of
from ...files.fingerprints import of_beginnings, of_texts
from ...model.amounts import plural
from ...model.recipe import Recipe
from ...progress import Progress
from ..components.component_files import component_files
from ..dataset.images import open_image
from ..dataset.pixels import seen_pixels
from ..dataset.training_items import SeenImage, TrainingItem
from ..families import Embedding, FamilyModule, module_of
from ..kernels.quantized_linear import Quantization
from ..runtime.allocator import empty_device_cache
from ..runtime.atomic_files import atomic_file
from ..runtime.gpu_failures import unless_out_of_memory
from ..runtime.precision import has_bfloat16
from ..runtime.train_error import TrainError
from .encoding_cache import EncodingCache
from .text_encoder_process import EncodeRequest, TextEncoderProcess
from .trained_text import TrainedText, load_trained_text


@dataclass(frozen=True)
class SeeingPrompt:
    """A prompt that is read while the text encoder looks at images."""

    text: str
    images: tuple[SeenImage, ...]

    @property
    def words(self) -> tuple[str, ...]:
        """What tells it from others."""
        shown = ((one.item.picture.digest, one.item.crop, f"{one.width}x{one.height}") for one in self.images)
        return self.text, *(word for one in shown for word in one)


Prompt = str | SeeingPrompt


def prompt_of(text: str, item: TrainingItem | None) -> Prompt:
    """The prompt with what the text encoder looks at in an item, where it does."""
    images = () if item is None else item.seen
    return SeeingPrompt(text, images) if images else text


@dataclass
class TextEmbeddings:
    """The embeddings of prompts: encoded as the family's pipeline does it, then read from the cache.

    What `trained` text encoders give is made anew each time.
    """

    cache: EncodingCache
    family: FamilyModule
    components: Mapping[str, Path]
    dtype: torch.dtype
    kind: Quantization = "none"
    process: TextEncoderProcess | None = None
    masked: bool = False
    trained: TrainedText | None = None
    shown: list[Path] = field(default_factory=list)
    ahead: dict[str, Embedding] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folders = {name: self.components[name] for name in self.family.TEXT_PARTS}
        files = (of_beginnings(component_files(place)) for place in self.folders.values())
        kind, masked = () if self.kind == "none" else (self.kind,), ("masked",) if self.masked else ()
        self.salt = " ".join([*files, str(self.dtype), *kind, *masked])

    def key(self, prompt: Prompt) -> str:
        words = (prompt,) if isinstance(prompt, str) else (self.family.RECORD.name, *prompt.words)
        return "text-" + of_texts(self.salt, *words, length=32)

    def get(self, prompt: Prompt) -> Embedding:
        """Returns the embedding of one prompt, on the CPU."""
        key = self.key(prompt)
        return self.ahead.get(key) or self.cache.get(key)

    def read_ahead(self, prompts: Iterable[Prompt]) -> None:
        """Reads the embeddings that will be asked for next. Raises TrainError."""
        self.ahead = {key: self.ahead.get(key) or self.cache.get(key) for key in map(self.key, prompts)}

    def of(self, prompts: Sequence[Prompt]) -> list[Embedding]:
        """Returns the embeddings of prompts as the text encoders give them now."""
        cached = [self.get(prompt) for prompt in prompts]
        if self.trained is None:
            return cached
        texts = [prompt if isinstance(prompt, str) else prompt.text for prompt in prompts]
        return [{**before, **now} for before, now in zip(cached, self.trained.of(texts), strict=True)]

    def load_trained(self, recipe: Recipe, device: torch.device, seed: int) -> None:
        """Loads the text encoders that the recipe trains, if any. Raises TrainError, torch.OutOfMemoryError."""
        self.trained = load_trained_text(self.family, recipe, self.folders, self.kind, self.dtype, device, seed)

    def prepare(self, texts: Iterable[Prompt], device: torch.device, progress: Progress) -> int:
        """Encodes what the cache lacks; returns how many prompts that were. Raises TrainError."""
        count = self.begin(texts, device, progress, torch.get_num_threads())
        self.finish(progress)
        return count

    def begin(self, texts: Iterable[Prompt], device: torch.device, progress: Progress, threads: int) -> int:
        """Begins `prepare`: the text encoder's own process goes on with it until `finish`, with so many threads.

        What it looks at lies in files beside the cache until then.
        """
        missing = {self.key(text): text for text in texts if not self.cache.has(self.key(text))}
        if not missing:
            return 0
        progress.phase(f"Loading the text encoder for {plural(len(missing), 'prompt')}")
        request = EncodeRequest(
            family=self.family.RECORD.name,
            folders={name: str(folder) for name, folder in self.folders.items()},
            kind=self.kind,
            dtype=str(self.dtype).removeprefix("torch."),
            device=str(device),
            cache=str(self.cache.folder),
            texts={key: one if isinstance(one, str) else one.text for key, one in missing.items()},
            seen={key: self._show(key, one) for key, one in missing.items() if not isinstance(one, str)},
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
        for file in self.shown:
            file.unlink(missing_ok=True)
        self.shown.clear()

    def _show(self, key: str, prompt: SeeingPrompt) -> list[str]:
        """Writes what is looked at as it is looked at; returns the files."""
        self.cache.folder.mkdir(parents=True, exist_ok=True)
        files = [self.cache.folder / f"{key}-{number}.png" for number in range(len(prompt.images))]
        for file, image in zip(files, prompt.images, strict=True):
            with atomic_file(file, durable=False) as stream:
                seen_pixels(image).save(stream, "PNG", compress_level=1)
        self.shown += files
        return [str(file) for file in files]

    def size(self) -> int:
        return sum(file.stat().st_size for place in self.folders.values() for file in component_files(place))


def encode_texts(request: EncodeRequest, progress: Progress) -> None:
    """Encodes the prompts of a request into its cache. Raises TrainError."""
    family = module_of(family_of(request.family))
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
            images = [open_image(Path(file)) for file in request.seen.get(key, ())]
            values = encode(text, images) if images else encode(text)
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
