"""Parts in files of their own: the same model as the diffusers folder, tensor by tensor and loss by loss."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers.loaders.single_file_utils import convert_ldm_vae_checkpoint
from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL
from safetensors.torch import load_file as load_tensors
from sentencepiece import SentencePieceTrainer
from torch import Tensor
from transformers import CLIPTextModel, Qwen3Model, T5EncoderModel

from zdoctor.doctor.model.recipe import SamplePrompt
from zdoctor.doctor.model.run import Run
from zdoctor.doctor.train import TrainError, TrainResult
from zdoctor.doctor.train.components.component_files import (
    check_component,
    check_tokenizer,
    component_config,
    component_files,
    component_tensors,
)
from zdoctor.doctor.train.components.pretrained import load_file, load_pretrained, load_tokenizer
from zdoctor.doctor.train.components.text_encoder import load_text_encoder
from zdoctor.doctor.train.families import flux as family
from zdoctor.doctor.train.families import scheduler_of
from zdoctor.doctor.train.transformer.load_transformer import build_empty_transformer, fill_transformer
from zdoctor.doctor.train.weights.materialize import shapes_of
from zdoctor.tests.changes import changed

from .. import parts as made
from ..patient import Recorder, go, run_with

CPU = torch.device("cpu")
Parts = tuple[Path, dict[str, Path]]
ENCODERS: dict[str, Any] = {"text_encoder": CLIPTextModel, "text_encoder_2": T5EncoderModel}


@pytest.fixture(scope="module")
def flux_parts(flux: Path, tmp_path_factory: pytest.TempPathFactory) -> Parts:
    """A Flux in a diffusers folder, and its parts by name. Read only."""
    folder = tmp_path_factory.mktemp("flux-parts")
    model = made.flux_model(folder / "model", flux)
    return model, made.flux_parts(model, folder / "parts")


@pytest.fixture(scope="module")
def zimage_parts(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Parts:
    """A Z-Image in a diffusers folder, and its parts by name. Read only."""
    folder = tmp_path_factory.mktemp("zimage-parts")
    model = made.zimage_model(folder / "model", tiny)
    return model, made.zimage_parts(model, folder / "parts")


@pytest.fixture(scope="module")
def two(circles: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two of the circles. Read only."""
    folder = tmp_path_factory.mktemp("two")
    for name in ("0.png", "0.txt", "1.png", "1.txt"):
        shutil.copy(circles / name, folder)
    return folder


@pytest.mark.parametrize("name", ["flux_parts", "zimage_parts"])
def test_the_same_transformer_and_vae(name: str, request: pytest.FixtureRequest) -> None:
    model, files = request.getfixturevalue(name)
    loaded = []
    for place, weights in ((model / "transformer", model / "transformer"), (files["transformer"],) * 2):
        transformer = build_empty_transformer(place)
        assert set(component_tensors(weights, type(transformer).__name__, shapes_of(transformer))) == set(
            transformer.state_dict()
        )
        fill_transformer(transformer, weights, quantization="int8", adapter={}, dtype=torch.float32, device=CPU)
        loaded.append(transformer)
    assert made.same(*loaded)
    theirs = load_pretrained(AutoencoderKL, model / "vae", "VAE", torch_dtype=torch.float32)
    ours = load_file(AutoencoderKL, files["vae"], torch.float32)
    assert made.same(ours, theirs) and ours.config.shift_factor == theirs.config.shift_factor == 0.1159
    convert: Any = convert_ldm_vae_checkpoint
    converted: dict[str, Tensor] = convert(load_tensors(files["vae"]), theirs.config)
    assert converted.keys() == ours.state_dict().keys()
    assert all(torch.equal(value, converted[key]) for key, value in ours.state_dict().items())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_same_text_encoders(dtype: torch.dtype, flux_parts: Parts, zimage_parts: Parts) -> None:
    cases = [(flux_parts, name, make) for name, make in ENCODERS.items()]
    for (model, files), part, make in [*cases, (zimage_parts, "text_encoder", Qwen3Model)]:
        theirs = load_text_encoder(make, model / part, part, "none", dtype, CPU)
        ours = load_text_encoder(make, files[part], part, "none", dtype, CPU)
        assert made.same(ours, theirs)
        said = {**theirs.config.to_dict(), **ours.config.to_dict()}
        beside = {"_name_or_path", "dtype", "initializer_range", "architectures"}
        assert {key for key, value in theirs.config.to_dict().items() if value != said[key]} <= beside
        ids = torch.tensor([[0, 3, 4, 1]])
        assert torch.equal(ours(ids).last_hidden_state, theirs(ids).last_hidden_state)


