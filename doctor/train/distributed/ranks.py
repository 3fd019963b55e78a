"""The ranks of one run, as torchrun or our own launcher started them, exchange values and gradients.

Every process goes through the same steps in the same order; process 0 also saves, paints and speaks. Words go over
gloo on the CPU, gradients over NCCL where the weights are on GPUs. Torch is imported only for more than one process.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from ..runtime.train_error import TrainError

if TYPE_CHECKING:
    from torch import nn

T = TypeVar("T")
# A process that ends is noticed at once; these limits are for one that neither goes on nor ends. Process 0 encodes
# the dataset, evaluates and paints while the others wait; within a step all do the same.
PATIENCE = timedelta(hours=6)
STEP_PATIENCE = timedelta(minutes=10)
# What NCCL calls failures of this process or machine: its card, its memory, /dev/shm. A lost peer is "remote" to it.
OWN_FAILURES = ("ncclUnhandledCudaError", "ncclSystemError", "ncclInternalError", "ncclInvalidUsage")


class RankLost(TrainError):
    """Another process of the run is gone or, when `silent`, has not answered for too long."""

    silent = False


@dataclass(frozen=True)
class Ranks:
    """This process is `rank` of `size`; `local` counts within its `node`. Alone, nothing here does anything.

    With `sharded` the base is shared out (transformer/fsdp.py): every call of the model is one of all processes
    together. What is exchanged within a step goes over `group`, torch's default one if None.
    """

    rank: int = 0
    size: int = 1
    local: int = 0
    node: int = 0
    sharded: bool = False
    group: Any = None

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, which saves and speaks."""
        return self.rank == 0

    def all_gather(self, value: T) -> list[T]:
        """Returns what every rank gave, in their order, once all have come here. Raises RankLost."""
        if self.size == 1:
            return [value]
        import torch.distributed as dist

        values: list[Any] = [None] * self.size
        with self.noticing_lost_ranks():
            dist.all_gather_object(values, value)
        return values

    def broadcast(self, value: T) -> T:
        """Returns what rank 0 gave. Raises RankLost."""
        if self.size == 1:
            return value
        import torch.distributed as dist

        values: list[Any] = [value]
        with self.noticing_lost_ranks():
            dist.broadcast_object_list(values, src=0)
        return values[0]  # type: ignore[no-any-return]

    def any_rank(self, value: bool) -> bool:
        """Tells whether the value is true in one of the ranks, of which one may come late. Raises RankLost."""
        return value if self.size == 1 else self._sum(float(value), None) > 0

    def agreed(self, asked: Callable[[], bool]) -> Callable[[], bool]:
        """Returns `asked` as all ranks act on it together, once it is true in one; then all take part in
        every call.
        """
        return (lambda: self.any_rank(asked())) if self.sharded else asked

    def sum(self, value: float) -> float:
        """Returns the sum over the ranks within a step, the same in each. Raises RankLost."""
        return value if self.size == 1 else self._sum(value, self.group)

    def _sum(self, value: float, group: Any) -> float:
        import torch
        import torch.distributed as dist

        number = torch.tensor([value], dtype=torch.float64)
        with self.noticing_lost_ranks():
            dist.all_reduce(number, group=group)
        return number.item()

    def all_reduce_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Makes every gradient the sum over the ranks; one that had nothing to do counts as zero. Raises RankLost."""
        if self.size == 1:
            return
        import torch
        import torch.distributed as dist

        owners = list(parameters)
        parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in owners]
        flat = torch.cat([part.reshape(-1).float() for part in parts])
        with self.noticing_lost_ranks():
            dist.all_reduce(flat, group=self.group)
        if flat.is_cuda:
            torch.cuda.synchronize()
            self.sum(0.0)  # what NCCL gives up on looks like a sum; gloo knows
        for owner, part in zip(owners, torch.split(flat, [p.numel() for p in owners]), strict=True):
            owner.grad = part.view_as(owner).to(owner.dtype)

    def own_samples(self, before: int, count: int) -> list[int]:
        """Returns which of `count` samples are this rank's, `before` of the step having been dealt out already."""
        return [place for place in range(count) if (before + place) % self.size == self.rank]

    def check_same(self, facts: Mapping[str, str]) -> None:
        """Raises TrainError naming the first rank whose `facts` are not those of rank 0."""
        every = self.all_gather(dict(facts))
        for rank, others in enumerate(every):
            for key, value in every[0].items():
                if others.get(key) != value:
                    raise TrainError(
                        f"Process {rank} has another {key} than process 0 ({others.get(key)} against {value}). Give "
                        "every machine the same files."
                    )

    @contextmanager
    def noticing_lost_ranks(self) -> Iterator[None]:
        """Raises RankLost for what gloo and NCCL say when another rank does not answer. Also around whole calls."""
        try:
            yield
        except RuntimeError as error:
            import torch.distributed as dist

            text = str(error)
            if not isinstance(error, dist.DistError) and "gloo" not in text:
                raise
            silent = re.search(r"tim(ed|ing) out", text, re.I) is not None
            lost = RankLost(
                f"NCCL fails in process {self.rank} of {self.size} ({text.strip().splitlines()[-1]}). With the "
                "environment variable NCCL_DEBUG=INFO it tells more; --processes 1 trains on one card without it."
                if any(word in text for word in OWN_FAILURES)
                else f"Another process of this run {'does not answer' if silent else 'is gone'} (process {self.rank} "
                f"of {self.size} noticed)."
            )
            lost.silent = silent
            raise lost from error


