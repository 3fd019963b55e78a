"""SDXL trains as the other models do, though it predicts noise and is a UNet; what it makes is diffusers'."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers.pipelines.stable_diffusion_xl.pipeline_stable_diffusion_xl import StableDiffusionXLPipeline
from diffusers.schedulers.scheduling_ddpm import DDPMScheduler
from diffusers.training_utils import compute_snr
from peft import LoraConfig
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from zdoctor.doctor.model.objective import Loss
from zdoctor.doctor.model.recipe import SamplePrompt
from zdoctor.doctor.train.components.vae import Vae, VaeFiles
from zdoctor.doctor.train.dataset.images import DatasetImage
from zdoctor.doctor.train.dataset.training_items import TrainingItem
from zdoctor.doctor.train.families import scheduler_config
from zdoctor.doctor.train.families import sdxl as family
from zdoctor.doctor.train.families.noising import Diffusion, noising_of, timesteps
from zdoctor.doctor.train.network.lora import (
    add_network,
    as_saved,
    lora_targets,
    read_initial_weights,
    trainable_parameters,
)
from zdoctor.doctor.train.sampling.sampler import decode_to_png
from zdoctor.doctor.train.step.timestep_sampling import sample_timesteps
from zdoctor.doctor.train.transformer.load_transformer import build_empty_transformer, fill_transformer

from .patient import go, run_with
from .pipelines import embedded_by, pipeline_of, sampled_by

CPU = torch.device("cpu")
pipeline, embedded = partial(pipeline_of, StableDiffusionXLPipeline), partial(embedded_by, family)
PROMPT = SamplePrompt("a b", 48, 64, 3, 3, 4.0)
sampled = partial(sampled_by, family, PROMPT)
TIMES = torch.tensor([300, 850], dtype=torch.float64) / 1000
run_of = partial(run_with, architecture="sdxl", quantization=None, noise_scheduler="ddpm")


def vae_of(folder: Path) -> Vae:
    return VaeFiles(folder / "vae", "AutoencoderKL").load(CPU)


def loaded(
    folder: Path, windows: int = 0, scales: tuple[float, float] = (1.0, 1.0)
) -> tuple[nn.Module, dict[str, nn.Parameter]]:
    """The UNet with a LoRA of random numbers; on convolutions of several places with rank `windows`."""
    model = build_empty_transformer(folder / "unet")
    fill_transformer(model, folder / "unet", quantization="none", adapter={}, dtype=torch.float32, device=CPU)
    how = replace(run_of().recipe.network, conv_rank=windows, scale=scales[0], conv_scale=scales[1])
    shapes = lora_targets(model, windows=windows > 0)
    parameters = trainable_parameters(add_network(model, shapes, how, 0), family.RECORD.lora_prefix)
    draw = torch.Generator().manual_seed(1)
    for value in parameters.values():
        value.data.copy_(torch.randn(value.shape, generator=draw) * 0.1)
    return model, parameters


def with_adapter(folder: Path, parameters: dict[str, nn.Parameter]) -> Any:
    """diffusers' UNet with peft's LoRA of these numbers, as its training example makes it."""
    model = pipeline(folder).unet
    own = {key.removeprefix("lora_unet_"): value.detach() for key, value in parameters.items()}
    names = [key.removesuffix(".lora_A.weight") for key in own if key.endswith("lora_A.weight")]
    ranks = {name: own[f"{name}.lora_A.weight"].shape[0] for name in names}
    model.add_adapter(LoraConfig(r=8, lora_alpha=8, target_modules=names, rank_pattern=ranks, alpha_pattern=ranks))
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            parameter.data.copy_(own[name.replace(".default", "")])
    return model


def test_embeddings_are_those_of_the_pipeline(sdxl: Path, tmp_path: Path) -> None:
    prompts = ("a b", "", "c d ab " * 60)
    pipe = pipeline(sdxl)
    for prompt, ours in zip(prompts, embedded(sdxl, tmp_path, *prompts), strict=True):
        states, _, pooled, _ = pipe.encode_prompt(prompt, do_classifier_free_guidance=False)
        torch.testing.assert_close(ours["states"], states[0], rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(ours["pooled"], pooled[0], rtol=1e-5, atol=1e-6)
    (coarse,) = embedded(sdxl, tmp_path / "coarse", "a b", kind="int8")
    (plain,) = embedded(sdxl, tmp_path / "plain", "a b")
    assert 0.0 < (coarse["states"] - plain["states"]).norm() / plain["states"].norm() < 0.1


@pytest.mark.parametrize(
    ("windows", "velocity"),
    [(0, False), (3, True), *(pytest.param(*one, marks=pytest.mark.thorough) for one in ((3, False), (0, True)))],
)
def test_prediction_loss_and_gradients_are_those_of_diffusers_training_example(
    sdxl: Path, tmp_path: Path, velocity: bool, windows: int
) -> None:
    """As examples/text_to_image/train_text_to_image_lora_sdxl.py computes them, with --snr_gamma 5."""
    model, parameters = loaded(sdxl, windows)
    texts = embedded(sdxl, tmp_path, "a b", "c d")
    clean, noise = torch.randn(2, 2, 4, 8, 6, generator=torch.Generator().manual_seed(2))
    loss_of = Loss(min_snr_gamma=5.0, prediction="v_prediction" if velocity else "")
    noising = noising_of(family.RECORD, scheduler_config(family.RECORD, sdxl, model, loss_of))
    noisy, target = noising.noisy(clean, noise, TIMES), noising.target(clean, noise, TIMES)
    guess = family.predict(model, noisy, TIMES, texts)
    loss = ((guess - target).square().mean(dim=(1, 2, 3)) * noising.weights(loss_of, TIMES)).mean()
    torch.autograd.backward(loss)

    theirs = with_adapter(sdxl, parameters)
    make: Any = DDPMScheduler
    config = {"prediction_type": "v_prediction"} if velocity else {}
    scheduler = make.from_pretrained(str(sdxl), subfolder="scheduler", **config)
    steps = torch.tensor([300, 850])
    ids = torch.tensor([[64, 48, 0, 0, 64, 48]] * 2)
    added = {"time_ids": ids, "text_embeds": torch.stack([text["pooled"] for text in texts])}
    states = torch.stack([text["states"] for text in texts])
    answer = theirs(
        scheduler.add_noise(clean, noise, steps), steps, states, added_cond_kwargs=added, return_dict=False
    )[0]
    aim = scheduler.get_velocity(clean, noise, steps) if velocity else noise
    snr = compute_snr(scheduler, steps)
    weights = torch.stack([snr, 5.0 * torch.ones(2)], dim=1).min(dim=1)[0] / (snr + 1 if velocity else snr)
    their_loss = ((answer - aim).square().mean(dim=(1, 2, 3)) * weights).mean()
    torch.autograd.backward(their_loss)
    torch.testing.assert_close(guess, answer, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(loss, their_loss, rtol=1e-5, atol=0)
    grown = {name.replace(".default", ""): value.grad for name, value in theirs.named_parameters() if "lora_" in name}
    assert {f"lora_unet_{name}" for name in grown} == parameters.keys()
    for name, gradient in grown.items():
        own = parameters[f"lora_unet_{name}"].grad
        torch.testing.assert_close(own, gradient, rtol=1e-5, atol=1e-5 * gradient.abs().max().item())


@pytest.mark.parametrize(
    ("scheduler", "guidance"),
    [
        ("EulerDiscreteScheduler", 1.0),
        ("EulerDiscreteScheduler", 4.0),
        ("DDIMScheduler", 4.0),
        ("DPMSolverMultistepScheduler", 4.0),
    ],
)
def test_previews_are_those_of_the_pipeline(sdxl: Path, tmp_path: Path, guidance: float, scheduler: str) -> None:
    folder = with_scheduler(sdxl, tmp_path / "model", _class_name=scheduler)
    pipe = pipeline(folder)
    text, negative = embedded(sdxl, tmp_path, PROMPT.prompt, "")
    ours = sampled(pipe.unet, folder, text, negative, guidance)
    torch.testing.assert_close(ours, painted(pipe, guidance, "latent"), rtol=1e-4, atol=1e-4)
    decode_to_png(vae_of(sdxl), ours, tmp_path / "ours.png")
    image = painted(pipe, guidance, "pil")[0]
    with Image.open(tmp_path / "ours.png") as written:
        assert max(abs(a - b) for a, b in zip(written.tobytes(), image.tobytes(), strict=True)) <= 1


def with_scheduler(model: Path, folder: Path, **changes: Any) -> Path:
    shutil.copytree(model, folder)
    file = folder / "scheduler" / "scheduler_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    index = folder / "model_index.json"
    name = json.loads(file.read_text())["_class_name"]
    index.write_text(json.dumps(json.loads(index.read_text()) | {"scheduler": ["diffusers", name]}))
    return folder


def painted(pipe: Any, guidance: float, kind: str, **options: Any) -> Any:
    noise = torch.randn((1, 4, 8, 6), generator=torch.Generator().manual_seed(PROMPT.seed))
    return pipe(
        prompt=PROMPT.prompt,
        negative_prompt="",
        height=PROMPT.height,
        width=PROMPT.width,
        num_inference_steps=PROMPT.steps,
        guidance_scale=guidance,
        latents=noise,
        output_type=kind,
        **options,
    ).images


def test_the_model_says_what_it_predicts_and_with_how_much_noise_it_ends(sdxl: Path, tmp_path: Path) -> None:
    """As of a v-prediction model such as NoobAI's; a run's own word goes before it."""
    folder = with_scheduler(sdxl, tmp_path / "v", prediction_type="v_prediction", rescale_betas_zero_snr=True)
    model = build_empty_transformer(sdxl / "unet")
    of_folder, of_run, plain = (
        noising_of(family.RECORD, scheduler_config(family.RECORD, place, model, loss))
        for place, loss in (
            (folder, Loss()),
            (sdxl, Loss(prediction="v_prediction", zero_terminal_snr=True)),
            (sdxl, Loss()),
        )
    )
    assert all(isinstance(one, Diffusion) for one in (of_folder, of_run, plain))
    assert torch.equal(of_folder.signal, of_run.signal) and of_folder.velocity and of_run.velocity  # type: ignore[attr-defined]
    assert of_folder.signal[-1] == 0.0 and plain.signal[-1] > 0 and not plain.velocity  # type: ignore[attr-defined]


def test_times_are_those_of_ai_toolkit() -> None:
    """Indices 1 to 997 of the table from 999 to 0: torch.randint(min + 1, max - 1) in BaseSDTrainProcess.py."""
    sampling = run_of().recipe.timestep_sampling
    t, weight = sample_timesteps(sampling, 20_000, torch.Generator().manual_seed(0), family, 16)
    steps = (t * 1000).round().long()
    assert sorted(set(steps.tolist())) == list(range(2, 999)) and set(weight.tolist()) == {1.0}
    assert torch.equal(timesteps(t), steps.float())


def test_the_lora_in_the_real_pipeline_is_the_trained_model(sdxl: Path, circles: Path, tmp_path: Path) -> None:
    """With alpha half the rank, and convolutions of several places with a rank and scale of their own."""
    how = {"network.scale": 0.5, "network.conv_rank": 3, "network.conv_scale": 2.0}
    result = go(run_of(steps=4, **how), sdxl, circles, tmp_path / "out")
    with safe_open(result.lora, framework="pt") as file:
        assert file.metadata()["ss_base_model_version"] == "sdxl_base_v1-0"
    tensors = load_file(result.lora)
    model, parameters = loaded(sdxl, 3, (0.5, 2.0))
    saved = as_saved(parameters, run_of().recipe.network, family.RECORD)
    assert saved.keys() == tensors.keys()
    assert {float(tensors[key]) for key in tensors if key.endswith(".alpha")} == {4.0, 6.0}
    for key, parameter in zip(saved, parameters.values(), strict=False):
        parameter.data.copy_(tensors[key])
    text, negative = embedded(sdxl, tmp_path / "cache", PROMPT.prompt, "")
    ours = sampled(model, sdxl, text, negative, 4.0)
    pipe = pipeline(sdxl)
    before = painted(pipe, 4.0, "latent")
    pipe.load_lora_weights(result.lora)
    after = painted(pipe, 4.0, "latent")
    assert (after - before).abs().max() > 2e-3
    torch.testing.assert_close(ours, after, rtol=1e-4, atol=1e-4)


def test_checkpointed_offloaded_and_quantized_it_learns_alike(sdxl: Path, circles: Path, tmp_path: Path) -> None:
    def losses(name: str, **changes: Any) -> tuple[float, ...]:
        return go(run_of(steps=2, **changes), sdxl, circles, tmp_path / name).losses

    plain = losses("plain", gradient_checkpointing=False)
    assert losses("again", gradient_checkpointing=True) == pytest.approx(plain, rel=1e-5)
    assert losses("away", **{"offload.share": 0.5}) == pytest.approx(plain, rel=1e-5)
    for kind in ("int8", "float8"):
        assert losses(kind, quantization=kind) == pytest.approx(plain, rel=0.05)


def test_it_goes_on_bit_for_bit(sdxl: Path, circles: Path, tmp_path: Path) -> None:
    whole = run_of(steps=4)
    straight = go(whole, sdxl, circles, tmp_path / "straight")
    go(run_of(steps=2), sdxl, circles, tmp_path / "halted")
    went_on = go(whole, sdxl, circles, tmp_path / "halted")
    one, other = load_file(straight.lora), load_file(went_on.lora)
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(
    ("bucket", "picture", "mirrored", "crop"),
    [
        ((64, 96), (160, 128), False, (22, 0)),
        ((832, 1216), (800, 1200), False, (0, 10)),
        ((832, 1216), (800, 1200), True, (0, 11)),
        ((1216, 832), (1000, 1000), True, (0, 192)),
    ],
)
def test_sizes_are_told_as_sd_scripts_tells_them(
    bucket: tuple[int, int], picture: tuple[int, int], mirrored: bool, crop: tuple[int, int]
) -> None:
    """The numbers are those of its get_crop_ltrb; a mirrored picture begins at its other side."""
    item = TrainingItem(DatasetImage(Path(), *picture, "", ""), *bucket, "", "", 0.0, flip_x=mirrored)
    assert item.told_sizes == (*picture[::-1], *crop, *bucket[::-1])


def test_a_crop_that_is_told_is_heard(sdxl: Path, circles: Path, tmp_path: Path) -> None:
    one, other = (go(run_of(steps=2, tells_crops=tells), sdxl, circles, tmp_path / str(tells)) for tells in (0, 1))
    assert one.losses[0] != other.losses[0]


def test_a_run_begins_with_its_own_file_and_with_ai_toolkits(sdxl: Path, tmp_path: Path) -> None:
    """ai-toolkit's has diffusers' names with _; alpha has no say, which is kept beside the matrices."""
    _, parameters = loaded(sdxl, 3, (0.5, 2.0))
    file = tmp_path / "lora.safetensors"
    how = replace(run_of().recipe.network, conv_rank=3, scale=0.5, conv_scale=2.0, initial_weights=str(file))
    words = {"lora_A": "lora_down", "lora_B": "lora_up"}
    theirs = {
        key.rpartition(".lora_")[0].replace(".", "_") + f".{words[key[-13:-7]]}.weight": key for key in parameters
    }
    linears = lora_targets(build_empty_transformer(sdxl / "unet"), windows=True)
    for tensors in (as_saved(parameters, how, family.RECORD), {key: parameters[own] for key, own in theirs.items()}):
        save_file({key: value.detach().clone() for key, value in tensors.items()}, file)
        found = read_initial_weights(how, linears, family.RECORD)
        assert found.keys() == parameters.keys() and all(torch.equal(found[key], parameters[key]) for key in found)
