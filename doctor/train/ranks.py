"""The processes of one run, as torchrun or our own launcher started them: what they tell each other.

Every process goes through the same steps in the same order; process 0 also saves, paints and speaks. Words go over
gloo on the CPU, gradients over NCCL where the weights are on GPUs. Torch is imported only for more than one process.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from .errors import TrainError

if TYPE_CHECKING:
    from torch import nn

T = TypeVar("T")
# Process 0 encodes the dataset while the others wait. A process that ends is noticed at once, not by this limit.
PATIENCE = timedelta(hours=6)


class Lost(TrainError):
    """Another process of the run is gone."""


@dataclass(frozen=True)
class Ranks:
    """This process is `rank` of `size`, `local` counts within its `node`. Alone, nothing here does anything."""

    rank: int = 0
    size: int = 1
    local: int = 0
    node: int = 0

    @property
    def first(self) -> bool:
        return self.rank == 0

    def exchange(self, value: T) -> list[T]:
        """What every process gave, by rank. Returns when all have come here. Raises Lost."""
        if self.size == 1:
            return [value]
        import torch.distributed as dist

        values: list[Any] = [None] * self.size
        with self._noticing():
            dist.all_gather_object(values, value)
        return values

    def share(self, value: T) -> T:
        """What process 0 gave. Raises Lost."""
        if self.size == 1:
            return value
        import torch.distributed as dist

        values: list[Any] = [value]
        with self._noticing():
            dist.broadcast_object_list(values, src=0)
        return values[0]  # type: ignore[no-any-return]

    def any(self, value: bool) -> bool:
        """Whether it is true in one of the processes. Raises Lost."""
        return value if self.size == 1 else self.total(float(value)) > 0

    def total(self, value: float) -> float:
        """The sum over the processes, the same in each. Raises Lost."""
        if self.size == 1:
            return value
        import torch
        import torch.distributed as dist

        number = torch.tensor([value], dtype=torch.float64)
        with self._noticing():
            dist.all_reduce(number)
        return number.item()

    def add_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Make every gradient the sum over the processes; one that had nothing to do counts as zero. Raises Lost."""
        if self.size == 1:
            return
        import torch
        import torch.distributed as dist

        owners = list(parameters)
        parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in owners]
        flat = torch.cat([part.reshape(-1).float() for part in parts])
        with self._noticing():
            dist.all_reduce(flat)
        for owner, part in zip(owners, torch.split(flat, [p.numel() for p in owners]), strict=True):
            owner.grad = part.view_as(owner).to(owner.dtype)

    def mine(self, before: int, count: int) -> list[int]:
        """Which of `count` samples are this process's, `before` of the same step having been dealt out already."""
        return [place for place in range(count) if (before + place) % self.size == self.rank]

    def same(self, facts: Mapping[str, str]) -> None:
        """Raise TrainError naming the first process whose `facts` are not those of process 0."""
        every = self.exchange(dict(facts))
        for rank, others in enumerate(every):
            for key, value in every[0].items():
                if others.get(key) != value:
                    raise TrainError(
                        f"Process {rank} has another {key} than process 0 ({others.get(key)} against {value}). Give "
                        "every machine the same files."
                    )

    @contextmanager
    def _noticing(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            raise Lost(
                f"Another process of this run is gone (process {self.rank} of {self.size} noticed)."
            ) from error


def joined(*, cuda: bool) -> Ranks:
    """The processes that the environment tells of (torchrun's variables), connected; alone without them."""
    size = int(os.environ.get("WORLD_SIZE") or 1)
    if size == 1 or "RANK" not in os.environ:
        return Ranks()
    import torch
    import torch.distributed as dist

    if not dist.is_initialized():
        nccl = cuda and torch.cuda.is_available() and dist.is_nccl_available()
        try:
            dist.init_process_group("cpu:gloo,cuda:nccl" if nccl else "gloo", timeout=PATIENCE)
        except (RuntimeError, ValueError, OSError) as error:
            raise TrainError(f"The {size} processes of the run do not find each other ({error}).") from error
    return Ranks(
        int(os.environ["RANK"]),
        size,
        int(os.environ.get("LOCAL_RANK") or 0),
        int(os.environ.get("GROUP_RANK") or 0),
    )


def leave() -> None:
    """Say goodbye to the other processes, if there are any."""
    if int(os.environ.get("WORLD_SIZE") or 1) > 1:
        import torch.distributed as dist

        if dist.is_initialized():
            dist.destroy_process_group()


def gathered(reports: Sequence[tuple[int, int, Sequence[str]]]) -> list[str]:
    """One line for each thing that is not green; `reports` are (node, rank, lines) of the processes.

    What several processes of a node say alike is said once.
    """
    nodes = len({node for node, _, _ in reports})
    places: dict[tuple[int, str], list[int]] = {}
    for node, rank, lines in reports:
        for line in lines:
            places.setdefault((node, line), []).append(rank)
    return [
        f"{f'node {node}' if nodes > 1 else 'process ' + ', '.join(map(str, ranks))}: {line}"
        for (node, line), ranks in sorted(places.items(), key=lambda place: (place[0][0], place[1]))
    ]
