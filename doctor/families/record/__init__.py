"""The record of a model family: everything known of it, once. Each field is asked for, so that none is forgotten."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from ...model.record import dataclass
from .blocks import is_within
from .loader import Fit as Fit
from .loader import Loader as Loader
from .loader import ModelConfig as ModelConfig
from .loader import Origin as Origin
from .of_trainers import AiToolkit, Kohya, SimpleTuner
from .shapes import Shapes, Tensors
from .single_file import own_names, same_name


@dataclass(frozen=True)
class ModelClass:
    """A class of diffusers or transformers: the tensors that it builds, and how files hold them.

    `title` is its name for people, with its article; `model_type` is what a config.json without a class says.
    `tensors` gives name -> shape for a config (raises BadConfig), `dialect` the same under the names of files with
    these tensors, where the class's own loader accepts others; `in_file` under the names of any file that zdoctor's
    runner opens, and `by_kohya` those that sd-scripts and musubi-tuner fill from a file with these tensors (`either`:
    in diffusers' layout, too). `marks` are names that only its files have; a file is one of the first class with its
    mark. `infer` reads the config.json out of the tensors of a file, which may have their `other` names. `depth` is
    for models that are published in one depth: a key and its value there, and the numbers of blocks that go with it.
    `original` is the name of a tensor in single files (those that share one are fused, in the order of their rows),
    `swapped` are the tensors whose halves change places there, `turned` those whose rows are columns there.
    """

    name: str
    title: str
    tensors: Callable[[ModelConfig], Shapes]
    in_file: Callable[[Shapes, Collection[str]], Shapes]
    by_kohya: Callable[[ModelConfig, Collection[str], bool], Shapes]
    marks: tuple[str, ...]
    infer: Callable[[Tensors], dict[str, Any]]
    other: Callable[[str], str]
    dialect: Callable[[Shapes, Collection[str]], Shapes] = own_names
    model_type: str = ""
    depth: tuple[str, int, Mapping[str, int]] | None = None
    original: Callable[[str], str] = same_name
    swapped: tuple[str, ...] = ()
    turned: tuple[str, ...] = ()


@dataclass(frozen=True)
class Memory:
    """What a prediction of memory rests on.

    `word` is in the names of published models ("" where all have one config), whose config is taken as `config` of
    that name says where it is not here. `heads` is the key of a transformer's config that counts attention heads,
    with their number where it is not written. What a step holds is mined from its class (`steps.py`). A prompt has
    `text` tokens; a token of a picture is `pixels` wide and high; sequences are padded to a multiple of `padding`.
    `beside` says that ai-toolkit loads the text encoders while the transformer is on the card, and quantizes the
    transformer there; `caches` that the size of its caches is known. The text encoder's module `dropped` is let go;
    `headless` says that zdoctor's runner opens it without its head (lm_head), `every_encoder` that it quantizes each
    text encoder, not the largest alone.
    With low_vram samples are decoded in tiles of `tile` pixels a side, 0: whole. An edited picture has one control
    image, or with `several_controls` as many as are given, of `control_pixels` (0: as large as the picture), and
    each is as `control_text` tokens more of the prompt.

    Of a trainer that takes other Linears than a LoRA of ours, `lora` are the lists of blocks of these. A model that
    was mined whole has `whole` (steps.py). Picture and prompt together are filled up to a multiple of `together`
    tokens. Of a film `frames` pictures make a token, the first but one: 0 where there are no films. There are
    `experts` transformers, of which with low_vram one is on the card. With `loads_whole` the transformer is on the
    card, unless low_vram, before it is quantized; with `encoder_aside` the text encoder is quantized on the
    processor. `drawn` pictures go through the transformer at a time while samples are drawn. `vae` is what the VAE
    was mined as, where that is not its class. A caption has `template` tokens around it where captions are not
    filled up to `text`; 0: they are, or that is not known. Where films are trained on in windows, of which each has
    more frames beside it that it goes on from, `windows` are the tokens of a picture and of a film, in those of one
    frame.
    """

    word: str
    config: Callable[[str], dict[str, Any]]
    heads: tuple[str, int]
    text: int
    pixels: int = 16
    padding: int = 1
    beside: bool = False
    caches: bool = False
    dropped: str = ""
    headless: bool = False
    every_encoder: bool = False
    tile: int = 0
    several_controls: bool = False
    control_pixels: int = 0
    control_text: int = 0
    lora: tuple[str, ...] = ()
    whole: bool = False
    together: int = 1
    frames: int = 0
    experts: int = 1
    loads_whole: bool = False
    encoder_aside: bool = False
    drawn: int = 2
    vae: str = ""
    template: int = 0
    windows: tuple[float, float] | None = None


@dataclass(frozen=True)
class Edits:
    """How a model that edits pictures is given what it edits: at most `most` control images for a picture.

    Each is cut as its picture or, with `pixels`, has as many in a shape of its own, `at_most` so many where it may
    keep its own size. With `seen` the text encoder looks at them, in so many pixels, and no prompt is read without
    one.
    """

    most: int = 1
    pixels: int = 0
    at_most: bool = False
    seen: int = 0


@dataclass(frozen=True)
class Distilled:
    """A distilled model of a family, known by a word in its name, and the adapter that it is trained with.

    `restored` are words of models that are no longer distilled.
    """

    word: str
    restored: tuple[str, ...]
    adapter: str

    def is_meant(self, name: str, variant: str | None = None) -> bool:
        """Whether a model of this name or path, or a variant, is the distilled one."""
        plain = name.lower().replace("_", "-")
        if variant in self.restored or any(word in plain for word in self.restored):
            return False
        return variant == self.word or self.word in plain


@dataclass(frozen=True)
class Tokenizer:
    """A tokenizer of a model in files: its repositories, each with the folder in it, the trainers' own first.

    `command` fetches what of it is loaded; `chats` says that it must know how a chat is written.
    """

    name: str
    repos: tuple[tuple[str, str], ...]
    command: str
    chats: bool = False


@dataclass(frozen=True)
class Family:
    """A model family, or a member of one that is trained in its own way.

    `name` is how ai-toolkit spells it (`Recipe.architecture`), `aliases` how others do. `loader` is what ai-toolkit
    and SimpleTuner open, `own` what zdoctor's runner does, None where it trains no such model.
    `published` are component -> class and config of the text encoders and the VAE, which all its models have alike.
    `lora_prefixes` may stand before the name of a Linear in a LoRA's file, the first as it is written (lora_unet_:
    as kohya's trainers write it), `lora_beside` before those of a component that others have in the transformer;
    `base_version` is what other programs find in its ss_base_model_version, `lokr`
    says that diffusers opens a LoKr.
    `blocks` are the lists of blocks that may be checkpointed or moved one by one, in their order ("down.*.layers":
    those in each module of "down"); a LoRA covers the Linears of `lora_blocks` (SimpleTuner's those of `refiners`,
    too), and those of `quantized_blocks` are quantized. `edits` says how control images are given, where they are,
    `guided` that guidance is a number the model takes, so that no second pass with the negative prompt is needed,
    `overflows` that its activations are too large for float16, None where that is not known. `scheduler` is the
    config of diffusers' scheduler for a transformer's config.
    `packages` are those that brought a class it needs, since which version. `repos` are published models by a word in
    a folder's name, `files` the published files of a class by a word in a path ("" for any); `alike` says that the
    components beside the transformer are the same in all of them. `runner` is its module in
    doctor/train/families (".name"), or another package's. `in_diffusers` is the name of the record of the same models
    in diffusers' own class, which SimpleTuner and zdoctor's runner open; "" where this record is that, or none is.
    """

    name: str
    aliases: tuple[str, ...]
    title: str
    transformer: ModelClass | None
    loader: Loader | None
    own: Loader | None
    fits: tuple[Fit, ...]
    published: Mapping[str, tuple[str, ModelConfig]]
    lora_prefixes: tuple[str, ...]
    lora_beside: Mapping[str, str]
    base_version: str
    lokr: bool
    blocks: tuple[str, ...]
    lora_blocks: tuple[str, ...]
    refiners: tuple[str, ...]
    quantized_blocks: tuple[str, ...]
    edits: Edits | None
    guided: bool
    overflows: bool | None
    scheduler: Callable[[ModelConfig], dict[str, Any]]
    distilled: Distilled | None
    memory: Memory | None
    packages: tuple[tuple[str, tuple[int, ...], str], ...]
    repos: Mapping[str, str]
    files: Mapping[str, tuple[tuple[str, str], ...]]
    alike: bool
    tokenizers: tuple[Tokenizer, ...]
    ai_toolkit: AiToolkit
    simpletuner: SimpleTuner | None
    kohya: Mapping[str, Kohya]
    runner: str
    in_diffusers: str

    @property
    def lora_names(self) -> str:
        """A pattern of the names in a LoRA that is read back."""
        prefixes, blocks = ("|".join(map(re.escape, words)) for words in (self.lora_prefixes, self.lora_blocks))
        return rf"({prefixes})({blocks})[._].+\.lora_(A|B|down|up)\.weight$"

    @property
    def lora_prefix(self) -> str:
        """What a LoRA's file writes before the name of a Linear."""
        return self.lora_prefixes[0]

    @property
    def class_name(self) -> str:
        """The class of its transformer; "" where that is not known here."""
        return "" if self.transformer is None else self.transformer.name

    def is_known_to(self, trainer: str) -> bool:
        """Whether it is said here how this trainer opens the files of such a model; of a plug-in's, as ai-toolkit."""
        kohya = {name: one for name, one in self.kohya.items() if one.files}
        of_others = {"SimpleTuner": self.simpletuner, "sd-scripts": None, "musubi-tuner": None, **kohya}
        return of_others.get(trainer, self.loader) is not None

    def loader_of(self, trainer: str) -> Loader | None:
        """What this trainer opens of such a model, where its components are not files of their own."""
        own = {"SimpleTuner": self.simpletuner.loader if self.simpletuner else None}
        return own.get(trainer) or (None if trainer in self.kohya else self.loader)

    def is_quantized(self, name: str) -> bool:
        """Whether the Linear of this name is stored in a quantized format: never embedders or the head."""
        return is_within(name, self.quantized_blocks)

    def targets(self, *, refiners: bool = False) -> tuple[str, ...]:
        """The lists of blocks whose Linears a LoRA covers."""
        return (*self.lora_blocks, *self.refiners) if refiners else self.lora_blocks

    @property
    def convolves(self) -> bool:
        """Whether it is a UNet: much is computed between its blocks, a LoRA covers convolutions, too, and what is
        published of one class differs in depth.
        """
        return self.memory is not None and self.memory.whole

    @property
    def knows_loras(self) -> bool:
        """Whether finished LoRAs of it are known by its names: it is of diffusers' class, where there is one."""
        return self.transformer is not None and not self.in_diffusers

    @property
    def diffuses(self) -> bool:
        """Whether noise is mixed in by a table of betas; else the model is made by flow matching."""
        return "beta_schedule" in self.scheduler({})
