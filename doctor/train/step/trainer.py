"""The trainer holds the trained weights and the optimizer, and makes the steps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ...model.run import Run
from ..dataset.batch_sampler import BatchSampler
from ..dataset.dataset_changes import dataset_fingerprint
from ..dataset.training_items import TrainingItem
from ..network.lora import at_scale_one, network_dropout, parameter_groups, trainable_parameters
from ..runtime.progress import Progress
from ..runtime.train_error import TrainError
from ..settings.names import OPTIMIZERS
from ..transformer.transformer_blocks import checkpoint_blocks
from .divergence import explain_divergence
from .ema import ema_decay_at
from .flow_matching import FlowMatchingLoss
from .lr_scheduler import lr_factor
from .optimizer import clip_gradients, make_optimizer, optimizer_step
from .training_state import TrainingState

# A run ends at so many steps without a finite loss among the last so many.
MOST_BAD_STEPS, BAD_WITHIN = 3, 100
MOST_NAMED = 5


class Trainer:
    """The trained weights and what moves them; what step n does follows from the seed and n alone."""

    def __init__(
        self, run: Run, objective: FlowMatchingLoss, items: Sequence[TrainingItem], progress: Progress
    ) -> None:
        recipe = run.recipe
        self.run = run
        self.objective = objective
        self.network = objective.network
        self.ranks = objective.ranks
        self.device = objective.device
        self.items = items
        self.step = 0
        self.losses: list[float] = []
        self.bad: list[int] = []
        # why what is held here is not the outcome of whole steps, so that it must not be saved
        self.unfit = ""
        self.note = progress.note
        self.parameters = trainable_parameters(self.network, objective.family.RECORD.lora_prefix)
        self.optimizer = make_optimizer(
            recipe.optimizer.name,
            recipe.optimizer.settings,
            recipe.learning_rate,
            parameter_groups(run, self.parameters),
            self.device,
            progress.note,
        )
        self.ema = {key: value.detach().clone() for key, value in self.parameters.items()} if recipe.ema.use else None
        self.batches = BatchSampler(run, items, objective.seed)
        if recipe.offload.gradient_checkpointing:
            model: Any = objective.model
            again = checkpoint_blocks(
                model, self.network, run.recipe.offload.interval, random=any(network_dropout(run))
            )
            model.enable_gradient_checkpointing(gradient_checkpointing_func=again)

    @property
    def epoch(self) -> int:
        """The epoch of the last step."""
        return self.batches.epoch(self.step)

    @property
    def rate(self) -> float:
        """The learning rate of the last step."""
        return float(self.optimizer.param_groups[0]["lr"])

    def advance(self) -> float:
        """Makes one optimizer step; returns its mean loss. Raises TrainError when too many lately are not finite."""
        recipe = self.run.recipe
        rate = recipe.learning_rate
        factor = lr_factor(
            recipe.lr_scheduler.name,
            recipe.lr_scheduler.settings,
            rate,
            self.step,
            recipe.steps,
        )
        for group in self.optimizer.param_groups:
            group["lr"] = rate * factor * group.get("times", 1.0)
        total = 0.0
        count = recipe.gradient_accumulation
        for index in range(self.step * count, (self.step + 1) * count):
            with self.ranks.noticing_lost_ranks():
                for part in self.objective.batch_losses(index, self.batches.batch(index)):
                    loss = part / count
                    loss.backward()  # type: ignore[no-untyped-call]
                    total += loss.item()
        total = self.ranks.sum(total)  # first, over gloo, which notices a process that is gone
        self.ranks.all_reduce_gradients(self.parameters.values())
        norm = clip_gradients(self.run, list(self.parameters.values()))
        if math.isfinite(total) and math.isfinite(norm.item()):
            self.unfit = "The optimizer was changing the weights just then, so they are not saved."
            optimizer_step(self.optimizer)
            self._follow()
        else:
            self.bad = [*(step for step in self.bad if step > self.step - BAD_WITHIN), self.step]
        self.optimizer.zero_grad(set_to_none=True)
        self.losses.append(total)
        self.step += 1
        self.unfit = ""
        if self.bad[-1:] == [self.step - 1]:
            if len(self.bad) >= MOST_BAD_STEPS:
                self.unfit = "What has diverged is not saved."
                raise TrainError(self._diagnosis())
            self.note(
                f"The loss or a gradient of step {self.step} is not a finite number, so the step changes nothing "
                f"(pictures: {self._pictures()}). At the third such step within {BAD_WITHIN} the run ends."
            )
        return total

    def weights(self) -> dict[str, Tensor]:
        """Returns what is saved: the EMA where one is kept, else the trained weights; to be used at scale 1."""
        values = dict(self.ema) if self.ema is not None else {k: v.detach() for k, v in self.parameters.items()}
        scale = self.run.recipe.network.scale
        return values if scale == 1.0 else at_scale_one(values, scale)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Runs the block with the saved weights in the model, and without dropout."""
        kept = {key: value.detach().clone() for key, value in self.parameters.items()} if self.ema else {}
        for module in self.network.values():
            module.eval()
        if self.ema is not None:
            self._set(self.ema)
        try:
            yield
        finally:
            for module in self.network.values():
                module.train()
            if self.ema is not None:
                self._set(kept)

    def state(self, identity: dict[str, str], held: Sequence[TrainingItem]) -> TrainingState:
        """Returns the state after the last step."""
        return TrainingState(
            identity=identity,
            seed=self.objective.seed,
            step=self.step,
            losses=list(self.losses),
            lora={key: value.detach().cpu() for key, value in self.parameters.items()},
            optimizer=self.optimizer.state_dict(),
            ema=None if self.ema is None else {key: value.cpu() for key, value in self.ema.items()},
            held_out=len(held),
            held=[item.picture.digest for item in held],
            optimizer_kind=type(self.optimizer).__name__,
            captions=dataset_fingerprint([*self.items, *held]),
            bad=list(self.bad),
        )

    def restore(self, state: TrainingState) -> None:
        """Goes back to a saved state."""
        self._set(state.lora)
        self._restore_optimizer(state)
        if self.ema is not None:
            start = state.ema if state.ema is not None else state.lora
            self.ema = {key: value.to(self.device) for key, value in start.items()}
        self.step = state.step
        self.losses = list(state.losses)
        self.bad = list(state.bad)

    def _restore_optimizer(self, state: TrainingState) -> None:
        """With the settings of the config as it is now; another optimizer begins anew."""
        kind = type(self.optimizer).__name__
        if state.optimizer_kind not in ("", kind):
            self.note(
                f"The saved state is of the optimizer {state.optimizer_kind}, and this run has {kind}: it begins "
                "without the averages of earlier gradients; the LoRA goes on."
            )
            return
        own = OPTIMIZERS[self.run.recipe.optimizer.name]
        settings = [{key: group[key] for key in own if key in group} for group in self.optimizer.param_groups]
        self.optimizer.load_state_dict(state.optimizer)
        for group, values in zip(self.optimizer.param_groups, settings, strict=True):
            group.update(values)

    def _set(self, values: Mapping[str, Tensor]) -> None:
        with torch.no_grad():
            for key, parameter in self.parameters.items():
                parameter.copy_(values[key])

    def _follow(self) -> None:
        share = None if self.ema is None else ema_decay_at(self.run, self.step + 1)
        if self.ema is None or share is None:
            return
        with torch.no_grad():
            for key, value in self.ema.items():
                value.lerp_(self.parameters[key], 1.0 - share)

    def _diagnosis(self) -> str:
        steps = ", ".join(str(step + 1) for step in self.bad)
        lead = f"The loss or a gradient was not a finite number at the steps {steps} (pictures: {self._pictures()})."
        return f"{lead} {explain_divergence(self.run, self.objective.model, self.parameters)}"

    def _pictures(self) -> str:
        """Of the steps without a finite loss."""
        count = self.run.recipe.gradient_accumulation
        batches = (self.batches.batch(step * count + part) for step in self.bad for part in range(count))
        names = list(dict.fromkeys(item.picture.file.name for batch in batches for item in batch))
        return ", ".join(names[:MOST_NAMED]) + (", …" if len(names) > MOST_NAMED else "")
