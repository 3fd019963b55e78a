"""The recipe: what will be trained, typed, in the words of the field, whichever trainer's config asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from .record import dataclass, field


@dataclass(frozen=True)
class Dataset:
    """One dataset of a run. `key` is the settings prefix, e.g. "datasets/0".

    `captions` says whether a picture is described by the file beside it, by its own name, or by `default_caption`.
    `suffixes` are those of its pictures, `recursive` says whether these may lie in folders inside, `first_line`
    whether no other line of a caption counts, `captionless` whether a picture without a caption file is taken.
    Pictures with a side below `least_side` or fewer pixels than `least_area` are left out.
    """

    key: str
    folder: str | None
    caption_extension: str
    resolutions: tuple[int, ...]
    default_caption: str = ""
    caption_dropout: float = 0.0
    repeats: int = 1
    cache_latents_to_disk: bool = False
    cache_latents: bool = False
    flip_x: bool = False
    flip_y: bool = False
    controls: tuple[str, ...] = ()
    control_folders: tuple[str, ...] = ()
    is_regularisation: bool = False
    captions: Literal["files", "names", "default"] = "files"
    suffixes: tuple[str, ...] = (".jpg", ".jpeg", ".png", ".webp")
    recursive: bool = True
    first_line: bool = False
    captionless: bool = True
    least_side: float = 0.0
    least_area: float = 0.0

    def takes(self, width: int, height: int) -> bool:
        """Whether a picture of this size in pixels is large enough."""
        return min(width, height) >= self.least_side and width * height >= self.least_area


@dataclass(frozen=True)
class SamplePrompt:
    """A prompt that is sampled during the training, with the settings of its picture."""

    prompt: str
    width: int
    height: int
    seed: int
    steps: int
    guidance: float
    negative: str = ""
    control: str | None = None


@dataclass(frozen=True)
class PartFile:
    """One part of a model in a file of its own: the option that names the file, its class, and the config that a
    trainer has for it in its source.

    `when` is the option without which the training itself does not need it, "" for a part that is always opened;
    `loose` says that a folder or a hub id will do as well.
    """

    name: str
    option: str
    class_name: str
    config: Mapping[str, Any]
    when: str = ""
    loose: bool = False
    either: bool = False


@dataclass(frozen=True)
class Network:
    """What is trained beside the frozen model: a LoRA, LoKr or another kind of adapter; `type` is "" without one."""

    type: str = "lora"
    rank: int = 4
    alpha: float = 4.0


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
class TimestepSampling:
    """How the noise levels of the steps are drawn."""

    type: str = "sigmoid"
    content_or_style: str = "balanced"
    noise_scheduler: str = "ddpm"


@dataclass(frozen=True)
class Loss:
    """What the prediction is compared by."""

    type: str = "mse"


@dataclass(frozen=True)
class Ema:
    """The moving average of the trained weights."""

    use: bool = False
    decay: float = 0.999


@dataclass(frozen=True)
class Precision:
    """The number formats of the computation and of the frozen weights; None: not quantized."""

    dtype: str = "fp32"
    quantization: str | None = None
    text_encoder_quantization: str | None = None


@dataclass(frozen=True)
class Offload:
    """What is computed again, or kept in the machine's memory, to spare that of the card."""

    gradient_checkpointing: bool = True


@dataclass(frozen=True)
class Checkpoints:
    """How often the network is saved, in which format, and how many saves are kept (0: all)."""

    every: int = 1000
    dtype: str = "float16"
    keep: int = 5


@dataclass(frozen=True)
class Validation:
    """The prompts that are sampled during the training, and how often."""

    disabled: bool = False
    skip_first: bool = False
    every: int = 100
    prompts: tuple[SamplePrompt, ...] = ()


@dataclass(frozen=True)
class Recipe:
    """What will be trained; what was not written holds the trainer's own default.

    `parts` are those of the model that zdoctor's own runner opens from files of their own.
    """

    architecture: str | None = None
    variant: str | None = None
    base_model: str | None = None
    extras_model: str | None = None
    adapter: str | None = None
    parts: tuple[PartFile, ...] = ()
    datasets: tuple[Dataset, ...] = ()
    trigger_word: str | None = None
    steps: int = 1000
    batch_size: int = 1
    gradient_accumulation: int = 1
    learning_rate: float = 1e-6
    max_grad_norm: float = 1.0
    seed: int | None = None
    cache_text_embeddings: bool = False
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


# Names by which `Run.keys`, records of runs and trackers know the fields of groups; all others are "group.field".
SHORT_NAMES: Mapping[str, str] = {
    "network_type": "network.type",
    "rank": "network.rank",
    "alpha": "network.alpha",
    "optimizer": "optimizer.name",
    "optimizer_settings": "optimizer.settings",
    "scheduler": "lr_scheduler.name",
    "scheduler_settings": "lr_scheduler.settings",
    "noise_scheduler": "timestep_sampling.noise_scheduler",
    "timestep_type": "timestep_sampling.type",
    "content_or_style": "timestep_sampling.content_or_style",
    "loss_type": "loss.type",
    "use_ema": "ema.use",
    "ema_decay": "ema.decay",
    "dtype": "precision.dtype",
    "quantization": "precision.quantization",
    "text_encoder_quantization": "precision.text_encoder_quantization",
    "gradient_checkpointing": "offload.gradient_checkpointing",
    "save_every": "checkpoints.every",
    "save_dtype": "checkpoints.dtype",
    "keep_saves": "checkpoints.keep",
    "disable_sampling": "validation.disabled",
    "skip_first_sample": "validation.skip_first",
    "sample_every": "validation.every",
    "samples": "validation.prompts",
}
_NAMES = {path: name for name, path in SHORT_NAMES.items()}
_GROUPS = (Network, Optimizer, LrScheduler, TimestepSampling, Loss, Ema, Precision, Offload, Checkpoints, Validation)


def by_name(recipe: Recipe) -> dict[str, Any]:
    """Every field of a recipe and of its groups, by its short name where it has one."""
    made: dict[str, Any] = {}
    for name, value in vars(recipe).items():
        if type(value) in _GROUPS:
            paths = {f"{name}.{inner}": one for inner, one in vars(value).items()}
            made |= {_NAMES.get(path, path): one for path, one in paths.items()}
        else:
            made[name] = value
    return made