def join_process_group(*, cuda: bool) -> Ranks:
    """Connects the processes that torchrun's variables tell of; alone without them."""
    size = int(os.environ.get("WORLD_SIZE") or 1)
    if size == 1 or "RANK" not in os.environ:
        return Ranks()
    import torch
    import torch.distributed as dist

    group = None
    if not dist.is_initialized():
        nccl = cuda and torch.cuda.is_available() and dist.is_nccl_available()
        backend = "cpu:gloo,cuda:nccl" if nccl else "gloo"
        # NCCL then gives up after the limit without ending the process, which still has to save.
        os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "2")
        if sys.platform == "win32":  # PyTorch is built without libuv there, and asks for it up to 2.7
            os.environ.setdefault("USE_LIBUV", "0")
        try:
            dist.init_process_group(backend, timeout=PATIENCE)
            group = dist.new_group(backend=backend, timeout=STEP_PATIENCE)
        except (RuntimeError, ValueError, OSError) as error:
            raise TrainError(f"The {size} processes of the run do not find each other ({error}).") from error
    return Ranks(
        int(os.environ["RANK"]),
        size,
        int(os.environ.get("LOCAL_RANK") or 0),
        int(os.environ.get("GROUP_RANK") or 0),
        group=group,
    )


def leave_process_group() -> None:
    if int(os.environ.get("WORLD_SIZE") or 1) > 1:
        import torch.distributed as dist

        if dist.is_initialized():
            dist.destroy_process_group()


@dataclass(frozen=True)
class RankReport:
    """What one rank says before the run begins: its machine, what is not green there, its versions."""

    node: int
    machine: str
    rank: int
    lines: Sequence[str]
    versions: Mapping[str, str]


def gather_reports(reports: Sequence[RankReport]) -> list[str]:
    """Returns one line for each thing that is not green, of all ranks, and for versions unlike rank 0's.

    What several processes of a node say alike is said once.
    """
    nodes = len({said.node for said in reports})
    machines = {said.node: f"node {said.node} ({said.machine})" for said in reports}
    places: dict[tuple[int, str], list[int]] = {}
    for said in reports:
        others = [
            f"{package} is {version} here, and {reports[0].versions.get(package)} in process 0; all need the same."
            for package, version in said.versions.items()
            if version != reports[0].versions.get(package)
        ]
        for line in [*said.lines, *others]:
            places.setdefault((said.node, line), []).append(said.rank)
    return [
        f"{machines[node] if nodes > 1 else 'process ' + ', '.join(map(str, ranks))}: {line}"
        for (node, line), ranks in sorted(places.items(), key=lambda place: (place[0][0], place[1]))
    ]
