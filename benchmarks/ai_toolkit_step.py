"""A training step of FLUX.2 by ai-toolkit's own code, beside the runner's with the same weights, in float32.

    python benchmarks/ai_toolkit_step.py CHECKOUT

Tiny random weights; ai-toolkit's class, its way of packing and of unpacking, and its loss. Prints how far
predictions, losses and the gradients of all weights are apart, relative to the largest. Needs
einops beside the train extra.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from zdoctor.doctor.families.models.flux2_in_diffusers import flux2_original_name
from zdoctor.doctor.families.record.single_file import original_parts
from zdoctor.doctor.train.families import flux2
from zdoctor.tests.flux2 import TINY, Flux2Transformer2DModel

SWAPPED = "norm_out.linear.weight"


def main(checkout: Path) -> None:
    sys.modules.setdefault("torchvision", ModuleType("torchvision"))  # for pictures from files alone
    sys.path.insert(0, str(checkout / "extensions_built_in" / "diffusion_models" / "flux2"))
    model, sampling = (import_module(f"src.{name}") for name in ("model", "sampling"))
    torch.manual_seed(0)
    sizes = {"in_channels": 16, "context_in_dim": 24, "hidden_size": 16, "num_heads": 2}
    depths = {"depth": TINY["num_layers"], "depth_single_blocks": TINY["num_single_layers"]}
    params = model.Flux2Params(**sizes, **depths, axes_dim=TINY["axes_dims_rope"], use_guidance_embed=False)
    theirs, ours = model.Flux2(params), Flux2Transformer2DModel(**TINY)
    for value in theirs.parameters():
        value.data.normal_(std=value.shape[-1] ** -0.5)
    parts = original_parts(flux2_original_name, ours.state_dict())
    given: dict[str, Tensor] = {}
    for name, of in parts.items():
        whole = _turned(theirs.state_dict()[name], of)
        given |= {part: one.clone() for part, one in zip(of, whole.chunk(len(of)), strict=True)}
    ours.load_state_dict(given)

    clean, noise, t = torch.randn(2, 4, 8, 6), torch.randn(2, 4, 8, 6), torch.tensor([0.3, 0.85])
    states, share = torch.randn(2, flux2.PROMPT, 24), torch.tensor([0.3, 0.85]).view(-1, 1, 1, 1)
    guess = flux2.predict(ours, (1 - share) * clean + share * noise, t, [{"states": one} for one in states])
    loss = (guess - (noise - clean)).square().mean()
    torch.autograd.backward(loss)

    clean, noise, guess = _cells(clean), _cells(noise), _cells(guess)  # its VAE gives latents in cells
    text, text_ids = sampling.batched_prc_txt(states)
    image, ids = sampling.batched_prc_img((1 - share) * clean + share * noise)
    out = theirs(x=image, x_ids=ids, timesteps=t, ctx=text, ctx_ids=text_ids, guidance=torch.ones(2))
    answer = torch.cat(sampling.scatter_ids(out, ids)).squeeze(2)
    their_loss = (answer - (noise - clean)).square().mean()
    torch.autograd.backward(their_loss)

    mine, other = dict(ours.named_parameters()), dict(theirs.named_parameters())
    apart = (
        _apart(torch.cat([mine[part].grad for part in of]), _turned(other[n].grad, of)) for n, of in parts.items()
    )
    print(f"prediction {_apart(guess, answer):.1e}, loss {_apart(loss, their_loss):.1e}")
    print(f"gradients of {len(parts)} weights: at most {max(apart):.1e}")


def _turned(whole: Tensor, parts: list[str]) -> Tensor:
    return torch.cat(whole.chunk(2)[::-1]) if parts == [SWAPPED] else whole


def _cells(latent: Tensor) -> Tensor:
    """Channels and places of a 2 x 2 cell as channels, as ai-toolkit's VAE has them."""
    count, depth, height, width = latent.shape
    cells = latent.view(count, depth, height // 2, 2, width // 2, 2).permute(0, 1, 3, 5, 2, 4)
    return cells.reshape(count, 4 * depth, height // 2, width // 2)


def _apart(one: Any, other: Any) -> float:
    return float(((one - other).abs().max() / other.abs().max()).detach())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
