"""What a case's step holds by the real class of its trainer, SimpleTuner's or one of kohya's, in the sizes it has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from zdoctor.doctor.families import family_of
from zdoctor.doctor.families.record.steps import WHOLE
from zdoctor.doctor.memory.case import Case
from zdoctor.doctor.memory.rehearsal import asked_of
from zdoctor.doctor.model.recipe import Network
from zdoctor.doctor.train.rehearsal.inputs import Batch
from zdoctor.doctor.train.rehearsal.step import Step, rehearsed
from zdoctor.doctor.train.rehearsal.watch import Held
from zdoctor.maintenance.kohya_classes import AUTOCAST
from zdoctor.maintenance.of_trainers import OF_TRAINERS as OF
from zdoctor.maintenance.of_trainers import own_of_trainer


def held_by_trainer(
    case: Case, name: str, changed: Mapping[str, Any], *, steps: int = 1, exact: bool = False
) -> Held:
    """Of the class "TRAINER/CLASS"; `changed` is what differs from its first published config in SimpleTuner.

    `exact` is with all that autocast keeps, and without gradients of a step before: kohya's trainers take them away.
    """
    by_simpletuner = name.startswith("SimpleTuner/")
    step = _of_simpletuner(case, name, changed) if by_simpletuner else _of_kohya(case, name)
    AUTOCAST.caches = exact
    try:
        return rehearsed(step, optimizer=_Sgd if exact and not by_simpletuner else None, steps=steps)
    finally:
        AUTOCAST.caches = False


_Sgd = partial(torch.optim.SGD, lr=0.0, foreach=False)


def _of_simpletuner(case: Case, name: str, changed: Mapping[str, Any]) -> Step:
    asked, of = asked_of(case), OF[name]
    batch = Batch(asked.batch, asked.cells, asked.text, tuple(asked.controls))
    network = Network(rank=asked.rank, alpha=float(asked.rank), excluded=of.left_out)
    lists, again = tuple(of.lists), asked.checkpointing
    config = {**of.configs[0], **changed}
    own = own_of_trainer(name, asked.way)
    return Step(name, config, lists, lists, batch, network, asked.way, checkpointing=again, own=own)


def _of_kohya(case: Case, name: str) -> Step:
    asked, of = asked_of(case), case.sizes.of_kohya
    assert of is not None
    _, built = family_of(case.recipe.architecture).kohya[case.run.trainer].classes.get("transformer", ("", None))
    configs = OF[name].configs
    published = built if built in configs else configs[-1 if name.endswith("/Flux2") else 0]
    counts = {key: count for key, (count, *_) in zip(OF[name].lists.values(), case.sizes.swapped, strict=False)}
    lists = of.lists or (WHOLE,)
    trained = [one for one in of.lists if any(linear.startswith(f"{one}.") for linear in case.sizes.linears)]
    trained = [WHOLE] if OF[name].everywhere or not trained else trained
    batch = Batch(asked.batch, asked.cells, asked.text, tuple(asked.controls))
    half, windows = case.recipe.precision.network, case.recipe.network.conv_rank
    way = asked.way + " half" * bool(half) + " windows" * bool(windows)
    network = Network(rank=asked.rank, alpha=float(asked.rank), excluded=OF[name].excluded(way) or of.left_out)
    made = own_of_trainer(name, way)
    again = asked.checkpointing
    step = Step(name, {**published, **counts}, lists, trained, batch, network, way, checkpointing=again, own=made)
    if case.recipe.offload.activations:
        assert made is not None
        step = replace(step, own=replace(made, build=partial(_waiting, made.build)))
    return step


def _waiting(build: Callable[[Mapping[str, Any]], Any], config: Mapping[str, Any]) -> Any:
    """A model of musubi-tuner whose blocks leave what they computed in host memory, where it is not counted."""
    model = build(config)
    utils = import_module("musubi_tuner.utils.model_utils")
    for name, moves in (("to_cpu", _Gone), ("to_device", _Here)):
        setattr(utils, name, partial(_moved, moves))
    model.enable_gradient_checkpointing = partial(model.enable_gradient_checkpointing, True)
    return model


def _moved(moves: Any, given: Any, *device: Any) -> Any:
    return tree_map(lambda one: moves.apply(one) if isinstance(one, Tensor) and one.dim() else one, given)


def _away(like: Tensor) -> Tensor:
    return torch.empty(1, dtype=like.dtype, device="meta").expand(like.shape)


class _Gone(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, given: Tensor) -> Tensor:
        return _away(given)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return torch.empty(gradients[0].shape, dtype=gradients[0].dtype, device="meta")


class _Here(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, given: Tensor) -> Tensor:
        is_here = given.untyped_storage().nbytes() >= given.numel() * given.element_size()
        ctx.is_here = is_here
        return given.view_as(given) if is_here else torch.empty(given.shape, dtype=given.dtype, device="meta")

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0] if ctx.is_here else _away(gradients[0])
