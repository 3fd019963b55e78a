"""The loss of a batch: what the model answers at sampled timesteps, beside what it is to answer (`noising`)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ...model.objective import ConceptSlider
from ...model.recipe import Recipe
from ..dataset.training_items import TrainingItem
from ..distributed.ranks import Ranks
from ..encode.latents import Latents
from ..encode.loss_masks import LossMasks, with_mean_one
from ..encode.text_embeddings import Prompt, TextEmbeddings, prompt_of
from ..families import family_of
from ..families.noising import FlowMatching, Noising
from ..network.lora import Network
from ..runtime.train_error import TrainError
from ..runtime.transfer import to_device
from .loss import background_losses, guidance_scales, guided_target, like, preserved_prompt, sample_losses
from .timestep_sampling import sample_timesteps


class _Batch(NamedTuple):
    """The b samples of a batch that this process has: latents and noise b x c x h x w, t the share of noise, b.

    `mask` (b x 1 x h x w) weighs the loss, `plain_mask` says what the mask covers; `share` is what one sample counts
    in the mean of the batch, `scales` are those of the guidance loss, b.
    """

    items: list[TrainingItem]
    captions: list[str]
    controls: list[Tensor]
    clean: Tensor
    noise: Tensor
    t: Tensor
    weight: Tensor
    scales: Tensor | None
    mask: Tensor | None
    plain_mask: Tensor | None
    share: float


@dataclass
class BatchLoss:
    """The loss of each batch; what is random in batch n follows from the seed and n alone."""

    recipe: Recipe
    model: nn.Module
    network: Network
    latents: Latents
    texts: TextEmbeddings
    masks: LossMasks
    seed: int
    device: torch.device
    dtype: torch.dtype
    ranks: Ranks
    noising: Noising = field(default_factory=FlowMatching)
    ahead: tuple[int, _Batch | None] | None = None  # the number of a batch, and what was read of it

    def __post_init__(self) -> None:
        self.family = family_of(self.model)
        self.loss = self.recipe.loss

    @property
    def modules(self) -> list[Any]:
        """What is trained, on the transformer and on text encoders."""
        return [*self.network.values(), *(self.texts.trained.modules if self.texts.trained is not None else ())]

    @property
    def reached(self) -> Iterable[str]:
        """Names in the blocks that gradients go back to: those trained, or every list of blocks on the way to a text
        encoder.
        """
        return self.network if self.texts.trained is None else [f"{name}.0" for name in self.family.RECORD.blocks]

    def batch_losses(self, index: int, items: Sequence[TrainingItem]) -> Iterator[Tensor]:
        """Yields this process's parts of the mean loss of batch `index`; none when it has no sample of it.

        Each part is to be followed back before the next is asked for: only one is in memory. Everything random in the
        batch is drawn from the seed and `index`, in every process alike.
        """
        number, batch = self.ahead or (-1, None)
        self.ahead = None
        if number != index:
            batch = self._draw(index, items)
        torch.manual_seed(mixed_seed(self.seed, index) + self.ranks.rank)  # for dropout
        if batch is None:
            return
        if self.loss.slider is not None:
            yield from self._slider_losses(batch, self.loss.slider)
            return
        loss = self._sample_losses(batch).sum()
        most = self.loss.max_loss
        yield batch.share * (loss if most is None else loss.clamp(max=most * len(items)))
        del loss  # and with it what its backward pass needs
        yield from self._preservation_loss(batch)

    def read_ahead(self, index: int, items: Sequence[TrainingItem]) -> None:
        """Reads batch `index` while the device is busy with the one before; what cannot be read is told later."""
        with suppress(TrainError):
            batch = self._draw(index, items)
            self.ahead = index, batch
            if batch is not None:
                self.texts.read_ahead(self._prompts(batch, batch.captions))

    def _draw(self, index: int, items: Sequence[TrainingItem]) -> _Batch | None:
        """This process's samples of batch `index`, with what is random about them."""
        generator = torch.Generator().manual_seed(mixed_seed(self.seed, index))
        clean = torch.stack([self.latents.get(item) for item in items])
        noise = torch.randn(clean.shape, generator=generator)
        if self.loss.noise_offset:
            noise += self.loss.noise_offset * torch.randn((*clean.shape[:2], 1, 1), generator=generator)
        cells = clean[0, 0].numel() // 4
        t, weight = sample_timesteps(self.recipe.timestep_sampling, len(items), generator, self.family, cells)
        t = self.noising.on_table(t)
        drops = torch.rand(len(items), generator=generator).tolist()
        captions = [
            item.dropped if drop < item.dropout else item.caption_at(self.seed, index, place)
            for place, (item, drop) in enumerate(zip(items, drops, strict=True))
        ]
        weight = weight * torch.tensor([item.weight for item in items]) * self.noising.weights(self.loss, t)
        share = (self.loss.regularisation_weight if items[0].regular else 1.0) / len(items)
        guidance = self.loss.guidance
        scales = None if guidance is None else guidance_scales(guidance, len(items), generator)
        masks = [self.masks.get(item) for item in items] if any(item.mask is not None for item in items) else None
        own = self.ranks.own_samples(index % self.recipe.gradient_accumulation * self.recipe.batch_size, len(items))
        if not own:
            if not self.ranks.sharded:
                return None
            own, share = [0], 0.0  # the others need this process's rows of the model all the same
        own_items = [items[place] for place in own]
        # ai-toolkit keeps the loss of a masked picture as large as another's, sd-scripts does not
        weighed = with_mean_one if self.loss.balanced_masks else torch.stack
        return _Batch(
            items=own_items,
            captions=[captions[place] for place in own],
            controls=self.controls(own_items),
            clean=clean[own],
            noise=noise[own],
            t=t[own],
            weight=weight[own],
            scales=None if scales is None else scales[own],
            mask=None if masks is None else to_device(weighed(masks)[own], self.device),
            plain_mask=None if masks is None else to_device(torch.stack(masks)[own], self.device),
            share=share,
        )

    def _sample_losses(self, batch: _Batch) -> Tensor:
        """The weighted loss of each sample, b."""
        target, before = self._target(batch)
        guess = self._predict(batch, batch.captions)
        scale = self.loss.differential_guidance
        if scale is not None and scale != 1.0:
            target = guess.detach() + scale * (target - guess.detach())
        losses = sample_losses(self.loss, guess, target, batch.mask, batch.t) * to_device(batch.weight, self.device)
        if batch.plain_mask is not None and self.loss.background_weight is not None:
            # by itself, whatever the picture and its noise weigh
            losses = losses + self.loss.background_weight * background_losses(
                self.loss, guess, before, batch.plain_mask
            )
        return losses

    def _target(self, batch: _Batch) -> tuple[Tensor, Tensor]:
        """What the model is to answer, and what it answers without the network where that is asked for."""
        target = before = to_device(self.noising.target(batch.clean, batch.noise, batch.t), self.device)
        prior = batch.items[0].prior
        if prior or (batch.mask is not None and self.loss.background_weight is not None):
            with self.base_only():
                before = self._predict(batch, batch.captions)
        if prior:
            target = before
        guidance = self.loss.guidance
        if guidance is not None and batch.scales is not None:
            with torch.no_grad():
                blank = self._predict(batch, [guidance.prompt] * len(batch.items))
            target = guided_target(target, blank, batch.scales, batch.t, guidance)
        return target, before

    def _preservation_loss(self, batch: _Batch) -> Iterator[Tensor]:
        """How far the network has moved the answers to the prompts that are preserved, if there are any."""
        pairs = zip(batch.items, batch.captions, strict=True)
        kept = [preserved_prompt(self.loss, item, caption) for item, caption in pairs]
        prompts = [prompt for prompt in kept if prompt is not None]
        if prompts and self.loss.preservation is not None:
            with self.base_only():
                before = self._predict(batch, prompts)
            change = (self._predict(batch, prompts) - before).square().mean(dim=(1, 2, 3)).sum()
            yield batch.share * self.loss.preservation.weight * change

    def _slider_losses(self, batch: _Batch, slider: ConceptSlider) -> Iterator[Tensor]:
        """How far the answer to the target is from where the slider's two ends are to move it, as in ai-toolkit.

        Each end counts twice there: once as what is enhanced, once as what is erased.
        """

        def answer(prompt: str) -> Tensor:
            return self._predict(batch, [prompt] * len(batch.items))

        def miss(prompt: str, goal: Tensor) -> Tensor:
            return batch.share / 3.0 * (answer(prompt) - goal).square().mean(dim=(1, 2, 3)).sum()

        with self.base_only():
            positive, neutral, negative = map(answer, (slider.positive, slider.target, slider.negative))
            before = None if slider.anchor is None else answer(slider.anchor)
        push = slider.strength * (positive - negative)
        for sign in (1.0, -1.0):
            goal = like(neutral + sign * push, neutral)
            with self._turned(sign):
                yield 2.0 * miss(slider.target, goal)
                if slider.anchor is not None and before is not None:
                    yield slider.anchor_strength * miss(slider.anchor, before)

    @contextmanager
    def _turned(self, sign: float) -> Iterator[None]:
        """Runs the block with the network at this strength."""
        modules = self.modules
        scales = [module.scale for module in modules]
        for module, scale in zip(modules, scales, strict=True):
            module.scale = sign * scale
        try:
            yield
        finally:
            for module, scale in zip(modules, scales, strict=True):
                module.scale = scale

    def _predict(self, batch: _Batch, captions: Sequence[str]) -> Tensor:
        prompts = self._prompts(batch, captions)
        return self.predict(batch.clean, batch.noise, batch.t, batch.controls, prompts, batch.items)

    def _prompts(self, batch: _Batch, captions: Sequence[str]) -> list[Prompt]:
        return [prompt_of(text, item) for text, item in zip(captions, batch.items, strict=True)]

    def unweighted_losses(self, clean: Tensor, noise: Tensor, t: Tensor, items: Sequence[TrainingItem]) -> Tensor:
        """Returns the unweighted loss of each item: latents and noise b x c x h x w, t in [0, 1] the share of
        noise.
        """
        masks = with_mean_one([self.masks.get(item) for item in items]).to(self.device)
        prompts = [prompt_of(item.caption, item) for item in items]
        guess = self.predict(clean, noise, t, self.controls(items), prompts, items)
        return sample_losses(self.loss, guess, self.noising.target(clean, noise, t).to(self.device), masks, t)

    def controls(self, items: Sequence[TrainingItem]) -> list[Tensor]:
        """Returns the latents of the control images of one batch, b x c x h x w for each place in the items."""
        places = zip(*(item.controls for item in items), strict=True)
        return [torch.stack([self.latents.get(one) for one in place]) for place in places]

    def predict(
        self,
        clean: Tensor,
        noise: Tensor,
        t: Tensor,
        controls: Sequence[Tensor],
        prompts: Sequence[Prompt],
        items: Sequence[TrainingItem] = (),
    ) -> Tensor:
        """Returns what the model answers, float32, b x c x h x w."""
        texts = self.texts.of(prompts)
        if self.recipe.tells_crops:
            sizes = (torch.tensor(item.told_sizes) for item in items)
            texts = [{**text, "sizes": one} for text, one in zip(texts, sizes, strict=True)]
        noisy = to_device(self.noising.noisy(clean, noise, t), self.device, self.dtype)
        return self.family.predict(self.model, noisy, t, texts, self.loss.embedded_guidance, controls)

    @contextmanager
    def base_only(self) -> Iterator[None]:
        """Runs the block with the model as it is without the network, and without gradients."""
        modules = self.modules
        for module in modules:
            module.active = False
        try:
            with torch.no_grad():
                yield
        finally:
            for module in modules:
                module.active = True


def mixed_seed(*parts: object) -> int:
    return int.from_bytes(hashlib.sha256(" ".join(map(str, parts)).encode()).digest()[:8], "little") >> 1
