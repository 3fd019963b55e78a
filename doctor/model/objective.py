"""What a step trains towards: the noise levels that are drawn, and the loss."""

from __future__ import annotations

from .record import dataclass


@dataclass(frozen=True)
class TimestepDensity:
    """How a time in [0, 1], the share of noise, is drawn where each is drawn on its own.

    `density` is "uniform", "logit_normal" (the sigmoid of a normal number of `mean` and `spread`) or "mode" (Stable
    Diffusion 3's, by `mode`). `shift` moves it towards noise; four numbers (cells, mu, more cells, mu) make it e to
    the power of mu by the picture's size. `bent`: then what is below a half is squared, and what is above moved
    towards noise as far. Then it is pressed between `low` and `high` or, when `cut`, drawn until it lies there.
    `stepped`: the number is instead how far down a scheduler's table of 1000 shifted times to look, from `low` to
    `high` of the table.
    """

    density: str = "uniform"
    mean: float = 0.0
    spread: float = 1.0
    mode: float = 1.29
    shift: float | tuple[float, float, float, float] = 1.0
    low: float = 0.0
    high: float = 1.0
    bent: bool = False
    cut: bool = False
    stepped: bool = False


@dataclass(frozen=True)
class TimestepSampling:
    """How the noise levels of the steps are drawn: from a table of 1000 by `type`, or one by one from a `density`.

    Of the table those from `first` to `last` are taken; `bell` weighs the even table's losses, `half_bell` only above
    the middle.
    """

    type: str = "sigmoid"
    content_or_style: str = "balanced"
    noise_scheduler: str = "ddpm"
    first: int = 0
    last: int = 999
    bell: bool = False
    half_bell: bool = False
    density: TimestepDensity | None = None


@dataclass(frozen=True)
class GuidanceTarget:
    """The guidance loss: the target lies `low` (to `high`, drawn for each sample) times as far from that of `prompt`.

    `zero` scales the answer to `prompt` to fit the target best, `fading` makes the guidance fall with the noise.
    """

    low: float
    high: float
    prompt: str
    zero: bool
    fading: bool


@dataclass(frozen=True)
class OutputPreservation:
    """What the model must go on answering as it did: the caption with `word` for the trigger; None: no prompt."""

    word: str | None = None
    weight: float = 1.0


@dataclass(frozen=True)
class ConceptSlider:
    """The network moves the answer to `target` from `negative` to `positive`, the other way with its sign turned.

    By `strength` times the way between their own answers; that to `anchor` stays, None: nothing is anchored.
    """

    positive: str = ""
    negative: str = ""
    target: str = ""
    anchor: str | None = None
    strength: float = 3.0
    anchor_strength: float = 1.0

    @property
    def prompts(self) -> tuple[str, ...]:
        """Every prompt that the model is asked with."""
        return self.positive, self.negative, self.target, *([] if self.anchor is None else [self.anchor])


@dataclass(frozen=True)
class Loss:
    """What the prediction is compared with, and how much each difference counts.

    `embedded_guidance` is what a model with such an input is told. With `balanced_masks` the loss of a masked picture
    is as large as another's. `background_weight` is that of an unchanged answer outside the mask. Where there is a
    `slider`, captions have no say.

    "huber" and "smooth_l1" are squares up to about `threshold`. By its schedule that is the same at all noise levels,
    falls with them ("exponential"), or follows the ratio of signal to noise ("snr"); then it is multiplied by
    `threshold_scale`.

    Of models that predict noise: `min_snr_gamma` bounds what a noise level with much signal counts, by its ratio of
    signal to noise; `snr_gamma` divides by that ratio at all levels. 0: neither. `prediction` is "v_prediction" where
    the config says so, "": what the model's scheduler says, as of `zero_terminal_snr`. `noise_offset` is how far the
    mean of each channel of the noise is moved.
    """

    type: str = "mse"
    threshold: float = 0.1
    threshold_schedule: str = "constant"
    threshold_scale: float = 1.0
    max_loss: float | None = None
    regularisation_weight: float = 1.0
    embedded_guidance: float = 1.0
    guidance: GuidanceTarget | None = None
    differential_guidance: float | None = None
    preservation: OutputPreservation | None = None
    slider: ConceptSlider | None = None
    balanced_masks: bool = True
    background_weight: float | None = None
    min_snr_gamma: float = 0.0
    snr_gamma: float = 0.0
    prediction: str = ""
    zero_terminal_snr: bool = False
    noise_offset: float = 0.0
