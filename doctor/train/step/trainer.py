"""The trainer holds the trained weights and the optimizer, and makes the steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ...families.network import file_prefix
from ...model.recipe import Ema
from ...progress import Progress
from ..dataset.batch_sampler import BatchSampler
from ..dataset.dataset_changes import dataset_fingerprint
from ..dataset.training_items import TrainingItem
from ..network.lora import as_saved, network_dropout, parameter_groups, trainable_parameters
from ..runtime.train_error import TrainError
from ..settings.names import OPTIMIZERS
from ..transformer.transformer_blocks import checkpoint_blocks
from .batch_loss import BatchLoss, mixed_seed
from .divergence import explain_divergence
from .lr_scheduler import lr_factor
from .optimizer import as_switched, clip_gradients, make_optimizer, optimizer_step

# A run ends at so many steps without a finite loss among the last so many.
MOST_BAD_STEPS, BAD_WITHIN = 3, 100
MOST_NAMED = 5
# Shares of noise that are validated: in the middle of five equal parts.
VALIDATED = (0.1, 0.3, 0.5, 0.7, 0.9)


@dataclass
class TrainingState:
    """Everything that a resumed run needs; `identity` is what must be the same, in words for the message."""

    identity: dict[str, str]
    seed: int
    step: int
    losses: list[float]
    lora: dict[str, Tensor]
    optimizer: dict[str, Any]
    ema: dict[str, Tensor] | None
    held_out: int = 0
    held: list[str] = field(default_factory=list)  # by the sha256 of their bytes
    optimizer_kind: str = ""  # the name of its class
    captions: dict[str, str] = field(default_factory=dict)  # and what else dataset_changes.py tells of the pictures
    bad: list[int] = field(default_factory=list)  # the last steps whose loss or gradient was not finite


class Trainer:
    """The trained weights and what moves them; what step n does follows from the seed and n alone."""

    def __init__(self, objective: BatchLoss, items: Sequence[TrainingItem], progress: Progress) -> None:
        recipe = self.recipe = objective.recipe
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
        prefix = file_prefix(recipe.network, objective.family.RECORD.lora_prefix)
        own = trainable_parameters(self.network, prefix)
        trained = objective.texts.trained
        networks = {} if trained is None else trained.networks
        of_texts = {name: trainable_parameters(network, "") for name, network in networks.items()}
        self.parameters = {key: value for part in (own, *of_texts.values()) for key, value in part.items()}
        self.optimizer = make_optimizer(
            recipe.optimizer.name,
            recipe.optimizer.settings,
            recipe.learning_rate,
            parameter_groups(recipe.network, own, of_texts, recipe.learning_rate),
            self.device,
            progress.note,
        )
        # schedule-free ones: training goes on at other weights than those that are used
        self.switched = as_switched(self.optimizer)
        if self.switched is not None:
            self.switched.train()
        self.ema = {key: value.detach().clone() for key, value in self.parameters.items()} if recipe.ema.use else None
        self.batches = BatchSampler(recipe, items, objective.seed)
        if recipe.offload.gradient_checkpointing:
            model: Any = objective.model
            random = any(network_dropout(recipe.network))
            again = checkpoint_blocks(model, objective.reached, recipe.offload.interval, random=random)
            model.enable_gradient_checkpointing(gradient_checkpointing_func=again)

    @property
    def epoch(self) -> int:
        return self.batches.epoch(self.step)

    @property
    def rate(self) -> float:
        """The learning rate of the last step."""
        return float(self.optimizer.param_groups[0]["lr"])

    def advance(self) -> float:
        """Makes one optimizer step; returns its mean loss. Raises TrainError when too many lately are not finite."""
        recipe = self.recipe
        rate = recipe.learning_rate
        schedule = recipe.lr_scheduler
        factor = lr_factor(schedule.name, schedule.settings, rate, self.step, recipe.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * factor * group.get("times", 1.0)
        losses: list[Tensor] = []
        count = recipe.gradient_accumulation
        for index in range(self.step * count, (self.step + 1) * count):
            with self.ranks.noticing_lost_ranks():
                for part in self.objective.batch_losses(index, self.batches.batch(index)):
                    loss = part / count
                    loss.backward()  # type: ignore[no-untyped-call]
                    losses.append(loss.detach())
                if self.device.type == "cuda" and index + 1 < recipe.steps * count:
                    self.objective.read_ahead(index + 1, self.batches.batch(index + 1))
        several = self.ranks.size > 1
        # first, over gloo, which notices a process that is gone
        total = self.ranks.sum(sum(loss.item() for loss in losses)) if several else 0.0
        self.ranks.all_reduce_gradients(self.parameters.values())
        bound = clip_gradients(self.recipe, list(self.parameters.values()))
        *parts, norm = torch.stack([*losses, bound]).cpu().tolist()  # the step's one wait for the card
        total = total if several else sum(parts)
        if math.isfinite(total) and math.isfinite(norm):
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
        values = dict(self.ema) if self.ema is not None else self._settled()
        return as_saved(values, self.recipe.network, self.objective.family.RECORD)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Runs the block with the saved weights in the model, and without dropout."""
        kept = {} if self.ema is None and self.switched is None else self._copied()
        for module in self.objective.modules:
            module.eval()
        if self.ema is not None:
            self._set(self.ema)
        elif self.switched is not None:
            self._set(self._settled())
        try:
            yield
        finally:
            for module in self.objective.modules:
                module.train()
            if kept:
                self._set(kept)

    def _copied(self) -> dict[str, Tensor]:
        return {key: value.detach().clone() for key, value in self.parameters.items()}

    def _settled(self) -> dict[str, Tensor]:
        """The weights to be used, which a schedule-free optimizer has elsewhere than those it trains."""
        if self.switched is None:
            return {key: value.detach() for key, value in self.parameters.items()}
        kept = self._copied()
        self.switched.eval()
        settled = self._copied()
        self.switched.train()
        self._set(kept)  # to the bit: going there and back rounds
        return settled

    @torch.no_grad()
    def validation_loss(self, items: Sequence[TrainingItem], stop: Callable[[], bool]) -> float | None:
        """Returns the mean unweighted loss on `items` of the weights that would be saved; None when `stop` said so.

        It can be compared between steps: images, noise and noise levels are the same every time.
        """
        total = 0.0
        with self.averaged():
            for item in items:
                clean = self.objective.latents.get(item).unsqueeze(0)
                for time in VALIDATED:
                    if stop():
                        return None
                    generator = torch.Generator().manual_seed(mixed_seed(item.picture.digest, time))
                    noise = torch.randn(clean.shape, generator=generator)
                    losses = self.objective.unweighted_losses(clean, noise, torch.tensor([time]), [item])
                    total += losses.item()
        return total / (len(items) * len(VALIDATED))

    def state(self, identity: dict[str, str], held: Sequence[TrainingItem]) -> TrainingState:
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
        own = OPTIMIZERS.get(self.recipe.optimizer.name, tuple(self.recipe.optimizer.settings))
        settings = [
            {key: group[key] for key in (*own, "times") if key in group} for group in self.optimizer.param_groups
        ]
        self.optimizer.load_state_dict(state.optimizer)
        for group, values in zip(self.optimizer.param_groups, settings, strict=True):
            group.update(values)

    def _set(self, values: Mapping[str, Tensor]) -> None:
        with torch.no_grad():
            for key, parameter in self.parameters.items():
                parameter.copy_(values[key])

    def _follow(self) -> None:
        share = None if self.ema is None else ema_decay_at(self.recipe.ema, self.step + 1)
        if self.ema is None or share is None:
            return
        with torch.no_grad():
            together: Any = torch._foreach_lerp_  # pyright: ignore[reportPrivateImportUsage]
            together(list(self.ema.values()), [self.parameters[key] for key in self.ema], 1.0 - share)

    def _diagnosis(self) -> str:
        steps = ", ".join(str(step + 1) for step in self.bad)
        lead = f"The loss or a gradient was not a finite number at the steps {steps} (pictures: {self._pictures()})."
        return f"{lead} {explain_divergence(self.recipe, self.objective.model, self.parameters)}"

    def _pictures(self) -> str:
        """Of the steps without a finite loss."""
        count = self.recipe.gradient_accumulation
        batches = (self.batches.batch(step * count + part) for step in self.bad for part in range(count))
        names = list(dict.fromkeys(item.picture.file.name for batch in batches for item in batch))
        return ", ".join(names[:MOST_NAMED]) + (", …" if len(names) > MOST_NAMED else "")


def ema_decay_at(ema: Ema, updates: int) -> float | None:
    """Returns the share of the average that stays after so many updates (from 1); None where it is left as it is.

    Always ema_decay, as in ai-toolkit, or as SimpleTuner has it (training/ema.py of bc8e6ab7): the weights themselves
    as long as its warm-up lasts, then ema_decay; without a warm-up the share rises to it, from 0, 2/11, 3/12, ….
    """
    if ema.warmup is None:
        return ema.decay
    if updates % ema.interval:
        return None
    if ema.warmup > 0:
        return 0.0 if updates < ema.warmup else ema.decay
    return min(updates / (9 + updates), ema.decay) if updates > 1 else 0.0
