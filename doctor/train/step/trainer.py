"""The trained weights, the optimizer and what one step does to them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ...model.run import Run
from ..base.blocks import checkpointing
from ..data.changes import captions_of
from ..data.items import Item
from ..data.masks import Masks, balanced
from ..data.order import Order
from ..encode.latents import Latents
from ..encode.texts import Texts
from ..errors import TrainError
from ..families import family_of
from ..network.lora import Network, at_scale_one, dropout, groups, scale, trainable
from ..output.save import State
from ..processes.ranks import Ranks
from ..progress import Progress
from ..settings.names import INTERVAL, OPTIMIZERS
from .diagnose import not_finite
from .loss import background, background_weight, differential, guidance, guided, miss
from .optimize import bound_gradients, make_optimizer, update
from .preserve import preservation_weight, preserved_prompt
from .schedule import rate_factor
from .timesteps import draw, levels

# A run ends at so many steps without a finite loss among the last so many.
MOST_BAD_STEPS, BAD_WITHIN = 3, 100
MOST_NAMED = 5


class Trainer:
    """The trained weights and what moves them. What step n does follows from the seed and n alone."""

    def __init__(
        self,
        run: Run,
        model: nn.Module,
        network: Network,
        items: Sequence[Item],
        latents: Latents,
        texts: Texts,
        masks: Masks,
        seed: int,
        device: torch.device,
        dtype: torch.dtype,
        progress: Progress,
        ranks: Ranks,
    ) -> None:
        self.run = run
        self.ranks = ranks
        self.model = model
        self.network = network
        self.items = items
        self.latents = latents
        self.texts = texts
        self.masks = masks
        self.seed = seed
        self.device = device
        self.dtype = dtype
        self.levels = levels(run)
        # ai-toolkit keeps the loss of a masked picture as large as another's, sd-scripts does not
        self.weighed = torch.stack if run.setting("train/unbalanced_masks") else balanced
        self.most = run.setting("train/max_loss")
        self.guidance = guidance(run)
        self.differential = differential(run)
        self.background = background_weight(run)
        self.embedded = float(run.setting("train/cfg_scale", 1.0))
        self.regular_weight = float(run.setting("train/reg_weight", 1.0))
        if self.most is not None and ranks.size > 1:
            raise TrainError("max_loss bounds the loss of a whole batch, which several processes share; take it out.")
        self.step = 0
        self.losses: list[float] = []
        self.bad: list[int] = []
        # why what is held here is not the outcome of whole steps, so that it must not be saved
        self.unfit = ""
        self.note = progress.note
        self.family = family_of(model)
        self.parameters = trainable(network, self.family.PREFIX)
        self.optimizer = make_optimizer(
            run.optimizer,
            run.optimizer_settings,
            run.learning_rate,
            groups(run, self.parameters),
            device,
            progress.note,
        )
        self.ema = {key: value.detach().clone() for key, value in self.parameters.items()} if run.use_ema else None
        self.order = Order(run, items, seed)
        if run.gradient_checkpointing:
            make: Any = model
            again = checkpointing(model, network, run.setting(f"train/{INTERVAL}", 1), random=any(dropout(run)))
            make.enable_gradient_checkpointing(gradient_checkpointing_func=again)

    @property
    def epoch(self) -> int:
        return self.order.epoch(self.step)

    @property
    def rate(self) -> float:
        """The learning rate of the last step."""
        return float(self.optimizer.param_groups[0]["lr"])

    def advance(self) -> float:
        """One optimizer step; returns its mean loss. Raises TrainError when too many lately are not finite."""
        rate = self.run.learning_rate
        factor = rate_factor(self.run.scheduler, self.run.scheduler_settings, rate, self.step, self.run.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * factor * group.get("times", 1.0)
        total = 0.0
        count = self.run.gradient_accumulation
        for index in range(self.step * count, (self.step + 1) * count):
            with self.ranks.noticing():
                for part in self.parts(index):
                    loss = part / count
                    loss.backward()  # type: ignore[no-untyped-call]
                    total += loss.item()
        total = self.ranks.total(total)  # first, over gloo, which notices a process that is gone
        self.ranks.add_gradients(self.parameters.values())
        norm = bound_gradients(self.run, list(self.parameters.values()))
        if math.isfinite(total) and math.isfinite(norm.item()):
            self.unfit = "The optimizer was changing the weights just then, so they are not saved."
            update(self.optimizer)
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

    def parts(self, index: int) -> Iterator[Tensor]:
        """This process's parts of the mean loss of one batch; none when it has no sample of it.

        Each part is to be followed back before the next is asked for: only one is in memory. Everything random in the
        batch is drawn from the seed and `index`, in every process alike.
        """
        run = self.run
        generator = torch.Generator().manual_seed(_mix(self.seed, index))
        torch.manual_seed(_mix(self.seed, index) + self.ranks.rank)  # for dropout
        items = self.order.batch(index)
        clean = torch.stack([self.latents.get(item) for item in items])
        noise = torch.randn(clean.shape, generator=generator)
        cells = clean[0, 0].numel() // 4
        t, weight = draw(self.levels, len(items), generator, self.family, cells)
        drops = torch.rand(len(items), generator=generator).tolist()
        captions = [
            item.dropped if drop < item.dropout else item.caption for item, drop in zip(items, drops, strict=True)
        ]
        weight = weight * torch.tensor([item.weight for item in items])
        share = (self.regular_weight if items[0].regular else 1.0) / len(items)
        scales = None if self.guidance is None else self.guidance.scales(len(items), generator)
        masks = [self.masks.get(item) for item in items] if any(item.mask is not None for item in items) else None
        mine = self.ranks.mine(index % run.gradient_accumulation * run.batch_size, len(items))
        if not mine:
            if not self.ranks.sharded:
                return
            mine, share = [0], 0.0  # the others need this process's rows of the model all the same
        clean, noise, t, weight = clean[mine], noise[mine], t[mine], weight[mine]
        scales = None if scales is None else scales[mine]
        mask = None if masks is None else self.weighed(masks)[mine].to(self.device)
        texts = [captions[place] for place in mine]
        predict = partial(self.predict, clean, noise, t, self.controls([items[place] for place in mine]))
        target = (noise - clean).to(self.device)
        prior = items[0].prior
        before = target
        if prior or (mask is not None and self.background is not None):
            with self.base_only():
                before = predict(texts)
        if prior:
            target = before
        if self.guidance is not None and scales is not None:
            with torch.no_grad():
                blank = predict([self.guidance.prompt] * len(texts))
            target = guided(target, blank, scales, t, self.guidance)
        guess = predict(texts)
        if self.differential != 1.0:
            target = guess.detach() + self.differential * (target - guess.detach())
        misses = miss(run, guess, target, mask)
        if masks is not None and self.background is not None:
            whole = torch.stack([masks[place] for place in mine]).to(self.device)
            misses = misses + self.background * background(run, guess, before, whole)
        loss = (misses * weight.to(self.device)).sum()
        yield share * (loss if self.most is None else loss.clamp(max=self.most * len(items)))
        kept = [preserved_prompt(run, items[place], captions[place]) for place in mine]
        prompts = [prompt for prompt in kept if prompt is not None]
        if prompts:
            with self.base_only():
                before = predict(prompts)
            change = (predict(prompts) - before).square().mean(dim=(1, 2, 3)).sum()
            yield share * preservation_weight(run) * change

    def misses(self, clean: Tensor, noise: Tensor, t: Tensor, items: Sequence[Item]) -> Tensor:
        """The unweighted loss of each item: latents and noise b x c x h x w, t in [0, 1] the share of noise."""
        masks = balanced([self.masks.get(item) for item in items]).to(self.device)
        guess = self.predict(clean, noise, t, self.controls(items), [item.caption for item in items])
        return miss(self.run, guess, (noise - clean).to(self.device), masks)

    def controls(self, items: Sequence[Item]) -> Tensor | None:
        """The latents of what the items of one batch edit, b x c x h x w; None where they edit nothing."""
        found = [item.control for item in items]
        return torch.stack([self.latents.get(item) for item in found if item is not None]) if found[0] else None

    def predict(
        self, clean: Tensor, noise: Tensor, t: Tensor, control: Tensor | None, captions: Sequence[str]
    ) -> Tensor:
        """What the model takes for the way from latent to noise, float32, b x c x h x w."""
        texts = [self.texts.get(caption) for caption in captions]
        share = t.view(-1, 1, 1, 1)
        noisy = ((1.0 - share) * clean + share * noise).to(self.device, self.dtype)
        return self.family.predict(self.model, noisy, t, texts, self.embedded, control)

    @contextmanager
    def base_only(self) -> Iterator[None]:
        """The model as it is without the network, and no gradients."""
        modules: list[Any] = list(self.network.values())
        for module in modules:
            module.active = False
        try:
            with torch.no_grad():
                yield
        finally:
            for module in modules:
                module.active = True

    def weights(self) -> dict[str, Tensor]:
        """What is saved: the running average where one is kept, else the trained weights; to be used at scale 1."""
        values = dict(self.ema) if self.ema is not None else {k: v.detach() for k, v in self.parameters.items()}
        return values if scale(self.run) == 1.0 else at_scale_one(values, scale(self.run))

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """With the saved weights in the model, and nothing left out by chance."""
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

    def state(self, identity: dict[str, str], held: Sequence[Item]) -> State:
        return State(
            identity=identity,
            seed=self.seed,
            step=self.step,
            losses=list(self.losses),
            lora={key: value.detach().cpu() for key, value in self.parameters.items()},
            optimizer=self.optimizer.state_dict(),
            ema=None if self.ema is None else {key: value.cpu() for key, value in self.ema.items()},
            held_out=len(held),
            held=[item.picture.digest for item in held],
            optimizer_kind=type(self.optimizer).__name__,
            captions=captions_of([*self.items, *held]),
        )

    def restore(self, state: State) -> None:
        self._set(state.lora)
        self._restore_optimizer(state)
        if self.ema is not None:
            start = state.ema if state.ema is not None else state.lora
            self.ema = {key: value.to(self.device) for key, value in start.items()}
        self.step = state.step
        self.losses = list(state.losses)

    def _restore_optimizer(self, state: State) -> None:
        """With the settings of the config as it is now; another optimizer begins anew."""
        kind = type(self.optimizer).__name__
        if state.optimizer_kind not in ("", kind):
            self.note(
                f"The saved state is of the optimizer {state.optimizer_kind}, and this run has {kind}: it begins "
                "without the averages of earlier gradients; the LoRA goes on."
            )
            return
        own = OPTIMIZERS[self.run.optimizer]
        settings = [{key: group[key] for key in own if key in group} for group in self.optimizer.param_groups]
        self.optimizer.load_state_dict(state.optimizer)
        for group, values in zip(self.optimizer.param_groups, settings, strict=True):
            group.update(values)

    def _set(self, values: Mapping[str, Tensor]) -> None:
        with torch.no_grad():
            for key, parameter in self.parameters.items():
                parameter.copy_(values[key])

    def _follow(self) -> None:
        if self.ema is None:
            return
        with torch.no_grad():
            for key, value in self.ema.items():
                value.lerp_(self.parameters[key], 1.0 - self.run.ema_decay)

    def _diagnosis(self) -> str:
        steps = ", ".join(str(step + 1) for step in self.bad)
        lead = f"The loss or a gradient was not a finite number at the steps {steps} (pictures: {self._pictures()})."
        return f"{lead} {not_finite(self.run, self.model, self.parameters)}"

    def _pictures(self) -> str:
        """Of the steps without a finite loss."""
        count = self.run.gradient_accumulation
        batches = (self.order.batch(step * count + part) for step in self.bad for part in range(count))
        names = list(dict.fromkeys(item.picture.file.name for batch in batches for item in batch))
        return ", ".join(names[:MOST_NAMED]) + (", …" if len(names) > MOST_NAMED else "")


def _mix(seed: int, index: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed} {index}".encode()).digest()[:8], "little") >> 1
