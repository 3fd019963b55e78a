"""A training step by ai-toolkit's own code, beside the runner's with the same weights, in float32.

    python benchmarks/ai_toolkit_step.py CHECKOUT flux2|flux2_dev|chroma|qwen_image_edit_plus

Tiny random weights; ai-toolkit's class, its way of packing and of unpacking, and its loss. Prints how far
predictions, losses and the gradients of all weights are apart, relative to the largest. Needs
einops beside the train extra. Of Qwen-Image-Edit-Plus ai-toolkit's class is diffusers' own; its method that
packs pictures with their control images is called, and what that file imports besides is made up.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from itertools import accumulate, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from zdoctor.doctor.families import classes
from zdoctor.doctor.families.record.single_file import original_parts
from zdoctor.doctor.train.components.vae import VaeFiles
from zdoctor.doctor.train.families import FamilyModule, chroma, flux2, packed, qwen_image_edit_plus, unpacked
from zdoctor.tests import chroma as tiny_chroma
from zdoctor.tests import flux2 as tiny_flux2
from zdoctor.tests import qwen_image as tiny_qwen


class Batch(NamedTuple):
    """What a step is made of: a text of each picture, by its states, and control images of b x 3 x h x w pixels."""

    clean: Tensor
    noise: Tensor
    t: Tensor
    states: Sequence[Tensor]
    controls: Sequence[Tensor] = ()

    @property
    def noisy(self) -> Tensor:
        share = self.t.view(-1, 1, 1, 1)
        return (1 - share) * self.clean + share * self.noise


class Compared(NamedTuple):
    """Our module and our class with its tiny config; ai-toolkit's model, and what it answers to a batch."""

    family: FamilyModule
    ours: Any
    theirs: Any
    answer: Callable[[Any, Batch], Tensor]
    tokens: Sequence[int]
    encode: Callable[[Tensor], Tensor] = torch.clone
    controls: Sequence[tuple[int, int]] = ()


GUIDANCE = 3.5
SIZES = {"in_channels": 16, "context_in_dim": 24, "hidden_size": 16, "num_heads": 2}


def of_flux2(guided: bool = False) -> Compared:
    model, sampling = (import_module(f"src.{name}") for name in ("model", "sampling"))
    tiny = {**tiny_flux2.TINY, "guidance_embeds": guided}
    depths = {"depth": tiny["num_layers"], "depth_single_blocks": tiny["num_single_layers"]}
    params = model.Flux2Params(**SIZES, **depths, axes_dim=tiny["axes_dims_rope"], use_guidance_embed=guided)

    def answer(theirs: Any, batch: Batch) -> Tensor:
        text, text_ids = sampling.batched_prc_txt(torch.stack(list(batch.states)))
        image, ids = sampling.batched_prc_img(_cells(batch.noisy))  # its VAE gives latents in cells
        out = theirs(
            x=image, x_ids=ids, timesteps=batch.t, ctx=text, ctx_ids=text_ids, guidance=torch.full((2,), GUIDANCE)
        )
        return _from_cells(torch.cat(sampling.scatter_ids(out, ids)).squeeze(2))

    ours = tiny_flux2.Flux2Transformer2DModel(**tiny)
    return Compared(flux2, ours, model.Flux2(params), answer, (flux2.PROMPT,) * 2)


def of_chroma() -> Compared:
    """Of prompts of one length: of others ai-toolkit has one mask for all."""
    model = import_module("src.model")
    tiny = tiny_chroma.TINY
    params = model.ChromaParams(
        **SIZES,
        mlp_ratio=4.0,
        depth=tiny["num_layers"],
        depth_single_blocks=tiny["num_single_layers"],
        axes_dim=tiny["axes_dims_rope"],
        theta=10_000,
        qkv_bias=True,
        guidance_embed=True,
        approximator_in_dim=64,  # which its code has in numbers
        approximator_depth=tiny["approximator_layers"],
        approximator_hidden_size=tiny["approximator_hidden_dim"],
        _use_compiled=False,
    )

    def answer(theirs: Any, batch: Batch) -> Tensor:
        filled = torch.zeros(2, 512, 24)
        mask = torch.zeros(2, 512)
        for place, states in enumerate(batch.states):
            filled[place, : len(states)] = states
            mask[place, : len(states) - 1] = 1.0  # it adds the one that fills up
        height, width = batch.noisy.shape[2:]
        ids = chroma.flux.cell_ids(height, width, 0).expand(2, -1, -1)
        out = theirs(
            img=packed(batch.noisy),
            img_ids=ids,
            txt=filled,
            txt_ids=torch.zeros(2, 512, 3),
            txt_mask=mask,
            timesteps=batch.t,
            guidance=torch.zeros(2),
        )
        return unpacked(out, height, width)

    ours = tiny_chroma.ChromaTransformer2DModel(**{**tiny, "approximator_num_channels": 64})
    return Compared(chroma, ours, model.Chroma(params), answer, (7, 7))


