"""What one step of a user's own model did, run in a process of its own. Plain numbers and names."""

from __future__ import annotations

from .record import dataclass


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
