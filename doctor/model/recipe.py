"""The recipe: what will be trained, typed, in the words of the field, whichever trainer's config asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .datasets import Dataset
from .objective import Loss, TimestepSampling
from .record import dataclass, field


@dataclass(frozen=True)
class SamplePrompt:
    """A prompt that is sampled during the training, with the settings of its picture.

    `control` is the image that it edits, `beside` are others.
    """

    prompt: str
    width: int
    height: int
    seed: int
    steps: int
    guidance: float
    negative: str = ""
    control: str | None = None
    frames: int = 1
    beside: tuple[str, ...] = ()

    @property
    def controls(self) -> tuple[str, ...]:
        return (*([self.control] if self.control else []), *self.beside)


@dataclass(frozen=True)
class PartFile:
    """One part of a model in a file of its own: the option that names the file, its class, and the config that a
    trainer has for it in its source.

    `when` is the option without which the training itself does not need it, "" for a part that is always opened;
    `loose` says that a folder or a hub id will do as well, `inside` that the first part's file may hold it.
    """

    name: str
    option: str
    class_name: str
    config: Mapping[str, Any]
    when: str = ""
    loose: bool = False
    either: bool = False
    inside: bool = False


@dataclass(frozen=True)
class Network:
    """What is trained beside the frozen model: a LoRA, LoKr or another kind of adapter; `type` is "" without one.

    B @ A is multiplied by `scale`, and B learns `lora_plus_ratio` times as fast as A. Linears that `excluded`, a
    pattern of their names, finds are left out. `refiners`: those of Z-Image's refiners are trained, too; `fused`:
    query, key and value are one Linear beside the three. `narrowed`: the config chooses among the layers in a way of
    its own trainer. A LoKr has `lokr_factor` (-1: two parts that are most alike) but for Linears in whose name a part
    of `lokr_factors` is. A begins with normal numbers of `start_deviation`, 0: with uniform ones. An OFT has `rank`
    blocks, and `alpha` is its constraint.
    Linears that `full`, a pattern of their names, finds are trained as a whole instead. Convolutions that see more
    than one place have a rank of their own, 0: they are not trained; there B @ A is multiplied by `conv_scale`.
    The network begins with the weights of the file `initial_weights`, "": at zero.
    Text encoders get a LoRA, too, where `text_rates` has a learning rate by the component's name; of these B learns
    `text_plus_ratio` times as fast as A.
    """

    type: str = "lora"
    rank: int = 4
    alpha: float = 4.0
    scale: float = 1.0
    lora_plus_ratio: float = 1.0
    dropout: float = 0.0
    rank_dropout: float = 0.0
    module_dropout: float = 0.0
    excluded: str = ""
    narrowed: bool = False
    refiners: bool = False
    fused: bool = False
    lokr_full_rank: bool = True
    lokr_factor: int = -1
    lokr_factors: Mapping[str, int] = field(default_factory=dict)
    initial_weights: str = ""
    start_deviation: float = 0.0
    full: str = ""
    text_rates: Mapping[str, float] = field(default_factory=dict)
    text_plus_ratio: float = 1.0
    conv_rank: int = 0
    conv_scale: float = 1.0


@dataclass(frozen=True)
class Optimizer:
    """The optimizer by its name in lower case, with the settings that are its own."""

    name: str = "adamw"
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class LrScheduler:
    """The learning rate's schedule by name, with the settings that are its own."""

    name: str = "constant"
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Ema:
    """The moving average of the trained weights, brought up to date every `interval` updates.

    `warmup` None: `decay` holds from the start; else it does after so many updates, with 0 it rises by itself.
    """

    use: bool = False
    decay: float = 0.999
    interval: int = 1
    warmup: int | None = None


@dataclass(frozen=True)
class Precision:
    """The number formats of the computation and of the frozen weights; None: not quantized.

    `scaled`: what is quantized has scales, and some of the blocks' Linears are left as they are. `group` numbers
    share a scale of 32 bits, 0: those of a row. `keeps` is what a quantized Linear keeps for backward ("its input"),
    or the trainer's own name of a format of which that is not known. What is trained is in the dtype `network`, "":
    in 32 bits; the VAE in `vae`, "": as all else. `full_attention`: attention is computed without a kernel for it;
    `split_attention`: that of each picture alone, without a mask for what fills up its prompt. `spared` finds the
    Linears that are not quantized, where others of their blocks are. `half_norms`: autocast leaves rms_norm in 16
    bits, as before PyTorch 2.12; None: it is not known of which PyTorch it is.
    """

    dtype: str = "fp32"
    quantization: str | None = None
    text_encoder_quantization: str | None = None
    scaled: bool = False
    group: int = 0
    keeps: str = ""
    network: str = ""
    vae: str = ""
    full_attention: bool = False
    split_attention: bool = False
    spared: str = ""
    half_norms: bool | None = None


