"""A user's own training script: what its syntax tree shows of activation checkpointing, and what one step of it did,
in a process of its own. Plain numbers and names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from .checkout import Edit
from .record import dataclass
from .run import Where

SCRIPT = "training script"  # stands for a trainer: the rules about scripts are for these alone

Fed = Literal["yes", "perhaps", "no"]


@dataclass(frozen=True)
class Checkpoint:
    """A call that checkpoints activations.

    `reentrant` is what the call says: None when it says nothing, "?" when that is not a constant. `wraps` is the
    source of what is recomputed; `whole` when that is a model and no block of one. `fed` says whether an input
    requires a gradient: "perhaps" when one may come out of a trained layer. `skips_first`: another iteration of the
    same loop runs its block without checkpointing. `edit` makes the call one that is not re-entrant.
    """

    where: Where
    api: Literal["torch", "deepspeed"]
    called: str
    wraps: str
    whole: bool
    fed: Fed
    reentrant: bool | Literal["?"] | None
    skips_first: bool = False
    edit: Edit | None = None

    @property
    def may_be_reentrant(self) -> bool:
        """torch checkpoints re-entrantly where nothing else is said, DeepSpeed always does."""
        return self.api == "deepspeed" or self.reentrant in (True, None)


@dataclass(frozen=True)
class Forced:
    """`requires_grad_(True)` on something that must have a gradient by itself: an output, or the loss.

    `fed`: as in the re-entrant Checkpoint that it came out of. `is_loss`: it stands before its own backward.
    """

    where: Where
    name: str
    fed: Fed = "no"
    is_loss: bool = False


@dataclass(frozen=True)
class Enabled:
    """`gradient_checkpointing_enable` with use_reentrant=True; `after_peft` when the adapter was there before."""

    where: Where
    edit: Edit
    after_peft: bool


@dataclass(frozen=True)
class DeepSpeedConfig:
    """What a DeepSpeed config says, in the script or in a JSON file beside it."""

    where: Where
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class Script:
    """`input_grads`: something makes the inputs require gradients for the whole model. `partly_frozen`: only some
    parameters are trained (LoRA, PEFT, requires_grad_(False)). `flow` names the flow-matching model or scheduler that
    the script uses, "" for none; `half` are the places that choose fp16. `vision`: it names a model of transformers
    that reads pictures.
    """

    checkpoints: tuple[Checkpoint, ...] = ()
    forced: tuple[Forced, ...] = ()
    enabled: tuple[Enabled, ...] = ()
    input_grads: bool = False
    partly_frozen: bool = False
    flow: str = ""
    vision: bool = False
    half: tuple[Where, ...] = ()
    deepspeed: tuple[DeepSpeedConfig, ...] = ()
    uses_deepspeed: bool = False


@dataclass(frozen=True)
class MicroStep:
    """`stage` is the last one that was begun; `failed` says how it ended there, "" when all went through.

    `why`, `do` and `avoid` explain the failure where it is known, `line` is that of the script where it happened.
    `trainable` are the names of all parameters with requires_grad, the other tuples are some of them: `missing` got
    no gradient (None), `zero` only zeros, in two steps, `infinite` a gradient that is not finite, `broken` a value
    after the step that is not; `unmoved` had a gradient and were not changed by the optimizer, `half` are in fp16.
    `loss` is None when there was none; `detached` when no parameter is in its graph, `forced` when it was made to
    require a gradient all the same, `stand_in` when the script gave no loss. Bytes are measured.
    """

    target: str
    stage: str
    failed: str = ""
    why: str = ""
    do: str = ""
    avoid: str = ""
    line: int | None = None
    trainable: tuple[str, ...] = ()
    parameters: int = 0
    missing: tuple[str, ...] = ()
    zero: tuple[str, ...] = ()
    infinite: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()
    half: tuple[str, ...] = ()
    unmoved: tuple[str, ...] = ()
    loss: float | None = None
    detached: bool = False
    forced: bool = False
    stand_in: bool = False
    no_input_grads: bool = False
    warnings: tuple[str, ...] = ()
    optimizer: str = ""
    device: str = ""
    peak_bytes: int = 0
    seconds: float = 0.0
