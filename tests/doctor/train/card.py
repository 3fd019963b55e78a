"""A device that is not the CPU where there is no other: its tensors compute on the CPU, and may not meet the CPU's.

    python -m zdoctor.tests.doctor.train.card  < [{"run": {…}, "model": …, "adapter": …, "images": …, "output": …}]

A process of its own, because PyTorch takes the new device for the machine's accelerator from then on. `run` holds
changes of RUN, "control" the folder of control images; the answer, the last line, is for each the losses, the
evaluations, the files of the samples, how many tensors were on the card as each phase began, how often it gave free
memory back, and how often the CPU had waited for the card by the end of each step.
With "encoded" what the run of that output folder encoded is used again. With "fails", (a step, what CUDA says), the
card works no more after that step, and the answer is its error.
"""

from __future__ import annotations

import gc
import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from zdoctor.doctor.model.recipe import SamplePrompt
from zdoctor.doctor.train import Job, TrainError, train
from zdoctor.doctor.train.settings.names import CACHE

from .patient import DATASET, Recorder, run_with

CARD = "card:0"
COPIES = ("aten::_to_copy", "aten::copy_")
# What gives numbers to the CPU, or tensors whose size the card has to tell.
TELLING = ("aten::_local_scalar_dense", "aten::nonzero", "aten::equal", "aten::masked_select", "aten::_unique2")
emptied: list[None] = []  # one for each time that the card gave back what is free
waited: list[str] = []  # what the CPU had to wait for: numbers that it asked the card for
failed: list[str] = []  # what the card says to whatever is asked of it


class OnCard(Tensor):
    """A tensor of the card; `numbers` lie on the CPU."""

    numbers: Tensor

    @staticmethod
    def __new__(cls, numbers: Tensor) -> OnCard:
        made: Any = Tensor._make_wrapper_subclass(
            cls,
            numbers.shape,
            numbers.stride(),
            numbers.storage_offset(),
            dtype=numbers.dtype,
            device=torch.device(CARD),
        )
        made.numbers = numbers
        return made  # type: ignore[no-any-return]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return _computed(func, args, kwargs or {})


class _MadeThere(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """For what is asked for on the card and made of nothing that is there."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _computed(func, args, kwargs or {})


class _Lists(TorchFunctionMode):
    """torch.tensor tells no mode of the dispatcher what it does."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        device = (kwargs or {}).pop("device", None) if func is torch.tensor else None
        made = func(*args, **(kwargs or {}))
        return made if device is None else made.to(device)


def _computed(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    leaves, form = tree_flatten((args, kwargs))
    tensors = [value for value in leaves if isinstance(value, Tensor)]
    there = [value for value in tensors if isinstance(value, OnCard)]
    name = func._schema.name
    if there and failed:
        raise torch.AcceleratorError(failed[0])
    if there and name not in COPIES:
        strangers = [value for value in tensors if value.dim() and not isinstance(value, OnCard)]
        assert not strangers, f"{name} of tensors on the card and on the CPU"
    stays = bool(there) if name != "aten::copy_" else isinstance(args[0], OnCard)
    if (device := kwargs.get("device")) is not None:
        stays = device.type == "card"
        kwargs = {**kwargs, "device": torch.device("cpu") if stays else device}
        leaves, form = tree_flatten((args, kwargs))
    if there and (name in TELLING or (name in COPIES and not stays)):
        waited.append(name)
    numbers = [value.numbers if isinstance(value, OnCard) else value for value in leaves]
    args, kwargs = tree_unflatten(numbers, form)
    if name == "aten::_conj":  # a mark on the tensor, which nothing below this heeds
        func = torch.ops.aten.conj_physical.default
    known = {id(value.numbers): value for value in there}

    def placed(value: Any) -> Any:
        if not isinstance(value, Tensor) or not stays:
            return value
        same = known.get(id(value))  # what was changed in place
        return OnCard(value) if same is None else same

    return tree_map(placed, func(*args, **kwargs))


class _Module:
    """What PyTorch asks of a device's module."""

    def is_initialized(self) -> bool:
        return True

    def is_available(self) -> bool:
        return True

    def device_count(self) -> int:
        return 1

    def current_device(self) -> int:
        return 0

    def manual_seed_all(self, seed: int) -> None: ...

    def empty_cache(self) -> None:
        emptied.append(None)

    def _is_in_bad_fork(self) -> bool:
        return False

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16]


class _Watch(Recorder):
    """Also counts the tensors that lie on the card at the beginning of each phase."""

    def __init__(self, at: Callable[[int], None]) -> None:
        super().__init__(at)
        self.there: dict[str, int] = {}
        self.waits: list[int] = []

    def step(self, step: int, total: int, loss: float, rate: float) -> None:
        super().step(step, total, loss, rate)
        self.waits.append(len(waited))

    def phase(self, text: str) -> None:
        self.there[text] = sum(type(value) is OnCard for value in gc.get_objects())


def main() -> None:
    torch.set_num_threads(1)
    _setup_privateuseone_for_python_backend("card", _Module())
    answers: list[Any] = []
    for one in json.load(sys.stdin):
        samples = tuple(SamplePrompt(**sample) for sample in one["run"].pop("samples", ()))
        if one.get("control"):
            one["run"]["datasets"] = (replace(DATASET, control_folders=(one["control"],)),)
        at, words = one.get("fails", (0, ""))
        failed.clear()
        emptied.clear()

        def fail(step: int, at: int = at, words: str = words) -> None:
            failed.extend([words] * (step == at))

        if "encoded" in one:
            shutil.copytree(Path(one["encoded"], CACHE), Path(one["output"], CACHE))
        watch = _Watch(fail)
        try:
            with _MadeThere(), _Lists():  # type: ignore[no-untyped-call]
                job = Job(
                    run_with(**one["run"], samples=samples),
                    Path(one["model"]),
                    {"datasets/0": one["images"]},
                    Path(one["output"]),
                    adapter=one["adapter"] and Path(one["adapter"]),
                    device=CARD,
                    held_out=int("fails" not in one),
                    progress=watch,
                )
                result = train(job)
            parts = result.losses, result.evaluations, result.samples, watch.there, len(emptied), watch.waits
            answers.append(parts)
        except TrainError as error:
            answers.append(str(error))
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