def test_files_of_other_programs(flux_parts: Parts, tmp_path: Path) -> None:
    """A prefix, diffusers' names, names without a prefix, the other name of an embedding: all are the same part."""
    model, _ = flux_parts
    transformer = made.transformer_tensors(
        model / "transformer", "FluxTransformer2DModel", prefix="model.diffusion_model."
    )
    clip = {name.removeprefix("text_model."): v for name, v in made.tensors_of(model / "text_encoder").items()}
    t5 = made.tensors_of(model / "text_encoder_2")
    t5 = {name.replace("shared.", "encoder.embed_tokens."): value for name, value in t5.items()}
    for class_name, tensors in (
        ("FluxTransformer2DModel", transformer),
        ("FluxTransformer2DModel", made.tensors_of(model / "transformer")),
        ("AutoencoderKL", made.tensors_of(model / "vae")),
        ("CLIPTextModel", clip),
        ("T5EncoderModel", t5),
    ):
        file = made.write(tmp_path / "part.safetensors", tensors)
        check_component(file, class_name)
        make: Any = {"CLIPTextModel": CLIPTextModel, "T5EncoderModel": T5EncoderModel}.get(class_name)
        if make is not None:
            part = "text_encoder" if make is CLIPTextModel else "text_encoder_2"
            theirs = load_text_encoder(make, model / part, part, "none", torch.float32, CPU)
            assert made.same(load_text_encoder(make, file, part, "none", torch.float32, CPU), theirs)


def test_eight_bits_without_scales_are_weights_like_others(flux_parts: Parts, tmp_path: Path) -> None:
    model, _ = flux_parts
    eight = {name: v.to(torch.float8_e4m3fn) for name, v in made.tensors_of(model / "text_encoder_2").items()}
    file = made.write(tmp_path / "t5xxl_fp8_e4m3fn.safetensors", eight)
    check_component(file, "T5EncoderModel")
    loaded = load_text_encoder(T5EncoderModel, file, "t5", "none", torch.bfloat16, CPU)
    assert torch.equal(loaded.shared.weight, eight["shared.weight"].to(torch.bfloat16))


def test_what_does_not_fit_is_said_from_the_header(flux_parts: Parts, tmp_path: Path) -> None:
    model, files = flux_parts
    vae, clip = made.vae_tensors(model / "vae"), load_tensors(files["text_encoder"])

    def refused(class_name: str, said: str, file: Path) -> None:
        with pytest.raises(TrainError, match=said):
            check_component(file, class_name)

    refused("CLIPTextModel", r"t5xxl\.safetensors is not a CLIP text encoder .* holds a T5", files["text_encoder_2"])
    refused("AutoencoderKL", r"is not a VAE .* holds a Flux transformer", files["transformer"])
    half = {name: value for name, value in vae.items() if not name.startswith("encoder.mid.attn_1.k")}
    refused("AutoencoderKL", "2 of the .* tensors .* are in none", made.write(tmp_path / "half.safetensors", half))
    odd = {**vae, "decoder.mid.block_1.conv1.weight": torch.zeros(64, 64, 1, 1)}
    refused("AutoencoderKL", "another shape than the others ask for", made.write(tmp_path / "odd.safetensors", odd))
    scaled = {**clip, "text_model.encoder.layers.0.mlp.fc1.scale_weight": torch.ones(1)}
    refused("CLIPTextModel", "scaled 8-bit", made.write(tmp_path / "scaled.safetensors", scaled))
    gguf = tmp_path / "t5.gguf"
    gguf.write_bytes(b"GGUF" + b"\3\0\0\0" + bytes(100))
    refused("T5EncoderModel", r"t5\.gguf is a GGUF file", gguf)
    first = made.shards(tmp_path, vae)
    check_component(first, "AutoencoderKL")
    first.with_name("model-00002-of-00002.safetensors").unlink()
    refused("AutoencoderKL", r"model-00002-of-00002\.safetensors does not exist", first)
    with pytest.raises(TrainError, match=r"holds a CLIP text encoder; this runner trains"):
        build_empty_transformer(files["text_encoder"])


def test_a_folder_has_its_config(tiny: Path, tmp_path: Path) -> None:
    assert component_config(tiny / "vae", "AutoencoderKL")["scaling_factor"] == 1.0
    assert [file.name for file in component_files(tiny / "vae")] == [
        "config.json",
        "diffusion_pytorch_model.safetensors",
    ]
    with pytest.raises(TrainError, match=r"config\.json cannot be read"):
        component_config(tmp_path, "AutoencoderKL")


