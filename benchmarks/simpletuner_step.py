"""A training step by SimpleTuner's own code, beside the runner's with the same weights, in float32.

    python benchmarks/simpletuner_step.py CHECKOUT flux2|flux2_dev|chroma|qwen_image

Tiny random weights; SimpleTuner's own class of the transformer, its model's own method that packs latents and calls
it, and its target. Prints how far predictions, losses and the gradients of all weights are apart, relative to the
largest; of Chroma also how far the noise levels that it draws are moved. What SimpleTuner imports and is not here is
made up.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import musubi_step
import torch
from ai_toolkit_step import _apart, _cells, _from_cells
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from zdoctor.doctor.model.objective import TimestepDensity
from zdoctor.doctor.train.families import FamilyModule, chroma, flux2, flux2_dev, qwen_image
from zdoctor.doctor.train.step.timestep_sampling import timesteps_from_density
from zdoctor.tests import chroma as tiny_chroma
from zdoctor.tests import flux2 as tiny_flux2
from zdoctor.tests import qwen_image as tiny_qwen


class Compared(NamedTuple):
    """Our module and class; SimpleTuner's class of the model, and how latents are put for it."""

    family: FamilyModule
    ours: Any
    place: str
    name: str
    transformer: str
    tokens: tuple[int, int]
    latent: Callable[[Tensor], Tensor] = torch.clone
    back: Callable[[Tensor], Tensor] = torch.clone


def of_flux2(dev: bool = False) -> Compared:
    ours = tiny_flux2.Flux2Transformer2DModel(**{**tiny_flux2.TINY, "guidance_embeds": dev})
    family: FamilyModule = flux2_dev if dev else flux2
    return Compared(family, ours, "flux2", "Flux2", "Flux2Transformer2DModel", (512, 512), _cells, _from_cells)


FAMILIES: Mapping[str, Callable[[], Compared]] = {
    "flux2": of_flux2,
    "flux2_dev": lambda: of_flux2(dev=True),
    "chroma": lambda: Compared(
        chroma,
        tiny_chroma.ChromaTransformer2DModel(**tiny_chroma.TINY),
        "chroma",
        "Chroma",
        "ChromaTransformer2DModel",
        (5, 9),
    ),
    "qwen_image": lambda: Compared(
        qwen_image,
        tiny_qwen.QwenImageTransformer2DModel(**tiny_qwen.TINY),
        "qwen_image",
        "QwenImage",
        "QwenImageTransformer2DModel",
        (5, 9),
    ),
}


def main(checkout: Path, name: str) -> None:
    os.environ["SIMPLETUNER_LOG_LEVEL"] = "ERROR"
    sys.meta_path.append(musubi_step.MadeUp())
    sys.path.insert(0, str(checkout))
    torch.manual_seed(0)
    one = FAMILIES[name]()
    ours, models = one.ours, f"simpletuner.helpers.models.{one.place}"
    make = getattr(import_module(f"{models}.transformer"), one.transformer)
    theirs = make(**{key: value for key, value in ours.config.items() if key in signature(make.__init__).parameters})
    with torch.no_grad():
        for value in ours.parameters():
            value.normal_(std=value.shape[-1] ** -0.5)
    theirs.load_state_dict(ours.state_dict())
    trainer: Any = object.__new__(getattr(import_module(f"{models}.model"), one.name))
    plain = {"twinflow_enabled": False, "tread_config": None, "flux_guidance_mode": "constant"}
    trainer.config = SimpleNamespace(
        base_weight_dtype=torch.float32, weight_dtype=torch.float32, flux_guidance_value=1.0, **plain
    )
    trainer.accelerator = SimpleNamespace(device=torch.device("cpu"), unwrap_model=lambda model: model)
    trainer.model, trainer.vae_scale_factor = theirs, 8
    trainer.noise_schedule = SimpleNamespace(config=SimpleNamespace(num_train_timesteps=1000))
    trainer._xm_noise_candidates_enabled = lambda *_: False
    trainer._new_hidden_state_buffer = lambda: None
    trainer._apply_flowmap_r_timestep_kwargs = lambda *_: None
    trainer._is_edit_v1_flavour = trainer._is_edit_v2_flavour = trainer._is_edit_v2_plus_flavour = lambda: False

    clean, noise = (torch.randn(2, 4, 8, 6) for _ in range(2))
    states = [torch.randn(count, 24) for count in one.tokens]
    t = torch.tensor([0.3, 0.85])
    share = t.view(-1, 1, 1, 1)
    noisy = (1 - share) * clean + share * noise
    batch = {
        "noisy_latents": one.latent(noisy),
        "latents": one.latent(clean),
        "noise": one.latent(noise),
        "timesteps": 1000 * t,
        "prompt_embeds": pad_sequence(states, batch_first=True),
        "encoder_attention_mask": pad_sequence([torch.ones(len(value)) for value in states], batch_first=True),
    }
    answer = one.back(trainer.model_predict(batch)["model_prediction"])
    answer = answer.squeeze(2) if answer.dim() == 5 else answer
    guess = one.family.predict(ours, noisy, t, [{"states": value} for value in states], 1.0)
    losses = [(found - (noise - clean)).square().mean() for found in (guess, answer)]
    for loss in losses:
        torch.autograd.backward(loss)
    print(f"prediction {_apart(guess, answer):.1e}, loss {_apart(*losses):.1e}")
    mine, other = dict(ours.named_parameters()), dict(theirs.named_parameters())
    learnt = [key for key, value in other.items() if value.grad is not None]
    apart = max(_apart(mine[key].grad, other[key].grad) for key in learnt)
    print(f"gradients of {len(learnt)} of {len(other)} weights: at most {apart:.1e}")
    if name == "chroma":
        drawn = [
            timesteps_from_density(
                TimestepDensity("logit_normal", bent=bent), 1000, torch.Generator().manual_seed(3), 1
            )
            for bent in (False, True)
        ]
        print(f"noise levels {_apart(drawn[1], trainer._adjust_chroma_sigmas(drawn[0])):.1e}")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), sys.argv[2])
