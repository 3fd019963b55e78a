"""Qwen-Image-Edit learns from pictures and what they were made of: seen by Qwen2.5-VL, and by the transformer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers.pipelines.qwenimage import pipeline_qwenimage_edit, pipeline_qwenimage_edit_plus
from diffusers.pipelines.qwenimage.pipeline_qwenimage_edit import QwenImageEditPipeline
from diffusers.pipelines.qwenimage.pipeline_qwenimage_edit_plus import QwenImageEditPlusPipeline
from peft import LoraConfig
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file
from transformers import Qwen2VLProcessor
from transformers.processing_utils import ProcessorMixin

from zdoctor.doctor.model.recipe import SamplePrompt
from zdoctor.doctor.progress import Progress
from zdoctor.doctor.train import refuse
from zdoctor.doctor.train.components.vae import VaeFiles
from zdoctor.doctor.train.dataset.pixels import seen_pixels
from zdoctor.doctor.train.dataset.training_items import TrainingItem, read_training_items
from zdoctor.doctor.train.encode.encoding_cache import EncodingCache
from zdoctor.doctor.train.encode.latents import Latents
from zdoctor.doctor.train.encode.text_embeddings import TextEmbeddings, prompt_of
from zdoctor.doctor.train.families import FamilyModule, packed, qwen_image_edit, qwen_image_edit_plus, scheduler_of
from zdoctor.doctor.train.network.lora import add_network, lora_targets, trainable_parameters
from zdoctor.doctor.train.sampling.preview_samples import edited_samples
from zdoctor.doctor.train.sampling.sampler import denoise
from zdoctor.doctor.train.transformer.load_transformer import build_empty_transformer, fill_transformer

from .patient import DATASET, go, run_with

CPU = torch.device("cpu")
FAMILIES: dict[str, tuple[FamilyModule, Any]] = {
    "qwen_image_edit": (qwen_image_edit, QwenImageEditPipeline),
    "qwen_image_edit_plus": (qwen_image_edit_plus, QwenImageEditPlusPipeline),
}


class WithoutFilms(Qwen2VLProcessor):  # type: ignore[misc]
    """transformers' own processor but for films, which torchvision reads."""

    def __init__(self, image_processor: Any = None, tokenizer: Any = None, chat_template: Any = None) -> None:
        self.image_token, self.video_token = qwen_image_edit.PAD, "<|video_pad|>"
        self.image_token_id, self.video_token_id = tokenizer.convert_tokens_to_ids(self.image_token), -1
        ProcessorMixin.__init__(self, image_processor, tokenizer, chat_template=chat_template)