class MadeUp(MetaPathFinder, Loader):
    """Modules of packages that are not here, with a class of any name that is asked for."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in ("toolkit", "optimum"):
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__getattr__"] = lambda name: type(name, (), {})


def of_qwen_image_edit_plus() -> Compared:
    """With two control images of the size that it makes of them itself, and prompts of unlike lengths."""
    sys.meta_path.append(MadeUp())
    model = import_module("qwen_image.qwen_image_edit_plus").QwenImageEditPlusModel
    with TemporaryDirectory() as folder:
        place = tiny_qwen.trainable_qwen_image_edit(Path(folder) / "model") / "vae"
        vae = VaeFiles(place, "AutoencoderKLQwenImage").load(torch.device("cpu"))

    def answer(theirs: Any, batch: Batch) -> Tensor:
        made = SimpleNamespace(
            vae=vae.model,
            device_torch=torch.device("cpu"),
            torch_dtype=torch.float32,
            model_config=SimpleNamespace(model_kwargs={"match_target_res": True}),
            pipeline=SimpleNamespace(vae_scale_factor=8),
            transformer=theirs,
            encode_images=lambda images, **_: vae.encode(images),  # it would draw from what the VAE gives
        )
        given = SimpleNamespace(control_tensor=None, control_tensor_list=list(zip(*batch.controls, strict=True)))
        text = SimpleNamespace(
            text_embeds=pad_sequence(list(batch.states), batch_first=True),
            attention_mask=pad_sequence([torch.ones(len(one)) for one in batch.states], batch_first=True),
        )
        found: Tensor = model.get_noise_prediction(made, batch.noisy, batch.t * 1000, text, batch=given)
        return found

    ours, theirs = (tiny_qwen.QwenImageTransformer2DModel(**tiny_qwen.TINY) for _ in range(2))
    sizes = ((64, 64), (96, 32))
    return Compared(qwen_image_edit_plus, ours, theirs, answer, (5, 9), lambda one: vae.encode(one * 2 - 1), sizes)


FAMILIES: Mapping[str, Callable[[], Compared]] = {
    "flux2": of_flux2,
    "flux2_dev": lambda: of_flux2(guided=True),
    "chroma": of_chroma,
    "qwen_image_edit_plus": of_qwen_image_edit_plus,
}


def main(checkout: Path, name: str) -> None:
    sys.modules.setdefault("torchvision", ModuleType("torchvision"))  # for pictures from files alone
    models = checkout / "extensions_built_in" / "diffusion_models"
    sys.path[:0] = [str(models), str(models / name.removesuffix("_dev"))]
    torch.manual_seed(0)
    family, ours, theirs, answer, tokens, encode, sizes = FAMILIES[name]()
    for value in theirs.parameters():
        value.data.normal_(std=value.shape[-1] ** -0.5)
    kind = classes()[type(ours).__name__]
    held = ours.state_dict()
    parts = original_parts(kind.original, held)
    given: dict[str, Tensor] = {}
    for one, of in parts.items():
        ends = accumulate((len(held[part]) for part in of), initial=0)
        whole = _turned(theirs.state_dict()[one], of, kind.swapped)
        given |= {part: whole[start:end].clone() for part, (start, end) in zip(of, pairwise(ends), strict=True)}
    ours.load_state_dict(given)

    noises = [torch.randn(2, 4, 8, 6) for _ in range(2)]
    states, controls = [torch.randn(count, 24) for count in tokens], [torch.rand(2, 3, *size) for size in sizes]
    batch = Batch(noises[0], noises[1], torch.tensor([0.3, 0.85]), states, controls)
    texts, seen = [{"states": one} for one in states], [encode(one) for one in controls]
    guesses = (
        family.predict(ours, batch.noisy, batch.t, texts, GUIDANCE, seen),
        answer(theirs, batch),
    )
    losses = [(guess - (batch.noise - batch.clean)).square().mean() for guess in guesses]
    for loss in losses:
        torch.autograd.backward(loss)

    mine, other = dict(ours.named_parameters()), dict(theirs.named_parameters())
    learnt = {one: of for one, of in parts.items() if other[one].grad is not None}
    apart = (
        _apart(torch.cat([mine[part].grad for part in of]), _turned(other[one].grad, of, kind.swapped))
        for one, of in learnt.items()
    )
    print(f"prediction {_apart(*guesses):.1e}, loss {_apart(*losses):.1e}")
    print(f"gradients of {len(learnt)} of {len(parts)} weights: at most {max(apart):.1e}")


def _turned(whole: Tensor, parts: list[str], swapped: Sequence[str]) -> Tensor:
    return torch.cat(whole.chunk(2)[::-1]) if parts[0] in swapped else whole


def _cells(latent: Tensor) -> Tensor:
    """Channels and places of a 2 x 2 cell as channels, as ai-toolkit's VAE has them."""
    count, depth, height, width = latent.shape
    cells = latent.view(count, depth, height // 2, 2, width // 2, 2).permute(0, 1, 3, 5, 2, 4)
    return cells.reshape(count, 4 * depth, height // 2, width // 2)


def _from_cells(cells: Tensor) -> Tensor:
    count, depth, height, width = cells.shape
    return torch.nn.functional.pixel_shuffle(cells, 2).view(count, depth // 4, 2 * height, 2 * width)


def _apart(one: Any, other: Any) -> float:
    return float(((one - other).abs().max() / other.abs().max()).detach())


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
