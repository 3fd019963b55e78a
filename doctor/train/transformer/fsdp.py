"""FSDP2 shards the frozen base over the processes of one run, for bases that one card cannot hold.

Of every tensor of a block each process keeps some rows, the same that `fully_shard` would give it. A block is put
together for as long as it computes. What is trained is whole in every process, and so is the little outside the
blocks.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ..distributed.ranks import Ranks
from ..weights.safetensors_files import TensorEntry
from ..weights.training_adapter import LoraDelta


@dataclass(frozen=True)
class ShardPlan:
    """The plan says who keeps what: tensors of the `blocks`, by their names, are sharded over `ranks`."""

    ranks: Ranks
    blocks: Sequence[str]

    def covers(self, name: str) -> bool:
        return name.startswith(tuple(f"{block}." for block in self.blocks))

    def rows(self, count: int) -> tuple[int, int]:
        """Returns the first of this process's rows of `count`, and the one after its last."""
        each = -(-count // self.ranks.size)
        start = min(count, self.ranks.rank * each)
        return start, min(count, start + each)

    def part(self, entry: TensorEntry) -> TensorEntry:
        """Returns what this process keeps of a tensor in a file."""
        return entry.rows(*self.rows(entry.shape[0])) if self.covers(entry.name) else entry

    def delta(self, name: str, delta: LoraDelta) -> LoraDelta:
        """Returns this process's rows of what an adapter adds to the Linear of this name."""
        start, stop = self.rows(delta.up.shape[0])
        return replace(delta, up=delta.up[start:stop]) if self.covers(name) else delta


def shard_model(model: nn.Module, values: Mapping[str, Tensor], shares: ShardPlan, device: torch.device) -> None:
    """Gives every parameter of the blocks, which is on meta, this process's rows of it in `values`.

    From then on every call of the model is one of all processes together.
    """
    # Flux's blocks return views; nothing changes them in place.
    warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view tensor", UserWarning)
    from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import DTensor, Shard

    if shares.ranks.group is None:
        mesh = init_device_mesh(device.type, (shares.ranks.size,))
    else:
        mesh = DeviceMesh.from_group(shares.ranks.group, device.type)
    whole = {value for name, value in model.named_parameters() if not shares.covers(name)}
    for name in shares.blocks:
        fully_shard(model.get_submodule(name), mesh=mesh, reshard_after_forward=True)
    fully_shard(model, mesh=mesh, ignored_params=whole)  # it keeps nothing; it lets the next block come in advance
    placed: Any = DTensor
    for name, parameter in list(model.named_parameters()):
        if shares.covers(name):
            rows = placed.from_local(
                values[name], mesh, [Shard(0)], run_check=False, shape=parameter.shape, stride=parameter.stride()
            )
            parent, _, leaf = name.rpartition(".")
            setattr(model.get_submodule(parent), leaf, nn.Parameter(rows, requires_grad=False))


def shard_note(model: nn.Module, ranks: Ranks) -> str:
    """Returns how much of the base this process keeps, for people."""
    kept, whole = (
        sum(local_shard(value).nbytes for value in model.parameters()),
        sum(p.nbytes for p in model.parameters()),
    )
    return (
        f"The base is shared out over {ranks.size} processes (FSDP2): each keeps {kept / 1e6:.1f} MB of its "
        f"{whole / 1e6:.1f} MB, and one block at a time is put together."
    )


def local_shard(value: Tensor) -> Tensor:
    """Returns what this process keeps of a parameter."""
    from torch.distributed.tensor import DTensor

    return value.to_local() if isinstance(value, DTensor) else value
