"""A training step by musubi-tuner's own code, beside the runner's with the same weights, in float32.

    python benchmarks/musubi_step.py CHECKOUT flux2|flux2_dev|qwen_image|qwen_image_edit_plus

Tiny random weights; musubi-tuner's class, its trainer's own method that packs latents and control images, tells the
model of them and makes the target, and the layers that its network module covers. Prints how far predictions, losses
and the gradients of all weights are apart, relative to the largest, and whether a LoRA covers the same layers. Needs
einops beside the train extra; what else musubi-tuner imports and is not here is made up.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from itertools import accumulate, pairwise
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import torch
from ai_toolkit_step import SIZES, _apart, _cells, _from_cells, _turned
from torch import Tensor

from zdoctor.doctor.configs.written import Written
from zdoctor.doctor.families import classes, family_of
from zdoctor.doctor.families.record.single_file import original_parts
from zdoctor.doctor.train.families import FamilyModule, module_of
from zdoctor.doctor.train.network.lora import lora_targets
from zdoctor.doctor.trainers.kohya.network import network_of
from zdoctor.doctor.trainers.kohya.starts import PARSED
from zdoctor.tests import flux2 as tiny_flux2
from zdoctor.tests import qwen_image as tiny_qwen
from zdoctor.tests.part_files import musubi_command, run_of

_MISSING = ("cv2", "av", "toml", "easydict", "ftfy", "torchvision", "voluptuous")


class MadeUp(MetaPathFinder, Loader):
    """Modules of packages that are not here, with a class of any name that is asked for."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in _MISSING:
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__getattr__"] = lambda name: type(name, (), {})


class Compared(NamedTuple):
    """Our architecture and class; musubi-tuner's model, its trainer, and how latents and texts are put for it."""

    architecture: str
    ours: Any
    theirs: Any
    trainer: Any
    module: str
    latent: Callable[[Tensor], Tensor]
    back: Callable[[Tensor], Tensor]
    texts: Callable[[list[Tensor]], Any]
    tokens: tuple[int, int]
    text: str
    args: Mapping[str, Any]


def of_flux2(dev: bool = False) -> Compared:
    models, trainers = (
        import_module("musubi_tuner.flux_2.flux2_models"),
        import_module("musubi_tuner.flux_2_train_network"),
    )
    tiny = {**tiny_flux2.TINY, "guidance_embeds": dev}
    depths = {"depth": tiny["num_layers"], "depth_single_blocks": tiny["num_single_layers"]}
    params = models.Flux2Params(**SIZES, **depths, axes_dim=tiny["axes_dims_rope"], use_guidance_embed=dev)
    return Compared(
        "flux2" if dev else "flux2_klein_4b",
        tiny_flux2.Flux2Transformer2DModel(**tiny),
        models.Flux2(params, "torch", False),
        trainers.Flux2NetworkTrainer(),
        "lora_flux_2",
        _cells,
        _from_cells,
        torch.stack,
        (512, 512),
        "ctx_vec",
        {},
    )


def of_qwen_image(edit: bool = False) -> Compared:
    models = import_module("musubi_tuner.qwen_image.qwen_image_model")
    trainer = import_module("musubi_tuner.qwen_image_train_network").QwenImageNetworkTrainer()
    trainer.is_edit, trainer.is_layered = edit, False
    # edit-2511 sees control images at a time of no noise
    tiny = {**tiny_qwen.TINY, "zero_cond_t": edit}
    return Compared(
        "qwen_image_edit_plus" if edit else "qwen_image",
        tiny_qwen.QwenImageTransformer2DModel(**tiny),
        models.QwenImageTransformer2DModel(**tiny, attn_mode="torch", split_attn=False),
        trainer,
        "lora_qwen_image",
        lambda one: one.unsqueeze(2),
        lambda one: one.squeeze(2),
        list,
        (5, 9),
        "vl_embed",
        {"is_layered": False, "split_attn": False},
    )


FAMILIES: Mapping[str, Callable[[], Compared]] = {
    "flux2": of_flux2,
    "flux2_dev": lambda: of_flux2(dev=True),
    "qwen_image": of_qwen_image,
    "qwen_image_edit_plus": lambda: of_qwen_image(edit=True),
}


def main(checkout: Path, name: str) -> None:
    sys.meta_path.append(MadeUp())
    sys.path.insert(0, str(checkout / "src"))
    torch.manual_seed(0)
    one = FAMILIES[name]()
    ours, theirs = one.ours, one.theirs
    with torch.no_grad():
        for value in theirs.parameters():
            value.normal_(std=value.shape[-1] ** -0.5)
    kind = classes()[type(ours).__name__]
    parts = original_parts(kind.original, ours.state_dict())
    held = theirs.state_dict()
    given: dict[str, Tensor] = {}
    for original, of in parts.items():
        ends = accumulate((len(ours.state_dict()[part]) for part in of), initial=0)
        whole = _turned(held[original], of, kind.swapped)
        given |= {part: whole[start:end].clone() for part, (start, end) in zip(of, pairwise(ends), strict=True)}
    ours.load_state_dict(given)

    clean, noise = (torch.randn(2, 4, 8, 6) for _ in range(2))
    controls = [torch.randn(2, 4, *size) for size in ((8, 6), (4, 10))] if name != "qwen_image" else []
    states = [torch.randn(count, 24) for count in one.tokens]
    t = torch.tensor([0.3, 0.85])
    share = t.view(-1, 1, 1, 1)
    noisy = (1 - share) * clean + share * noise
    batch = {"latents": one.latent(clean), one.text: one.texts(states)}
    batch |= {f"latents_control_{number}": one.latent(value) for number, value in enumerate(controls)}
    accelerator: Any = SimpleNamespace(device=torch.device("cpu"), autocast=nullcontext)
    args = SimpleNamespace(gradient_checkpointing=False, **one.args)
    answer = one.trainer.call_dit(
        args,
        accelerator,
        theirs,
        batch["latents"],
        batch,
        one.latent(noise),
        one.latent(noisy),
        1000 * t,
        torch.float32,
    )
    family: FamilyModule = module_of(family_of(family_of(one.architecture).in_diffusers or one.architecture))
    guess = family.predict(ours, noisy, t, [{"states": value} for value in states], 1.0, controls)
    losses = [(guess - (noise - clean)).square().mean(), (answer.pred - answer.target).square().mean()]
    for loss in losses:
        torch.autograd.backward(loss)
    print(f"prediction {_apart(guess, one.back(answer.pred)):.1e}, loss {_apart(*losses):.1e}")
    mine, other = dict(ours.named_parameters()), dict(theirs.named_parameters())
    learnt = {original: of for original, of in parts.items() if other[original].grad is not None}
    apart = (
        _apart(torch.cat([mine[part].grad for part in of]), _turned(other[original].grad, of, kind.swapped))
        for original, of in learnt.items()
    )
    print(f"gradients of {len(learnt)} of {len(parts)} weights: at most {max(apart):.1e}")

    network = import_module(f"musubi_tuner.networks.{one.module}").create_arch_network(1.0, 4, 4, None, [], theirs)
    covered = {lora.lora_name for lora in network.unet_loras}
    run = run_of(musubi_command(one.architecture, {"dit": "d.safetensors"}))
    targets = lora_targets(ours, network_of(run, Written(run.settings, PARSED)).excluded)
    named = {
        f"lora_unet_{kind.original(f'{target}.weight').removesuffix('.weight')}".replace(".", "_")
        for target in targets
    }
    print(f"a LoRA on {len(covered)} layers: {'the same' if covered == named else sorted(covered ^ named)}")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), sys.argv[2])
