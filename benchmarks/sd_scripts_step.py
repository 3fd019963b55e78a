"""A training step of SDXL by sd-scripts' own code, beside the runner's with the same weights, in float32.

    python benchmarks/sd_scripts_step.py CHECKOUT

Small random weights: sd-scripts' UNet with its constants made smaller, its size embeddings, its min-SNR weight (of
noise and of v) and its noise schedule, as sdxl_train_network.py puts them together. Prints how far predictions,
losses and the gradients of all weights are apart, relative to the largest. Needs einops beside the train extra;
`library.utils`, which asks for torchvision, only logs there and is left out.
"""

from __future__ import annotations

import ast
import logging
import math
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from diffusers.models.unets.unet_2d_condition import UNet2DConditionModel
from diffusers.schedulers.scheduling_ddpm import DDPMScheduler

from zdoctor.doctor.families.models.stable_diffusion import SDXL, SDXL_CONFIG
from zdoctor.doctor.families.models.unet_names import sdxl_original_name
from zdoctor.doctor.model.objective import Loss
from zdoctor.doctor.train.families import sdxl
from zdoctor.doctor.train.families.noising import noising_of

WIDTH, TEXT, POOLED = 32, 2048, 24
STEPS = torch.tensor([120, 870])
SIZES = torch.tensor([[128, 160, 0, 22, 96, 64], [96, 64, 0, 0, 96, 64]])


def functions_of(file: Path, *names: str) -> dict[str, Any]:
    """Functions of a module whose imports are not here."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    found: list[ast.stmt] = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in names]
    space: dict[str, Any] = {"torch": torch, "math": math}
    exec(compile(ast.Module(found, []), str(file), "exec"), space)
    return space


def main(checkout: Path) -> None:
    sys.path.insert(0, str(checkout))
    utils: Any = ModuleType("library.utils")
    utils.setup_logging = logging.basicConfig
    sys.modules["library.utils"] = utils
    unets: Any = import_module("library.sdxl_original_unet")
    weights: Any = import_module("library.custom_train_functions")
    names = "timestep_embedding", "get_timestep_embedding", "get_size_embeddings"
    embedded = functions_of(checkout / "library" / "sdxl_train_util.py", *names)["get_size_embeddings"]
    unets.MODEL_CHANNELS, unets.TIME_EMBED_DIM = WIDTH, 4 * WIDTH
    unets.ADM_IN_CHANNELS = 6 * 256 + POOLED
    torch.manual_seed(0)
    theirs = unets.SdxlUNet2DConditionModel()
    config = {
        **SDXL_CONFIG,
        "block_out_channels": [WIDTH, 2 * WIDTH, 4 * WIDTH],
        "attention_head_dim": [1, 1, 2],
        "cross_attention_dim": TEXT,
        "projection_class_embeddings_input_dim": 6 * 256 + POOLED,
    }
    ours: Any = UNet2DConditionModel(**config).eval()
    held = theirs.state_dict()
    ours.load_state_dict({name: held[sdxl_original_name(name)] for name in ours.state_dict()})
    clean, noise = torch.randn(2, 2, 4, 12, 8)
    states, pooled = torch.randn(2, 77, TEXT), torch.randn(2, POOLED)
    scheduler: Any = DDPMScheduler(
        beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", num_train_timesteps=1000, clip_sample=False
    )
    weights.prepare_scheduler_for_custom_training(scheduler, "cpu")
    vector = torch.cat([pooled, embedded(SIZES[:, :2], SIZES[:, 2:4], SIZES[:, 4:], "cpu")], dim=1)
    for velocity in (False, True):
        said = theirs(scheduler.add_noise(clean, noise, STEPS), STEPS, states, vector)
        aim = scheduler.get_velocity(clean, noise, STEPS) if velocity else noise
        loss = (said - aim).square().mean(dim=(1, 2, 3))
        loss = weights.apply_snr_weight(loss, STEPS, scheduler, 5.0, velocity).mean()
        theirs.zero_grad()
        loss.backward()

        how = Loss(min_snr_gamma=5.0)
        more = {"prediction_type": "v_prediction"} if velocity else {}
        noising = noising_of(SDXL, {**SDXL.scheduler({}), **more})
        t = STEPS.double() / 1000
        texts = [
            {"states": one, "pooled": two, "sizes": three}
            for one, two, three in zip(states, pooled, SIZES, strict=True)
        ]
        guess = sdxl.predict(ours, noising.noisy(clean, noise, t), t, texts)
        own = (guess - noising.target(clean, noise, t)).square().mean(dim=(1, 2, 3))
        own = (own * noising.weights(how, t)).mean()
        ours.zero_grad()
        own.backward()
        grown = dict(theirs.named_parameters())
        apart = [
            ((value.grad - grown[sdxl_original_name(name)].grad).abs().max(), value.grad.abs().max())
            for name, value in ours.named_parameters()
        ]
        worst, largest = (max(column).item() for column in zip(*apart, strict=True))
        print(
            f"{'v' if velocity else 'noise'}: prediction {(guess - said).abs().max() / said.abs().max():.1e}, "
            f"loss {abs(own - loss) / loss:.1e}, gradients of {len(apart)} weights {worst / largest:.1e}"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
