"""Several connected processes for the tests, forked from a server that has imported the heavy packages once."""

from __future__ import annotations

import multiprocessing
import os
import sys
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from zdoctor.doctor.train.distributed import ranks as ranks_module
from zdoctor.doctor.train.distributed.launcher import _free_port
from zdoctor.doctor.train.distributed.ranks import Ranks, join_process_group, leave_process_group

PRELOAD = [
    "torch",
    "torch.distributed.fsdp",
    "diffusers.models.transformers.transformer_z_image",
    "zdoctor.doctor.train.training_run",
]
# From where pytest's name of this module is found, whatever the checkout's folder is called.
ROOT = str(Path(__file__).parents[__name__.count(".")])
PATIENCE = 240.0
Work = Callable[..., Any]


class Together:
    """The processes that do `work(ranks, *words)`, one for each rank."""

    def __init__(self, count: int, work: Work, *words: Any, patience: float = 600.0) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(PRELOAD)
        if ROOT not in sys.path:
            sys.path.append(ROOT)
        where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port()), "WORLD_SIZE": str(count)}
        self.ends: list[Connection] = []
        self.processes: list[Any] = []
        for rank in range(count):
            ours, theirs = context.Pipe()
            own = {**where, "RANK": str(rank), "LOCAL_RANK": str(rank), "ZDOCTOR_CACHE": os.environ["ZDOCTOR_CACHE"]}
            self.ends.append(ours)
            given = (theirs, own, patience, work, words)
            self.processes.append(context.Process(target=_work, args=given))
            self.processes[-1].start()
            theirs.close()

    def answers(self) -> list[Any]:
        """What each returned, or the text of what it raised; None for one that was killed."""
        found = [self.answer(rank) for rank in range(len(self.ends))]
        for process in self.processes:
            process.join()
        return found

    def answer(self, rank: int) -> Any:
        """A hang fails the test: the limits of a run are hours."""
        if not self.ends[rank].poll(PATIENCE):
            self.end()
            raise AssertionError(f"Process {rank} does not answer.")
        try:
            return self.ends[rank].recv()
        except EOFError:
            return None

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.join()


def _work(end: Connection, own: dict[str, str], patience: float, work: Work, words: tuple[Any, ...]) -> None:
    import torch

    os.environ.update(own)
    ranks_module.STEP_PATIENCE = timedelta(seconds=patience)
    torch.set_num_threads(1)
    ranks: Ranks = join_process_group(cuda=False)
    try:
        end.send(work(ranks, *words))
    except Exception as error:
        end.send(f"{error}\n{traceback.format_exc()}")
    leave_process_group()
