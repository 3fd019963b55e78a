"""The device memory that a run is predicted to need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .plans import TrainingEffect
from .record import dataclass, field
from .said import AsIs, filled

STEP = "training step"


@dataclass(frozen=True)
class Phase:
    """A phase of a run and its bytes on the device, item by item.

    `mapped` of them are pages of files in the computer's memory: what does not fit is read again when it is used.
    """

    name: str
    items: Mapping[str, int]
    mapped: int = 0

    @property
    def total(self) -> int:
        return sum(self.items.values())


@dataclass(frozen=True)
class Rehearsed:
    """Bytes of a step: at its peak, before it, and by what they are at the peak; and the seconds that it took.

    `reserved` are those that PyTorch's allocator takes from the driver for it.
    """

    peak: int
    static: int
    at_peak: Mapping[str, int]
    seconds: float
    reserved: int = 0


@dataclass(frozen=True)
class Alternative:
    """Settings, by key, that lower the peak to `peak` bytes, at worst to `high`. `effect`: on what is learnt."""

    settings: tuple[tuple[str, Any], ...]
    effect: TrainingEffect
    peak: int
    high: int


@dataclass(frozen=True)
class Elsewhere:
    """Another card, `free` bytes of which are enough, and the environment variables that choose it."""

    device: str
    free: int
    variables: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Memory:
    """Predicted device memory, phase by phase, with the measured budget it is held against.

    Each of the `alternatives` is applied on top of the ones before it. The true peak is expected from `below` bytes
    under the computed one to `margin` above it. CUDA shows `cards` of the same kind, of which the fullest has
    `least_free` bytes left; the transformer's blocks take `blocks` bytes, the largest of them `block`. `elsewhere` is
    where the run would fit, when it does not fit here. `as_published`: parts that are not here were taken so.
    `host_phases` are the bytes that a run for a card holds in the computer's memory in each of its phases there.
    `spill` bytes of the computer's memory take what the card does not hold, at a fraction of its speed.
    """

    device: str
    phases: tuple[Phase, ...]
    total: int
    free: int
    budget_source: str
    assumptions: str
    host_phases: Mapping[str, int] = field(default_factory=dict)
    host_free: int = 0
    alternatives: tuple[Alternative, ...] = ()
    margin: int = 0
    below: int = 0
    cards: int = 1
    least_free: int = 0
    blocks: int = 0
    block: int = 0
    elsewhere: Elsewhere | None = None
    as_published: bool = False
    spill: int = 0

    @property
    def peak(self) -> Phase:
        return max(self.phases, key=lambda phase: phase.total)

    @property
    def host_phase(self) -> str:
        """The phase that holds the most in the computer's memory."""
        return max(self.host_phases, key=self.host_phases.__getitem__, default="")

    @property
    def host_peak(self) -> int:
        return max(self.host_phases.values(), default=0)

    @property
    def hardest(self) -> Phase:
        """The phase with the most that cannot be read again from a file."""
        return max(self.phases, key=lambda phase: phase.total - phase.mapped)

    @property
    def is_host(self) -> bool:
        """Whether the device computes in the computer's own memory."""
        return self.device in ("cpu", "mps")

    @property
    def place(self) -> str:
        """Where memory is free, in words."""
        if not self.is_host:
            return filled("on {device}", {"device": AsIs(self.device)})
        return f"in this computer's memory{', which its GPU shares' if self.device == 'mps' else ''}"

    def sharded(self, count: int) -> int:
        """The peak on each of `count` cards that share the blocks out, two of which are put together at a time."""
        saved = self.blocks - self.blocks // count - 2 * self.block
        return max(phase.total - saved * ("transformer" in phase.items) for phase in self.phases)

    def only_fits_sharded(self, count: int) -> bool:
        """Whether the model may be too large for one card, and `count` of them hold it together."""
        tight = self.peak.total + self.margin > self.free
        return tight and 1 < count <= self.cards and self.sharded(count) + self.margin <= self.least_free

    def fits_all(self) -> bool:
        """Whether each of the cards has room for a process of its own, or all hold the model together."""
        return self.cards == 1 or self.peak.total <= self.least_free or self.only_fits_sharded(self.cards)
