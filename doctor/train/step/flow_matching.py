"""What is asked of the model for a batch, and how far it is from it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ...model.run import Run
from ..dataset.training_items import Item
from ..distributed.ranks import Ranks
from ..encode.latents import Latents
from ..encode.loss_masks import Masks, balanced
from ..encode.text_embeddings import Texts
from ..families import family_of
from ..network.lora import Network
from .loss import background, guided, miss, scales_of
from .output_preservation import preservation_weight, preserved_prompt
from .timestep_sampling import draw, levels


class Objective:
    """The loss of each batch. What is random in batch n follows from the seed and n alone."""

    def __init__(
        self,
        run: Run,
        model: nn.Module,
        network: Network,
        latents: Latents,
        texts: Texts,
        masks: Masks,
        seed: int,
        device: torch.device,
        dtype: torch.dtype,
        ranks: Ranks,
    ) -> None:
        self.run = run
        self.model = model
        self.network = network
        self.latents = latents
        self.texts = texts
        self.masks = masks
        self.seed = seed
        self.device = device
        self.dtype = dtype
        self.ranks = ranks
        self.family = family_of(model)
        self.levels = levels(run)
        # ai-toolkit keeps the loss of a masked picture as large as another's, sd-scripts does not
        self.weighed = balanced if run.recipe.loss.balanced_masks else torch.stack
        self.most = run.recipe.loss.max_loss
        self.guidance = run.recipe.loss.guidance
        self.differential = (
            1.0 if run.recipe.loss.differential_guidance is None else run.recipe.loss.differential_guidance
        )
        self.background = run.recipe.loss.background_weight
        self.embedded = run.recipe.loss.embedded_guidance
        self.regular_weight = run.recipe.loss.regularisation_weight

    def parts(self, index: int, items: Sequence[Item]) -> Iterator[Tensor]:
        """This process's parts of the mean loss of batch `index`; none when it has no sample of it.

        Each part is to be followed back before the next is asked for: only one is in memory. Everything random in the
        batch is drawn from the seed and `index`, in every process alike.
        """
        run = self.run
        generator = torch.Generator().manual_seed(_mix(self.seed, index))
        torch.manual_seed(_mix(self.seed, index) + self.ranks.rank)  # for dropout
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
        scales = None if self.guidance is None else scales_of(self.guidance, len(items), generator)
        masks = [self.masks.get(item) for item in items] if any(item.mask is not None for item in items) else None
        mine = self.ranks.mine(index % run.recipe.gradient_accumulation * run.recipe.batch_size, len(items))
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
        misses = miss(run, guess, target, mask) * weight.to(self.device)
        if masks is not None and self.background is not None:  # by itself, whatever the picture and its noise weigh
            whole = torch.stack([masks[place] for place in mine]).to(self.device)
            misses = misses + self.background * background(run, guess, before, whole)
        loss = misses.sum()
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


def _mix(seed: int, index: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed} {index}".encode()).digest()[:8], "little") >> 1