@pytest.fixture(scope="module")
def made_of(circles: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two control images for each of the circles, of other sizes and shapes."""
    folders = tmp_path_factory.mktemp("gray"), tmp_path_factory.mktemp("small")
    for number in range(6):
        picture = Image.open(circles / f"{number}.png")
        picture.convert("L").resize((100, 90)).convert("RGB").save(folders[0] / f"{number}.png")
        picture.rotate(90, expand=True).resize((60, 96)).save(folders[1] / f"{number}.jpg")
    return folders


def pipeline(name: str, folder: Path) -> Any:
    from transformers import AutoTokenizer, Qwen2_5_VLForConditionalGeneration

    tokenizer = AutoTokenizer.from_pretrained(folder / "tokenizer")
    eyes = qwen_image_edit.image_processor()
    text = Qwen2_5_VLForConditionalGeneration.from_pretrained(folder / "text_encoder")
    model = loaded(folder)
    scheduler = scheduler_of(FAMILIES[name][0].RECORD, folder, model)
    vae = VaeFiles(folder / "vae", "AutoencoderKLQwenImage").load(CPU).model
    make: Any = FAMILIES[name][1]
    pipe = make(scheduler, vae, text, tokenizer, WithoutFilms(eyes, tokenizer), model)
    pipe.set_progress_bar_config(disable=True)
    return pipe


def loaded(folder: Path) -> Any:
    model = build_empty_transformer(folder / "transformer")
    fill_transformer(model, folder / "transformer", quantization="none", adapter={}, dtype=torch.float32, device=CPU)
    return model


def texts_of(name: str, folder: Path, cache: Path) -> TextEmbeddings:
    family = FAMILIES[name][0]
    return TextEmbeddings(
        EncodingCache(cache), family, {part: folder / part for part in family.TEXT_PARTS}, torch.float32
    )


def run_of(name: str, folders: tuple[Path, ...], **changes: Any) -> Any:
    dataset = replace(DATASET, control_folders=tuple(map(str, folders)))
    return run_with(architecture=name, datasets=(dataset,), controls_match=True, **changes)


def items_of(name: str, circles: Path, folders: tuple[Path, ...]) -> list[TrainingItem]:
    run = run_of(name, folders)
    return read_training_items(run.recipe, {"datasets/0": str(circles)}, 16)


def test_several_images_are_given_as_many_pixels_as_the_picture_in_their_own_shapes(
    circles: Path, made_of: tuple[Path, Path]
) -> None:
    item = items_of("qwen_image_edit_plus", circles, made_of)[0]
    sizes = [(one.width, one.height) for one in item.controls]
    assert (item.width, item.height) == (64, 64) and sizes == [(64, 64), (64, 96)]
    assert [(one.width, one.height) for one in item.seen] == [(416, 352), (288, 480)]
    (one,) = items_of("qwen_image_edit", circles, made_of[:1])[0].controls
    assert (one.width, one.height) == (64, 64)


@pytest.mark.parametrize("name", FAMILIES)
def test_embeddings_are_those_of_the_pipeline(
    name: str, qwen_image_edit: Path, circles: Path, made_of: tuple[Path, Path], tmp_path: Path
) -> None:
    item = items_of(name, circles, made_of if name.endswith("plus") else made_of[:1])[0]
    pipe, texts = pipeline(name, qwen_image_edit), texts_of(name, qwen_image_edit, tmp_path)
    prompts = [prompt_of(text, item) for text in ("a red circle", "")]
    texts.prepare(prompts, CPU, Progress())
    assert not list(tmp_path.glob("*.png"))
    images = [seen_pixels(one) for one in item.seen]
    for prompt in prompts:
        words = "a red circle" if prompt is prompts[0] else ""
        states = pipe._get_qwen_prompt_embeds(words, images if name.endswith("plus") else images[0])[0]
        torch.testing.assert_close(texts.get(prompt)["states"], states[0], rtol=1e-5, atol=1e-5)


def test_prediction_loss_and_gradients_are_those_of_diffusers(qwen_image_edit: Path) -> None:
    """With two control images of unlike sizes, and prompts of unlike lengths."""
    model = loaded(qwen_image_edit)
    network = add_network(model, lora_targets(model), run_with().recipe.network, 0)
    parameters = trainable_parameters(network, "")
    for value in parameters.values():
        value.data.normal_(std=0.1)
    clean, noise, t = torch.randn(2, 4, 8, 6), torch.randn(2, 4, 8, 6), torch.tensor([0.3, 0.85])
    controls = [torch.randn(2, 4, 4, 6), torch.randn(2, 4, 10, 8)]
    states = [torch.randn(length, 24) for length in (5, 9)]
    share = t.view(-1, 1, 1, 1)
    guess = qwen_image_edit_plus.predict(
        model, (1 - share) * clean + share * noise, t, [{"states": one} for one in states], controls=controls
    )
    loss = (guess - (noise - clean)).square().mean()
    torch.autograd.backward(loss)

    theirs, pipe = loaded(qwen_image_edit), QwenImageEditPlusPipeline
    theirs.add_adapter(LoraConfig(r=8, lora_alpha=8, target_modules=list(network)))
    for name, value in theirs.named_parameters():
        if "lora_" in name:
            value.data.copy_(parameters[name.replace(".default", "")].data)
    parts = [
        pipe._pack_latents(one, 2, 4, *one.shape[2:]) for one in ((1 - share) * clean + share * noise, *controls)
    ]
    mask = torch.tensor([[1] * 5 + [0] * 4, [1] * 9])
    answer = theirs(
        hidden_states=torch.cat(parts, dim=1),
        timestep=t,
        encoder_hidden_states=torch.nn.utils.rnn.pad_sequence(states, batch_first=True),
        encoder_hidden_states_mask=mask,
        img_shapes=[[(1, 4, 3), (1, 2, 3), (1, 5, 4)]] * 2,
        return_dict=False,
    )[0][:, : parts[0].shape[1]]
    answer = pipe._unpack_latents(answer, 64, 48, 8).squeeze(2)
    their_loss = (answer - (noise - clean)).square().mean()
    torch.autograd.backward(their_loss)
    torch.testing.assert_close(guess, answer, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(loss, their_loss, rtol=1e-5, atol=0)
    for name, value in theirs.named_parameters():
        if "lora_" in name:
            own, grown = parameters[name.replace(".default", "")].grad, value.grad
            if grown is None:  # of what the last block makes of the prompt
                assert own is None or not own.any()
                continue
            torch.testing.assert_close(own, grown, rtol=1e-5, atol=1e-5 * grown.abs().max().item())


@pytest.mark.parametrize("name", FAMILIES)
def test_previews_are_those_of_the_pipeline(
    name: str, qwen_image_edit: Path, made_of: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where its control images have as many pixels as the sample; whatever they are, it makes a megapixel of them."""
    several, width, height = name.endswith("plus"), 64, 96
    monkeypatch.setattr(pipeline_qwenimage_edit_plus, "VAE_IMAGE_SIZE", width * height)
    monkeypatch.setattr(pipeline_qwenimage_edit, "calculate_dimensions", lambda *_: (width, height, None))
    files = [str(folder / f"0.{ending}") for folder, ending in zip(made_of, ("png", "jpg"), strict=True)]
    prompt = SamplePrompt("a red circle", width, height, 3, 3, 4.0, control=files[0], beside=tuple(files[1:]))
    run = run_of(name, made_of, disable_sampling=False, samples=(prompt,))
    (item,) = edited_samples(run.recipe, 16)
    assert item is not None and len(item.controls) == 1 + several
    latents = Latents(EncodingCache(tmp_path), VaeFiles(qwen_image_edit / "vae", "AutoencoderKLQwenImage"))
    latents.prepare(item.controls, CPU, Progress())
    texts = texts_of(name, qwen_image_edit, tmp_path)
    prompts = [prompt_of(text, item) for text in (prompt.prompt, "no text")]
    texts.prepare(prompts, CPU, Progress())
    found = [texts.get(one) for one in prompts]
    pipe = pipeline(name, qwen_image_edit)
    ours = denoise(
        pipe.transformer,
        pipe.scheduler,
        prompt,
        *found,
        shrink=8,
        dtype=torch.float32,
        device=CPU,
        controls=[latents.get(one).unsqueeze(0) for one in item.controls],
    )
    assert ours is not None
    noise = torch.randn((1, 4, height // 8, width // 8), generator=torch.Generator().manual_seed(3))
    opened = [Image.open(one.picture.file).convert("RGB") for one in item.controls]
    states = [one["states"].unsqueeze(0) for one in found]
    theirs = pipe(
        image=opened if several else opened[0].resize((width, height), Image.Resampling.BICUBIC),
        prompt_embeds=states[0],
        prompt_embeds_mask=torch.ones(states[0].shape[:2], dtype=torch.int64),
        negative_prompt_embeds=states[1],
        negative_prompt_embeds_mask=torch.ones(states[1].shape[:2], dtype=torch.int64),
        height=height,
        width=width,
        num_inference_steps=3,
        true_cfg_scale=4.0,
        latents=packed(noise),
        output_type="latent",
    ).images
    torch.testing.assert_close(packed(ours), theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.thorough
def test_a_run_on_several_images_goes_on_bit_for_bit(
    qwen_image_edit: Path, circles: Path, made_of: tuple[Path, Path], tmp_path: Path
) -> None:
    name = "qwen_image_edit_plus"
    files = str(made_of[0] / "1.png"), str(made_of[1] / "1.jpg")
    sample = SamplePrompt("a b", 64, 64, 3, 2, 3.0, control=files[0], beside=files[1:])
    whole = run_of(name, made_of, steps=4, samples=(sample,), disable_sampling=False, skip_first_sample=True)
    straight = go(whole, qwen_image_edit, circles, tmp_path / "straight", fresh=True)
    assert len(straight.samples) == 1
    with safe_open(straight.lora, framework="pt") as file:
        assert file.metadata()["ss_base_model_version"] == "qwen_image"
    go(run_of(name, made_of, steps=2), qwen_image_edit, circles, tmp_path / "halted", fresh=True)
    went_on = go(run_of(name, made_of, steps=4), qwen_image_edit, circles, tmp_path / "halted", fresh=True)
    one, other = load_file(straight.lora), load_file(went_on.lora)
    assert all(torch.equal(one[key], other[key]) for key in one)
    single = go(run_of(name, made_of[:1], steps=4), qwen_image_edit, circles, tmp_path / "single", fresh=True)
    assert single.losses != straight.losses  # the model saw the other one


def test_without_an_image_to_edit_it_is_refused(made_of: tuple[Path, Path]) -> None:
    told = "needs an image to edit"
    plain = SamplePrompt("x", 64, 64, 0, 1, 1.0)
    for run in (
        run_of("qwen_image_edit", ()),
        run_of("qwen_image_edit", made_of[:1], samples=(plain,), disable_sampling=False),
    ):
        assert any(told in reason for reason in refuse(run))
    assert any("Several control images" in reason for reason in refuse(run_of("qwen_image_edit", made_of)))
    assert not refuse(run_of("qwen_image_edit_plus", made_of))
