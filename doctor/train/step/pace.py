"""The pace of a run: what a step takes on this card beside what it should take, and why it is slower.

What it should take follows from what is measured here: the operations of one step, counted as they are done, and how
fast this card multiplies large matrices of the same type. A note is made only where a reason was measured, too.
"""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from ..runtime.gpu_failures import unless_out_of_memory

COUNTED, AFTER, SLOW = 3, 20, 1.5
# Of what products alone reach, the share that a whole step should reach.
SHARE = 0.5
SIDE, TIMES = 4096, 16
FULL, MUCH, MOST, LOW = 0.97, 1 << 30, 2 / 3, 0.75
GIB = 1 << 30
CUDA: Any = torch.cuda
# NVML's reasons for a lower clock, by their bits.
WHY = {0x20 | 0x40: "it is too hot", 0x04: "its power limit", 0x80: "its power supply"}


@dataclass(frozen=True)
class Pace:
    """Seconds of a `step`, those `expected`, and what was measured beside them.

    `reading` are the seconds of a step in which its batch was read, `computing` those of them that the processor
    worked. `clock` and `full` are MHz of the card at work and at most, `held` bytes that PyTorch holds of `memory`;
    with `spills` the driver moves to the machine's memory what is beyond. `other` is a process that has `others`
    bytes of the card.
    """

    step: float
    expected: float
    reading: float = 0.0
    computing: float = 0.0
    clock: int = 0
    full: int = 0
    why: str = ""
    held: int = 0
    memory: int = 0
    spills: bool = False
    other: int = 0
    others: int = 0
    plain_attention: bool = False

    def reason(self) -> str:
        """Why the steps are slower than expected; "" where they are not, or nobody knows."""
        if self.step <= SLOW * self.expected:
            return ""
        if self.spills and self.held >= FULL * self.memory > 0:
            held, memory = self.held / GIB, self.memory / GIB
            return (
                f"The run holds {held:.1f} GiB of the card's {memory:.1f}: the driver moves the rest to the memory "
                "of the computer. Lower the resolution or the batch size."
            )
        if self.other and self.others >= MUCH:
            return f"Process {self.other} uses the card, too, and holds {self.others / GIB:.1f} GiB of it."
        if self.reading >= MOST * self.step:
            if self.computing >= self.reading / 2:
                return f"In {self.reading:.1f} s of it the processor prepares the batch: other programs keep it busy."
            return f"In {self.reading:.1f} s of it the batch is read: the disk of the run's folder is slow."
        if self.full and self.clock < LOW * self.full:
            return f"The card runs at {self.clock} of {self.full} MHz ({self.why or 'no reason is told'})."
        if self.plain_attention:
            return "No fused kernel of attention works on this card in this type: all scores go through its memory."
        return ""

    def told(self) -> str:
        """The note of a run whose steps are slow, "" of any other."""
        reason = self.reason()
        return reason and (
            f"A step takes {self.step:.2f} s; by what this card's products reach here it should take about "
            f"{self.expected:.2f} s. {reason}"
        )


class Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the floating-point operations of products, convolutions and attention, as PyTorch's table has them."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        from torch.utils.flop_counter import flop_registry

        self.known: Any = flop_registry
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if (of := self.known.get(func._overloadpacket)) is not None:
            with suppress(Exception):
                self.count += of(*args, **(kwargs or {}), out_val=found)
        return found


@dataclass
class PaceWatch:
    """Watches the first steps of a start on a card; tells once, after AFTER of them, what is slow."""

    device: torch.device
    dtype: torch.dtype
    compiled: bool
    note: Callable[[str], None]
    spent: list[float]  # seconds that reading took so far, and those of the processor in it
    operations: int = 0
    steps: list[float] = field(default_factory=list)
    reading: list[tuple[float, float]] = field(default_factory=list)

    def step(self) -> AbstractContextManager[None]:
        """Within it a step is made."""
        return self._watched() if self.device.type == "cuda" and len(self.steps) < AFTER else nullcontext()

    @contextmanager
    def _watched(self) -> Iterator[None]:
        counts = len(self.steps) == COUNTED - 1 and not self.compiled
        counter = Operations() if counts else None
        begin, (wall, work) = time.monotonic(), self.spent
        with counter or nullcontext():
            yield
        self.steps.append(time.monotonic() - begin)
        self.reading.append((self.spent[0] - wall, self.spent[1] - work))
        if counter is not None:
            self.operations = counter.count
        if len(self.steps) == AFTER and self.operations:
            with suppress(Exception):  # of whatever a driver does not tell; the run goes on
                if told := self.pace().told():
                    self.note(told)

    def pace(self) -> Pace:
        """What the watched steps and the card say."""
        last = slice(COUNTED, None)
        rate = unless_out_of_memory(lambda: products_rate(self.device, self.dtype))
        if not rate:
            return Pace(0.0, 1.0)
        per, clocks = rate
        walls, works = zip(*self.reading[last] or [(0.0, 0.0)], strict=True)
        return Pace(
            statistics.median(self.steps[last]),
            self.operations / per / SHARE,
            reading=statistics.median(walls),
            computing=statistics.median(works),
            held=CUDA.memory_reserved(self.device),
            memory=CUDA.get_device_properties(self.device).total_memory,
            spills=platform.system() == "Windows" or "microsoft" in platform.release().lower(),
            plain_attention=not has_fused_attention(self.device, self.dtype),
            **clocks,
        )


def products_rate(device: torch.device, dtype: torch.dtype) -> tuple[float, dict[str, Any]]:
    """Returns operations a second of large products, at the card's full clock, and what NVML says amid them."""
    one = torch.ones(SIDE, SIDE, dtype=dtype, device=device)
    torch.mm(one, one)
    CUDA.synchronize(device)
    begin = time.monotonic()
    for _ in range(TIMES):
        torch.mm(one, one)
    said = nvml(device)
    CUDA.synchronize(device)
    rate = 2 * SIDE**3 * TIMES / (time.monotonic() - begin)
    slow = said.get("clock", 0) and said.get("full", 0) / said["clock"]
    return rate * max(1.0, slow), said


def nvml(device: torch.device) -> dict[str, Any]:
    """Returns a card's clocks and the process beside this one that has most of it; {} where NVML does not say."""
    with suppress(Exception):
        import pynvml

        pynvml.nvmlInit()
        card = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{CUDA.get_device_properties(device).uuid}")
        said: dict[str, Any] = {
            "clock": pynvml.nvmlDeviceGetClockInfo(card, pynvml.NVML_CLOCK_SM),
            "full": pynvml.nvmlDeviceGetMaxClockInfo(card, pynvml.NVML_CLOCK_SM),
        }
        bits = pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(card)
        said["why"] = next((words for mask, words in WHY.items() if bits & mask), "")
        held = {one.pid: one.usedGpuMemory or 0 for one in pynvml.nvmlDeviceGetComputeRunningProcesses(card)}
        if held.pop(os.getpid(), None) is not None and held:  # in a container processes have other numbers
            said["other"] = max(held, key=lambda pid: held[pid])
            said["others"] = held[said["other"]]
        return said
    return {}


def has_fused_attention(device: torch.device, dtype: torch.dtype) -> bool:
    """Tells whether a kernel takes attention forward and backward without keeping all scores."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    one = torch.ones(1, 1, 64, 128, device=device, dtype=dtype, requires_grad=True)
    kinds = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]
    try:
        with sdpa_kernel(kinds):
            found: Tensor = nn.functional.scaled_dot_product_attention(one, one, one)
            found.sum().backward()  # type: ignore[no-untyped-call]
    except RuntimeError:
        return False
    return True