@dataclass(frozen=True)
class Offload:
    """What is computed again, or kept in the machine's memory, to spare that of the card.

    Every `interval`-th block is computed again, or of as many the first `segment` together. `share` of the frozen
    blocks' weights waits in host memory, None: none of them; `swapped` is how many blocks change places with those on
    the card. `low_vram`: the parts of the model are loaded one after the other.
    With `activations` what a block that is computed again was given waits in host memory.
    `other` is the option of a trainer that moves weights, or what blocks made, in a way of its own; with `attention`
    what attention keeps for backward waits in host memory.
    """

    gradient_checkpointing: bool = True
    interval: int = 1
    segment: int = 1
    share: float | None = None
    swapped: int = 0
    low_vram: bool = False
    compile: bool = False
    activations: bool = False
    other: str = ""
    attention: bool = False

    @property
    def every_block_again(self) -> bool:
        """Whether each block is computed again."""
        return self.gradient_checkpointing and self.interval == 1


@dataclass(frozen=True)
class Checkpoints:
    """How often the network is saved, in which format, and how many saves are kept (0: all).

    Saves come `every` so many steps, `also_every` so many and every so many epochs. The last one goes to the hub's
    repository `push_to`, "": to none.
    """

    every: int = 1000
    dtype: str = "float16"
    keep: int = 5
    every_epochs: int = 0
    also_every: int = 0
    push_to: str = ""
    push_private: bool = False


@dataclass(frozen=True)
class Validation:
    """The prompts that are sampled during the training, and how often, from `first_step` on.

    `one_size`: two settings hold the size of all prompts.
    """

    disabled: bool = False
    skip_first: bool = False
    every: int = 100
    prompts: tuple[SamplePrompt, ...] = ()
    every_epochs: int = 0
    first_step: int = 0
    one_size: bool = False

    @property
    def painted(self) -> tuple[SamplePrompt, ...]:
        """The prompts, none where sampling is disabled."""
        return () if self.disabled else self.prompts


@dataclass(frozen=True)
class Logging:
    """The trackers that get numbers every so many steps, and under which names; `project` "": the tracker's own."""

    wandb: bool = False
    report_to: tuple[str, ...] = ()
    project: str = "ai-toolkit"
    run_name: str = ""
    every: int = 100


@dataclass(frozen=True)
class Recipe:
    """What will be trained; what was not written holds the trainer's own default.

    `sources` are other places than usual that single components are taken from. `parts` are those of the model that
    zdoctor's own runner opens from files of their own. `epochs`, where it is above 0, counts instead of `steps`.
    Gradients are clipped by `clip_method`, None: by their norm but for optimizers that bound their updates
    themselves. `controls_match`: control images get the size of the picture, not one of their own.
    `literal_captions`: [trigger] stands for nothing in them.
    `mask_padding`: the padding of prompts is masked; `latent_mean`: pictures are encoded without the VAE's noise.
    `tells_crops`: a model that is told a picture's size is told that of the file and the crop, as sd-scripts does.
    """

    architecture: str | None = None
    variant: str | None = None
    base_model: str | None = None
    extras_model: str | None = None
    adapter: str | None = None
    vae: str | None = None
    sources: Mapping[str, str] = field(default_factory=dict)
    parts: tuple[PartFile, ...] = ()
    datasets: tuple[Dataset, ...] = ()
    controls_match: bool = False
    trigger_word: str | None = None
    steps: int = 1000
    epochs: int = 0
    batch_size: int = 1
    gradient_accumulation: int = 1
    learning_rate: float = 1e-6
    max_grad_norm: float = 1.0
    clip_method: str | None = None
    seed: int | None = None
    cache_text_embeddings: bool = False
    unload_text_encoder: bool = False
    train_text_encoder: bool = False
    literal_captions: bool = False
    mask_padding: bool = False
    latent_mean: bool = False
    tells_crops: bool = False
    network: Network = Network()
    optimizer: Optimizer = Optimizer()
    lr_scheduler: LrScheduler = LrScheduler()
    timestep_sampling: TimestepSampling = TimestepSampling()
    loss: Loss = Loss()
    ema: Ema = Ema()
    precision: Precision = Precision()
    offload: Offload = Offload()
    checkpoints: Checkpoints = Checkpoints()
    validation: Validation = Validation()
    logging: Logging = Logging()

    def dataset(self, key: str) -> Dataset | None:
        """The dataset of this settings prefix."""
        return next((dataset for dataset in self.datasets if dataset.key == key), None)