def test_the_tokenizer_that_google_published_for_t5_is_read(tmp_path: Path) -> None:
    """It is a spiece.model without a tokenizer.json."""
    words = ["a red circle", "a green square beside the sea", "nothing but blue"]
    SentencePieceTrainer.train(
        sentence_iterator=iter(words * 20),
        model_prefix=str(tmp_path / "spiece"),
        vocab_size=40,
        hard_vocab_limit=False,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        minloglevel=2,
    )
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "T5Tokenizer", "extra_ids": 0}')
    check_tokenizer(tmp_path)
    tokenizer = load_tokenizer(tmp_path)
    ids = tokenizer("a red circle").input_ids
    assert ids[-1] == 1 and tokenizer.decode(ids, skip_special_tokens=True) == "a red circle"


def test_a_tokenizer_that_needs_a_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spiece.model").write_bytes(b"")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if "google" in name else object())
    with pytest.raises(TrainError, match=r"pip install protobuf$"):
        check_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_bytes(b"")
    check_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("name", "architecture"),
    [("flux_parts", "flux"), pytest.param("zimage_parts", "zimage", marks=pytest.mark.thorough)],
)
def test_the_same_training(
    name: str, architecture: str, two: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Losses, LoRA and previews are those of the diffusers folder, bit for bit."""
    model, files = request.getfixturevalue(name)
    prompt = SamplePrompt("a b ab", 32, 32, 3, 1, 3.5)
    run = run_with(
        architecture=architecture,
        steps=2,
        batch_size=1,
        disable_sampling=False,
        samples=(prompt,),
        sample_every=2,
        skip_first_sample=True,
    )
    theirs = go(run, model, two, tmp_path / "folder", fresh=True)
    ours = trained(run, files, two, tmp_path / "parts")
    assert ours.losses == theirs.losses
    tensors = load_tensors(theirs.lora)
    assert all(torch.equal(value, tensors[key]) for key, value in load_tensors(ours.lora).items())
    assert [Path(file).read_bytes() for file in ours.samples] == [Path(file).read_bytes() for file in theirs.samples]
    assert len(ours.samples) == 1


def test_text_encoders_in_eight_bits_and_a_process_that_goes_on(flux_parts: Parts, two: Path, tmp_path: Path) -> None:
    model, files = flux_parts
    run = run_with(
        architecture="flux", steps=2, batch_size=1, text_encoder_quantization="int8", quantization="float8"
    )
    straight = go(run, model, two, tmp_path / "folder", fresh=True)
    trained(changed(run, steps=1), files, two, tmp_path / "parts")
    assert trained(run, files, two, tmp_path / "parts").losses == straight.losses
    moved = Path(shutil.copytree(files["vae"].parent, tmp_path / "moved"))
    other = {
        **files,
        "transformer": made.write(moved / "flux1-dev.safetensors", made.tensors_of(model / "transformer")),
    }
    with pytest.raises(TrainError, match="base model"):
        trained(changed(run, steps=3), other, two, tmp_path / "parts")


def test_what_does_not_fit_ends_the_start_before_anything_is_loaded(
    flux_parts: Parts, two: Path, tmp_path: Path
) -> None:
    _, files = flux_parts
    recorder = Recorder()
    for part, other, said in (
        ("text_encoder", "text_encoder_2", "holds a T5 text encoder"),
        ("vae", "transformer", "is not a VAE"),
    ):
        with pytest.raises(TrainError, match=said):
            trained(
                run_with(architecture="flux"),
                {**files, part: files[other]},
                two,
                tmp_path / "out",
                progress=recorder,
            )
    with pytest.raises(TrainError, match="There is no vae folder"):
        some = {name: place for name, place in files.items() if name != "vae"}
        trained(run_with(architecture="flux"), some, two, tmp_path / "out", progress=recorder)
    assert set(recorder.phases) == {"Checking the model files"}


def test_without_guidance_it_is_schnell(flux: Path, tmp_path: Path) -> None:
    model = made.flux_model(tmp_path / "model", flux, guided=False)
    files = made.flux_parts(model, tmp_path / "parts")
    transformer = build_empty_transformer(files["transformer"])
    schnell, dev = (
        scheduler_of(family.RECORD, tmp_path, transformer),
        scheduler_of(family.RECORD, tmp_path, build_empty_transformer(flux / "transformer")),
    )
    assert schnell.config.shift == 1.0 and not schnell.config.use_dynamic_shifting
    assert dev.config.shift == 3.0 and dev.config.use_dynamic_shifting


def trained(
    run: Run, files: dict[str, Path], images: Path, output: Path, progress: Recorder | None = None
) -> TrainResult:
    parts = {name: place for name, place in files.items() if name != "transformer"}
    return go(run, files["transformer"], images, output, components=parts, fresh=True, progress=progress)
